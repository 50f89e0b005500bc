'use strict'
// Scenarios of the admin client.

const { ConfigResourceTypes } = require('kafkajs')
const { refusal, say, until, withAdmin, withConsumer } = require('./client')

const topics = async (kafka, { topic }) =>
  withAdmin(kafka, async (admin) => {
    const told = { topics: [{ topic, numPartitions: 3, replicationFactor: 1 }], waitForLeaders: true }
    say('created', { created: await admin.createTopics(told) })
    say('again', { created: await admin.createTopics(told) })
    say('listed', { listed: (await admin.listTopics()).includes(topic) })
    const { topics: described } = await admin.fetchTopicMetadata({ topics: [topic] })
    say('described', { partitions: described[0].partitions.map((each) => [each.partitionId, each.leader]).sort() })
    say('fewer', { error: await refusal(() => admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] })) })
    await admin.deleteTopics({ topics: [topic] })
    await until(async () => !(await admin.listTopics()).includes(topic))
    say('deleted')
    const unknown = () => admin.deleteTopics({ topics: [`${topic}-unknown`], timeout: 1000 })
    say('unknown', { error: await refusal(unknown) })
  })

const partitions = async (kafka, { topic, count }) =>
  withAdmin(kafka, async (admin) => {
    say('more', { error: await refusal(() => admin.createPartitions({ topicPartitions: [{ topic, count }] })) })
  })

const wrong = async (kafka, { topics: some }) =>
  withAdmin(kafka, async (admin) => {
    for (const topic of some) {
      say('wrong', { topic: topic.topic, error: await refusal(() => admin.createTopics({ topics: [topic] })) })
    }
  })

const configs = async (kafka, { topic, changed }) =>
  withAdmin(kafka, async (admin) => {
    const type = ConfigResourceTypes.TOPIC
    const found = async () => {
      const { resources } = await admin.describeConfigs({ resources: [{ type, name: topic }], includeSynonyms: false })
      return Object.fromEntries(resources[0].configEntries.map((each) => [each.configName, each.configValue]))
    }
    say('before', { configs: await found() })
    const configEntries = Object.entries(changed).map(([name, value]) => ({ name, value }))
    await admin.alterConfigs({ resources: [{ type, name: topic, configEntries }] })
    await until(async () => {
      const now = await found()
      return Object.entries(changed).every(([name, value]) => now[name] === value)
    })
    say('after', { configs: await found() })
    const bad = { resources: [{ type, name: topic, configEntries: [{ name: 'retention.ms', value: 'soon' }] }] }
    say('bad', { error: await refusal(() => admin.alterConfigs(bad)) })
  })

const cluster = async (kafka) =>
  withAdmin(kafka, async (admin) => {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    say('cluster', { brokers, controller, clusterId })
  })

const trim = async (kafka, { topic, offset }) =>
  withAdmin(kafka, async (admin) => {
    const cut = (to) => admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: String(to) }] })
    await admin.fetchTopicOffsets(topic) // the client wants to have heard of the topic before
    await cut(offset)
    const [{ low, high }] = await admin.fetchTopicOffsets(topic)
    say('trimmed', { low: Number(low), high: Number(high) })
    say('beyond', { error: await refusal(() => cut(Number(high) + 1)) })
  })

const groups = async (kafka, { topic, group, count }) =>
  withAdmin(kafka, async (admin) => {
    await withConsumer(kafka, { topic, group }, (records) => records.length >= count, async (consumer, records) => {
      if (records.length !== count) return
      await consumer.commitOffsets([{ topic, partition: 0, offset: String(count) }])
      const { groups: described } = await admin.describeGroups([group])
      const [{ errorCode, state, protocolType, protocol, members }] = described
      say('described', { errorCode, state, protocolType, protocol, members: members.map(({ clientId }) => clientId) })
      say('busy', { error: await refusal(() => admin.deleteGroups([group])) })
    })
    const { groups: listed } = await admin.listGroups()
    say('listed', { found: listed.find(({ groupId }) => groupId === group) })
    const [committed] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    say('committed', { offset: Number(committed.partitions[0].offset) })
    const [{ errorCode }] = await admin.deleteGroups([group])
    say('deleted', { errorCode, left: (await admin.listGroups()).groups.filter(({ groupId }) => groupId === group) })
    say('unknown', { error: await refusal(() => admin.deleteGroups([`${group}-unknown`])) })
  })

// Offsets moved from outside. The client joins the group for it and waits out an empty fetch of five seconds each time.
const moved = async (kafka, { topic, group }) =>
  withAdmin(kafka, async (admin) => {
    const now = async (resolveOffsets) => {
      const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic], resolveOffsets })
      return Number(found.partitions[0].offset)
    }
    await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '1' }] })
    say('set', { offset: await now(false) })
    await admin.resetOffsets({ groupId: group, topic, earliest: true })
    say('reset', { offset: await now(true) })
  })

module.exports = { topics, partitions, wrong, configs, cluster, trim, groups, moved }
