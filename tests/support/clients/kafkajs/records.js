'use strict'
// Scenarios of sending, and of reading what was sent.

const { COMPRESSION, bytes, refusal, say, withConsumer, withProducer } = require('./client')

const asMessage = ({ key, value, headers, partition, timestamp }) => ({
  key: bytes(key),
  value: bytes(value),
  headers: Object.fromEntries(headers.map(([name, some]) => [name, some.length === 1 ? bytes(some[0]) : some.map(bytes)])),
  partition,
  timestamp: timestamp === null ? undefined : String(timestamp),
})

// Each of `sends` is one request: {acks, compression, topicMessages: [{topic, messages}]}.
const produce = async (kafka, { sends, idempotent = false }) =>
  withProducer(kafka, { idempotent }, async (producer) => {
    for (const { acks = -1, compression = 'none', topicMessages } of sends) {
      const told = topicMessages.map(({ topic, messages }) => ({ topic, messages: messages.map(asMessage) }))
      const answers = await producer.sendBatch({ acks, compression: COMPRESSION[compression], topicMessages: told })
      say('sent', { answers: answers || [] })
    }
  })

const consume = async (kafka, { topic, group, count, settings }) => {
  for (const record of await withConsumer(kafka, { topic, group, settings }, (all) => all.length >= count)) {
    say('read', record)
  }
}

const refuse = async (kafka, { topic, sizes }) =>
  withProducer(kafka, { retry: { retries: 1 } }, async (producer) => {
    for (const size of sizes) {
      let answers = null
      const error = await refusal(async () => {
        answers = await producer.send({ topic, messages: [{ value: Buffer.alloc(size, 'x'), partition: 0 }] })
      })
      say('tried', { size, error, answers })
    }
  })

// A workload of numbered records, sent as many small requests side by side, as the idempotent producer may.
const workload = async (kafka, { topic, count, keys, chunk }) =>
  withProducer(kafka, { idempotent: true, maxInFlightRequests: 5 }, async (producer) => {
    let begun = false
    for (let first = 0; first < count; first += chunk) {
      const messages = []
      for (let index = first; index < Math.min(count, first + chunk); index++) {
        const key = `key-${String(index % keys).padStart(4, '0')}`
        const number = String(Math.floor(index / keys)).padStart(8, '0')
        messages.push({ key, value: `${key}:${number}:`.padEnd(40, '.') })
      }
      await producer.send({ topic, messages })
      if (!begun && first >= count / 5) say('begun')
      begun = begun || first >= count / 5
    }
    say('done', { count })
  })

const partitions = async (kafka, { topic, keys }) =>
  withProducer(kafka, {}, async (producer) => {
    for (const key of keys) await producer.send({ topic, messages: [{ key, value: 'own' }] })
    say('done')
  })

module.exports = { produce, consume, refuse, workload, partitions }
