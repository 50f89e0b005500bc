"""aiokafka: topics, settings, records and groups through its admin client, with the error that each mistake deserves."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.structs import OffsetAndMetadata
from tests.support.aiokafka_client import CLOCK, administering, consuming, producing, read, send, take
from tests.support.broker import Broker


async def test_topics_are_created_listed_described_and_deleted(broker: Broker) -> None:
    topic = broker.unique("made")
    async with administering(broker) as admin:
        answer = await admin.create_topics([NewTopic(topic, 3, 1)])
        assert [each[:2] for each in answer.topic_errors] == [(topic, 0)]
        async with asyncio.timeout(10):
            while topic not in await admin.list_topics():
                await CLOCK.sleep_ms(20)
        (described,) = await admin.describe_topics([topic])
        assert (described["topic"], described["error_code"], described["is_internal"]) == (topic, 0, False)
        assert sorted(each["partition"] for each in described["partitions"]) == [0, 1, 2]
        answer = await admin.delete_topics([topic])
        assert [tuple(each)[:2] for each in answer.topic_error_codes] == [(topic, 0)]
        async with asyncio.timeout(10):
            while topic in await admin.list_topics():
                await CLOCK.sleep_ms(20)


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "error"),
    [
        ("none", 0, 1, InvalidPartitionsError),
        ("minus", -5, 1, InvalidPartitionsError),
        ("copies", 1, 99, InvalidReplicationFactorError),
        ("zero", 1, 0, InvalidReplicationFactorError),
        ("a name/with#what is forbidden", 1, 1, InvalidTopicError),
        ("n" * 250, 1, 1, InvalidTopicError),
        ("..", 1, 1, InvalidTopicError),
    ],
    ids=["no-partitions", "negative-partitions", "too-many-replicas", "no-replicas", "characters", "long", "dots"],
)
async def test_a_wrong_topic_is_refused(
    broker: Broker, name: str, partitions: int, replicas: int, error: type[Exception]
) -> None:
    async with administering(broker) as admin:
        answer = await admin.create_topics([NewTopic(name, partitions, replicas)])
        assert for_code(answer.topic_errors[0][1]) is error


async def test_a_topic_is_created_once(broker: Broker) -> None:
    topic = broker.create_topic("once")
    async with administering(broker) as admin:
        answer = await admin.create_topics([NewTopic(topic, 1, 1), NewTopic(broker.unique("twice"), 1, 1)])
        assert sorted(for_code(each[1]).__name__ for each in answer.topic_errors) == [
            "NoError",
            "TopicAlreadyExistsError",
        ]
        assert TopicAlreadyExistsError.errno == 36


async def test_a_topic_is_only_tried(broker: Broker) -> None:
    topic = broker.unique("tried")
    async with administering(broker) as admin:
        answer = await admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)
        assert answer.topic_errors[0][1] == 0
        assert topic not in await admin.list_topics()


async def test_an_unknown_topic_cannot_be_deleted_or_described(broker: Broker) -> None:
    topic = broker.unique("unknown")
    async with administering(broker) as admin:
        answer = await admin.delete_topics([topic])
        assert for_code(answer.topic_error_codes[0][1]) is UnknownTopicOrPartitionError


async def test_a_topic_created_again_starts_empty(broker: Broker) -> None:
    topic = broker.create_topic("again")
    async with administering(broker) as admin, producing(broker) as producer:
        await send(producer, topic, [b"old"] * 3)
        await admin.delete_topics([topic])
        async with asyncio.timeout(15):
            while (await admin.create_topics([NewTopic(topic, 1, 1)])).topic_errors[0][1]:
                await CLOCK.sleep_ms(100)
    async with producing(broker) as producer:
        assert (await producer.send_and_wait(topic, b"new")).offset == 0
    assert [record.value for record in await read(broker, topic, 1)] == [b"new"]


async def test_partitions_are_added_and_never_removed(broker: Broker) -> None:
    topic = broker.create_topic("grown", 2)
    async with administering(broker) as admin:
        for refused in (1, 2):
            with pytest.raises(InvalidPartitionsError):
                await admin.create_partitions({topic: NewPartitions(refused)})
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.create_partitions({broker.unique("unknown"): NewPartitions(4)})
        await admin.create_partitions({topic: NewPartitions(4)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 4


async def configured(broker: Broker, topic: str, *names: str) -> dict[str, str]:
    async with administering(broker) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict.fromkeys(names, ""))
        (answer,) = await admin.describe_configs([resource])
        ((error, _, _, name, entries),) = answer.resources
        assert (error, name) == (0, topic)
        return {entry[0]: entry[1] for entry in entries}


async def test_settings_of_a_topic_are_described_and_altered(broker: Broker) -> None:
    topic = broker.create_topic("settings", config={"retention.ms": "86400000"})
    wanted = ("retention.ms", "cleanup.policy", "max.message.bytes")
    assert (await configured(broker, topic, *wanted))["retention.ms"] == "86400000"
    async with administering(broker) as admin:
        changed = {"retention.ms": "3600000", "max.message.bytes": "50000"}
        (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changed)])
        assert [each[0] for each in answer.resources] == [0]
    async with asyncio.timeout(10):
        while (found := await configured(broker, topic, *wanted))["retention.ms"] != "3600000":
            await CLOCK.sleep_ms(50)
    assert found == {"retention.ms": "3600000", "cleanup.policy": "delete", "max.message.bytes": "50000"}
    every = await configured(broker, topic)
    assert every.keys() >= {*wanted, "retention.bytes", "segment.bytes", "message.timestamp.type", "compression.type"}


async def test_a_wrong_setting_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("wrong")
    async with administering(broker) as admin:
        for wrong in ({"retention.ms": "soon"}, {"no.such.setting": "1"}):
            (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, wrong)])
            assert answer.resources[0][0] == 40, wrong  # INVALID_CONFIG
        unknown = ConfigResource(ConfigResourceType.TOPIC, broker.unique("unknown"), {"retention.ms": "1"})
        (answer,) = await admin.alter_configs([unknown])
        assert for_code(answer.resources[0][0]) is UnknownTopicOrPartitionError


async def test_settings_of_the_broker_are_described(broker: Broker) -> None:
    async with administering(broker) as admin:
        cluster = await admin.describe_cluster()
        node = cluster["brokers"][0]["node_id"]
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(node))])
        ((error, _, _, name, entries),) = answer.resources
        assert (error, name) == (0, str(node))
        assert entries


async def test_the_cluster_is_described(broker: Broker) -> None:
    async with administering(broker) as admin:
        cluster = await admin.describe_cluster()
        host, _, port = broker.bootstrap.rpartition(":")
        assert [(each["host"], each["port"]) for each in cluster["brokers"]] == [(host, int(port))]
        assert cluster["controller_id"] == cluster["brokers"][0]["node_id"]
        assert cluster["cluster_id"]


async def test_deleted_records_are_gone_and_the_rest_stays(broker: Broker) -> None:
    topic = broker.create_topic("trimmed", 2)
    async with producing(broker) as producer, administering(broker) as admin:
        for partition in (0, 1):
            await send(producer, topic, [b"%d" % number for number in range(10)], partition)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        assert await admin.delete_records({first: RecordsToDelete(4), second: RecordsToDelete(-1)}) == {
            first: 4,
            second: 10,
        }
        assert await admin.delete_records({first: RecordsToDelete(2)}) == {first: 4}  # it never moves back
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({first: RecordsToDelete(11)})
    records = await read(broker, topic, 6, partitions=2)
    assert [(record.partition, record.offset) for record in records] == [(0, offset) for offset in range(4, 10)]


async def test_groups_are_listed_and_described_with_their_offsets(broker: Broker) -> None:
    topic, group = broker.create_topic("grouped", 2), broker.unique("group")
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    async with producing(broker) as producer:
        await send(producer, topic, [b"a", b"b"])
    async with administering(broker) as admin:
        async with consuming(broker, topic, group_id=group, client_id="a-client") as consumer:
            await take(consumer, 2)
            await consumer.commit({places[0]: (2, "how it was")})
            (answer,) = await admin.describe_consumer_groups([group])
            ((error, name, state, kind, protocol, found, *_),) = answer.groups
            assert (error, name, state, kind, protocol) == (0, group, "Stable", "consumer", "roundrobin")
            assert len(found) == 1
            assert "a-client" in found[0]
            assert (group, "consumer") in [tuple(each)[:2] for each in await admin.list_consumer_groups()]
        offsets = await admin.list_consumer_group_offsets(group)
        assert offsets == {places[0]: OffsetAndMetadata(2, "how it was")}
        asked = await admin.list_consumer_group_offsets(group, partitions=places)
        assert asked == {places[0]: OffsetAndMetadata(2, "how it was"), places[1]: OffsetAndMetadata(-1, "")}
        (answer,) = await admin.describe_consumer_groups([group])
        assert answer.groups[0][2] == "Empty"


async def test_a_group_that_never_was_is_dead(broker: Broker) -> None:
    group = broker.unique("never")
    async with administering(broker) as admin:
        (answer,) = await admin.describe_consumer_groups([group])
        assert answer.groups[0][1:3] == (group, "Dead")
        assert await admin.list_consumer_group_offsets(group) == {}
