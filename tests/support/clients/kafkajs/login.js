'use strict'
// Logs in as it is told, writes a record and reads it back: settings as JSON on the command line, the value on stdout.

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const main = async ({ bootstrap, topic, mechanism, user, password, token, ca, cert, key }) => {
  const settings = { clientId: 'holdfast-suite', brokers: [bootstrap], logLevel: logLevel.ERROR, retry: { retries: 20 } }
  if (ca) settings.ssl = { ca: [fs.readFileSync(ca)], cert: cert && fs.readFileSync(cert), key: key && fs.readFileSync(key) }
  if (mechanism === 'OAUTHBEARER') {
    settings.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  } else if (mechanism) {
    settings.sasl = { mechanism: mechanism.toLowerCase(), username: user, password }
  }
  const kafka = new Kafka(settings)
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'x' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const read = new Promise((resolve) => consumer.run({ eachMessage: async ({ message }) => resolve(message.value) }))
  process.stdout.write((await read).toString())
  await consumer.disconnect()
}

main(JSON.parse(process.argv[2])).catch((error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
