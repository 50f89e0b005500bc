'use strict'
// Scenarios of groups: a member that others freeze and kill, and offsets that are kept.

const readline = require('readline')
const { say, withAdmin, withConsumer } = require('./client')

// Speaks as the suite's group_members says. Every chunk is committed before the next is read.
const member = async (kafka, { topic, group, session_ms: sessionTimeout, hold_at: holdAt }) => {
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout,
    rebalanceTimeout: 10000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 200,
    retry: { initialRetryTime: 50, maxRetryTime: 300, retries: 100 },
  })
  const lines = readline.createInterface({ input: process.stdin })
  const go = new Promise((resolve) => lines.once('line', resolve))
  let held = []
  let turn = 0
  const give = () => held.length && say('revoked', { partitions: held })
  consumer.on(consumer.events.REBALANCING, () => {
    give()
    held = []
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    give()
    held = payload.memberAssignment[topic] || []
    say('assigned', { partitions: held })
  })
  const commit = async (partition, chunk) => {
    turn += 1
    say('committing', { values: chunk.map(({ value }) => value.toString()) })
    if (turn === holdAt) {
      say('holding')
      await go
    }
    try {
      const offset = String(Number(chunk[chunk.length - 1].offset) + 1)
      await consumer.commitOffsets([{ topic, partition, offset }])
    } catch (error) {
      say('refused', { error: error.type || error.name })
      return false
    }
    say('committed')
    return true
  }
  const eachBatch = async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
    for (let first = 0; first < batch.messages.length && isRunning() && !isStale(); first += 20) {
      const chunk = batch.messages.slice(first, first + 20)
      if (!(await commit(batch.partition, chunk))) return // the next heartbeat finds out why, and joins again
      resolveOffset(chunk[chunk.length - 1].offset)
      await heartbeat()
    }
  }
  process.once('SIGTERM', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  await new Promise(() => {})
}

// Read `first`, commit there with metadata, and start again as the same group.
const resume = async (kafka, { topic, group, first, metadata }) => {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 300, maxWaitTimeInMs: 300 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise((resolve, reject) => {
    const eachMessage = async ({ message }) => {
      if (Number(message.offset) !== first - 1) return
      await consumer.commitOffsets([{ topic, partition: 0, offset: String(first), metadata }])
      resolve()
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  await withAdmin(kafka, async (admin) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    say('committed', { partitions: found.partitions.map((each) => ({ ...each, offset: Number(each.offset) })) })
  })
  const records = await withConsumer(kafka, { topic, group }, (all) => all.length >= 1)
  say('resumed', { offset: records[0].offset })
}

// Offsets that kafkajs commits by itself, when it is told how often.
const auto = async (kafka, { topic, group, count }) => {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 300, maxWaitTimeInMs: 300 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let seen = 0
  await new Promise((resolve, reject) => {
    const eachMessage = async () => {
      seen += 1
      if (seen === count) resolve()
    }
    consumer.run({ autoCommitThreshold: 1, eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  await withAdmin(kafka, async (admin) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    say('committed', { offsets: found.partitions.map(({ offset }) => Number(offset)) })
  })
}

module.exports = { member, resume, auto }
