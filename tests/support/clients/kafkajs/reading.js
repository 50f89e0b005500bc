'use strict'
// Scenarios of where a consumer stands, what it waits for and what it is spared.

const { say, until, withAdmin, withConsumer, withProducer } = require('./client')

// Read one record at each of `offsets`, by seeking from one to the next.
const seek = async (kafka, { topic, group, offsets }) => {
  const wanted = [...offsets]
  const found = []
  const move = (consumer) => consumer.seek({ topic, partition: 0, offset: String(wanted[0]) })
  let begun = false
  await withConsumer(kafka, { topic, group }, () => wanted.length === 0, async (consumer, records) => {
    if (!begun) {
      begun = true
      return move(consumer)
    }
    const last = records[records.length - 1]
    if (last && wanted.length && last.offset === wanted[0]) {
      found.push(last.offset)
      wanted.shift()
      if (wanted.length) move(consumer)
    }
  })
  say('found', { offsets: found })
}

// A seek out of range is answered by the reset that was asked for.
const reset = async (kafka, { topic, group, offset, fromBeginning }) => {
  let begun = false
  const during = async (consumer) => {
    if (begun) return
    begun = true
    consumer.seek({ topic, partition: 0, offset: String(offset) })
    if (!fromBeginning) {
      await withAdmin(kafka, async (admin) => {
        const [{ high }] = await admin.fetchTopicOffsets(topic)
        say('end', { high: Number(high) })
      })
      // The reset happens at the first fetch; what is sent until then is before the end that it finds.
      await withProducer(kafka, {}, async (producer) => {
        const sending = setInterval(() => producer.send({ topic, messages: [{ value: 'new', partition: 0 }] }), 100)
        await until(() => done)
        clearInterval(sending)
        await new Promise((resolve) => setTimeout(resolve, 150))
      })
    }
  }
  let done = false
  const records = await withConsumer(
    kafka,
    { topic, group, fromBeginning },
    (all) => (done = all.length >= 1),
    during
  )
  say('found', { offset: records[0].offset })
}

const pause = async (kafka, { topic, group, count }) => {
  let paused = false
  const order = []
  await withConsumer(
    kafka,
    { topic, group },
    (records) => records.length >= 2 * count,
    async (consumer, records) => {
      if (!paused) {
        paused = true
        consumer.pause([{ topic, partitions: [0] }])
        return
      }
      const last = records[records.length - 1]
      if (last) order.push(last.partition)
      if (records.filter(({ partition }) => partition === 1).length === count) consumer.resume([{ topic, partitions: [0] }])
    }
  )
  say('order', { order })
}

// How long a record takes to a consumer that waits in a long poll.
const longPoll = async (kafka, { topic, group, turns }) =>
  withProducer(kafka, {}, async (producer) => {
    const sendLater = () =>
      setTimeout(async () => {
        sentAt = Date.now()
        await producer.send({ topic, messages: [{ value: 'late', partition: 0 }] })
      }, 200)
    let sentAt = null
    let slowest = 0
    let seen = 0
    await withConsumer(
      kafka,
      { topic, group, settings: { maxWaitTimeInMs: 15000 } },
      (records) => records.length > turns,
      async (consumer, records) => {
        if (records.length === seen) return
        seen = records.length
        if (sentAt !== null) slowest = Math.max(slowest, Date.now() - sentAt)
        if (seen <= turns) sendLater()
      }
    )
    say('slowest', { ms: slowest })
  })

const offsets = async (kafka, { topic, times }) =>
  withAdmin(kafka, async (admin) => {
    const asNumbers = (some) => some.map((each) => [each.partition, Number(each.low), Number(each.high)]).sort()
    say('ends', { ends: asNumbers(await admin.fetchTopicOffsets(topic)) })
    for (const time of times) {
      const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, time)
      say('time', { time, offset: Number(offset) })
    }
  })

module.exports = { seek, reset, pause, longPoll, offsets }
