'use strict'
// kafkajs with every codec, and the words that scenarios share. Bytes travel as hex; null stays null.

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')

// Codecs are loaded by who needs them: most scenarios compress nothing.
const lz4 = () => require('lz4-napi')
let opened = null
const zstd = () => (opened = opened || new Promise((resolve) => require('zstd-codec').ZstdCodec.run(resolve)))

CompressionCodecs[CompressionTypes.Snappy] = () => require('kafkajs-snappy')()
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4().compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4().decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(new (await zstd()).Simple().compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(new (await zstd()).Streaming().decompress(buffer)),
})

const COMPRESSION = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const bytes = (hex) => (hex === null ? null : Buffer.from(hex, 'hex'))
const hex = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('hex'))
const bootMs = () => Number(process.hrtime.bigint() / 1_000_000n)

const say = (event, facts = {}) => process.stdout.write(JSON.stringify({ event, at: bootMs(), ...facts }) + '\n')

const connect = (bootstrap) =>
  new Kafka({
    clientId: 'holdfast-suite',
    brokers: [bootstrap],
    logLevel: logLevel.WARN,
    logCreator: () => ({ label, log }) => process.stderr.write(`${label} ${JSON.stringify(log)}\n`),
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 60 },
  })

const withProducer = async (kafka, settings, body) => {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...settings })
  await producer.connect()
  try {
    return await body(producer)
  } finally {
    await producer.disconnect()
  }
}

const withAdmin = async (kafka, body) => {
  const admin = kafka.admin({ retry: { retries: 2 } })
  await admin.connect()
  try {
    return await body(admin)
  } finally {
    await admin.disconnect()
  }
}

// Runs a consumer until `enough(records)` holds, and gives the records. `during` may act on it meanwhile.
const withConsumer = async (kafka, { topic, group, fromBeginning = true, settings = {} }, enough, during) => {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 300, maxWaitTimeInMs: 300, ...settings })
  const records = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
      const eachMessage = async ({ partition, message }) => {
        records.push(asJson(partition, message))
        if (during) await during(consumer, records)
        if (enough(records)) resolve()
      }
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
      if (during) Promise.resolve(during(consumer, records)).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return records
}

const asJson = (partition, { key, value, headers, timestamp, offset }) => ({
  partition,
  offset: Number(offset),
  timestamp: Number(timestamp),
  key: hex(key),
  value: hex(value),
  headers: Object.entries(headers).map(([name, some]) => [name, [].concat(some).map(hex)]),
})

// The type of Kafka's error, however deep kafkajs wrapped it.
const typeOf = (error) => {
  for (let each = error; each; each = each.cause) if (each.type) return each.type
  if (error.errors) return error.errors.map(typeOf).join(',')
  return error.name
}

const refusal = async (action) => {
  try {
    await action()
  } catch (error) {
    return typeOf(error)
  }
  return null
}

const until = async (condition) => {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 30))
}

module.exports = { COMPRESSION, bytes, connect, hex, refusal, say, until, withAdmin, withConsumer, withProducer }
