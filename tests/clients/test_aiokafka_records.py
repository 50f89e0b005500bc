"""aiokafka: what is sent is what is read, whatever its shape, its compression and the acknowledgement asked for."""

import asyncio
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import crc32c
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    InvalidRequiredAcksError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import ConsumerRecord
from confluent_kafka import Producer
from tests.support.aiokafka_client import CLOCK, consuming, producing, read, send, send_shapes, take
from tests.support.broker import Broker
from tests.support.record_shapes import COMPRESSIONS, KEEP, SHAPES, Shape

CREATE_TIME, APPEND_TIME = 0, 1


def assert_as_sent(records: Sequence[ConsumerRecord[Any, Any]], shapes: Iterable[Shape]) -> None:
    wanted = list(shapes)
    assert [record.offset for record in records] == list(range(len(wanted)))
    for record, shape in zip(records, wanted, strict=True):
        assert (record.key, record.value, tuple(record.headers)) == (shape.key, shape.value, shape.headers), shape.name
        assert record.timestamp_type == CREATE_TIME
        if shape.timestamp_ms is not None:
            assert record.timestamp == shape.timestamp_ms, shape.name


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_every_shape_comes_back_in_batches_of_its_own(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("shapes", config=KEEP)
    async with producing(broker, compression_type=None if compression == "none" else compression) as producer:
        await send_shapes(producer, topic, SHAPES, together=False)
    assert_as_sent(await read(broker, topic, len(SHAPES)), SHAPES)


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_every_shape_comes_back_from_a_batch_of_many(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("together", config=KEEP)
    together = [shape for shape in SHAPES if len(shape.value or b"") < 10_000]
    settings = {"compression_type": None if compression == "none" else compression, "max_batch_size": 900_000}
    async with producing(broker, **settings) as producer:
        await send_shapes(producer, topic, together, together=True)
    assert_as_sent(await read(broker, topic, len(together)), together)


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_what_librdkafka_wrote_is_read(broker: Broker, compression: str) -> None:
    topic = broker.create_topic("foreign", config=KEEP)
    told = {"bootstrap.servers": broker.bootstrap, "compression.type": compression, "linger.ms": 20}
    producer = Producer(told)
    timed = [shape for shape in SHAPES if shape.timestamp_ms != 0]  # librdkafka takes a zero for "now"
    for shape in timed:
        producer.produce(
            topic, shape.value, shape.key, 0, headers=list(shape.headers), timestamp=shape.timestamp_ms or 0
        )
    assert producer.flush(30) == 0
    assert_as_sent(await read(broker, topic, len(timed)), timed)


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_acks(broker: Broker, acks: int | str) -> None:
    topic = broker.create_topic("acks", 2)
    async with producing(broker, acks=acks) as producer:
        for partition in (0, 1):
            answers = await send(producer, topic, [b"%d" % number for number in range(50)], partition)
            if acks != 0:
                assert [answer.offset for answer in answers] == list(range(50))
                assert {(answer.topic, answer.partition) for answer in answers} == {(topic, partition)}
        # The connection on which nothing was answered answers the next request.
        assert await producer.partitions_for(topic) == {0, 1}
        await producer.client.force_metadata_update()
    records = await read(broker, topic, 100, partitions=2)
    for partition in (0, 1):
        values = [record.value for record in records if record.partition == partition]
        assert values == [b"%d" % number for number in range(50)]


async def test_create_time_is_the_producers(broker: Broker) -> None:
    topic = broker.create_topic("create", config=KEEP)
    async with producing(broker) as producer:
        answer = await producer.send_and_wait(topic, b"then", timestamp_ms=1_234_567_890_123)
    assert (answer.timestamp, answer.timestamp_type) == (1_234_567_890_123, CREATE_TIME)
    (record,) = await read(broker, topic, 1)
    assert (record.timestamp, record.timestamp_type) == (1_234_567_890_123, CREATE_TIME)


@pytest.mark.parametrize("compression", [None, "lz4"])
async def test_append_time_is_the_brokers(broker: Broker, compression: str | None) -> None:
    topic = broker.create_topic("append", config={**KEEP, "message.timestamp.type": "LogAppendTime"})
    before_ms = CLOCK.now_ms()
    async with producing(broker, compression_type=compression) as producer:
        futures = [await producer.send(topic, b"now", partition=0, timestamp_ms=1_000 + number) for number in range(3)]
        answers = await asyncio.gather(*futures)
    after_ms = CLOCK.now_ms()
    records = await read(broker, topic, 3)
    for answer, record in zip(answers, records, strict=True):
        assert answer.timestamp_type == record.timestamp_type == APPEND_TIME
        assert before_ms <= record.timestamp <= after_ms
        assert answer.timestamp == record.timestamp


async def test_an_acknowledged_record_is_visible_at_once(broker: Broker) -> None:
    topic = broker.create_topic("visible")
    async with producing(broker) as producer, consuming(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for number in range(20):
            await producer.send_and_wait(topic, b"%d" % number)
            assert await consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): number + 1}
            (record,) = await take(consumer, 1)
            assert record.value == b"%d" % number


async def test_keys_go_where_every_client_sends_them(broker: Broker) -> None:
    topic = broker.create_topic("hashed", 7)
    keys = [b"key-%d" % number for number in range(40)]
    foreign = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        foreign.produce(topic, b"foreign", key)
    assert foreign.flush(30) == 0
    async with producing(broker) as producer:
        await asyncio.gather(*[await producer.send(topic, b"own", key) for key in keys])
    homes: dict[bytes, set[int]] = {}
    for record in await read(broker, topic, 80, partitions=7):
        homes.setdefault(record.key, set()).add(record.partition)
    assert sorted(homes) == sorted(keys)
    assert {len(partitions) for partitions in homes.values()} == {1}


async def produce_raw(producer: AIOKafkaProducer, topic: str, batches: bytes, acks: int = -1) -> type[KafkaError]:
    """Send bytes as the records of one request; the class of the answer's error."""
    await producer.partitions_for(topic)
    leader = producer.client.cluster.leader_for_partition(TopicPartition(topic, 0))
    request = ProduceRequest(None, acks, 10_000, [(topic, [(0, batches)])])
    answer = await producer.client.send(leader, request)
    error: type[KafkaError] = for_code(answer.topics[0][1][0][1])
    return error


def raw_batch(producer: AIOKafkaProducer, *values: bytes) -> bytes:
    batch = producer.create_batch()
    for value in values:
        batch.append(timestamp=None, key=None, value=value)
    batch.close()
    return bytes(batch._build())


async def test_a_batch_whose_checksum_is_wrong_is_refused_and_the_next_is_taken(broker: Broker) -> None:
    topic = broker.create_topic("corrupt")
    async with producing(broker) as producer:
        good = raw_batch(producer, b"good")
        bad = good[:-3] + b"XYZ"
        assert await produce_raw(producer, topic, bad) is CorruptRecordException
        assert (await producer.send_and_wait(topic, b"after")).offset == 0
    assert [record.value for record in await read(broker, topic, 1)] == [b"after"]


async def test_a_batch_with_a_wrong_record_count_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("lying")
    async with producing(broker) as producer:
        lying = bytearray(raw_batch(producer, b"one"))
        struct.pack_into(">i", lying, 57, 5)  # the count of records
        struct.pack_into(">I", lying, 17, crc32c.crc32c(bytes(lying[21:])))
        assert (await produce_raw(producer, topic, bytes(lying))).errno != 0
        assert (await producer.send_and_wait(topic, b"after")).offset == 0


async def test_two_batches_for_one_partition_are_taken_whole_or_refused_whole(broker: Broker) -> None:
    topic = broker.create_topic("two")
    async with producing(broker) as producer:
        both = raw_batch(producer, b"a", b"b") + raw_batch(producer, b"c")
        error = await produce_raw(producer, topic, both)
        if broker.kind == "apache":  # a documented difference: it refuses, Holdfast takes all batches of a request
            assert error.errno != 0
            wanted = []
        else:
            assert error.errno == 0
            wanted = [b"a", b"b", b"c"]
        assert (await producer.send_and_wait(topic, b"after")).offset == len(wanted)
    assert [record.value for record in await read(broker, topic, len(wanted) + 1)] == [*wanted, b"after"]


async def test_acks_that_mean_nothing_are_refused(broker: Broker) -> None:
    topic = broker.create_topic("acks2")
    async with producing(broker) as producer:
        assert await produce_raw(producer, topic, raw_batch(producer, b"x"), acks=2) is InvalidRequiredAcksError
        assert (await producer.send_and_wait(topic, b"after")).offset == 0


async def test_an_oversized_message_is_refused_and_the_connection_survives(broker: Broker) -> None:
    topic = broker.create_topic("oversized", config={"max.message.bytes": "20000"})
    async with producing(broker) as producer:
        assert (await producer.send_and_wait(topic, b"small")).offset == 0
        (connection,) = [each for each in producer.client._conns.values() if each.connected()]
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 30_000)
        assert (await producer.send_and_wait(topic, b"y" * 15_000)).offset == 1
        assert connection.connected()
    assert [len(record.value) for record in await read(broker, topic, 2)] == [5, 15_000]


async def test_a_message_over_the_default_limit_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("huge")
    async with producing(broker, max_request_size=4_000_000) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 1_100_000)
        assert (await producer.send_and_wait(topic, b"after")).offset == 0


async def test_an_unknown_partition_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("known")
    async with producing(broker) as producer:
        await producer.partitions_for(topic)
        leader = producer.client.cluster.leader_for_partition(TopicPartition(topic, 0))
        records = raw_batch(producer, b"x")
        for strange, partition in ((topic, 7), (broker.unique("never-created"), 0)):
            request = ProduceRequest(None, -1, 10_000, [(strange, [(partition, records)])])
            answer = await producer.client.send(leader, request)
            assert for_code(answer.topics[0][1][0][1]) is UnknownTopicOrPartitionError


async def test_one_request_carries_many_topics_and_partitions(broker: Broker) -> None:
    topics = [broker.create_topic("many", 3), broker.create_topic("many", 3)]
    async with producing(broker, linger_ms=50) as producer:
        for topic in topics:
            await producer.partitions_for(topic)
        places = [(topic, partition) for topic in topics for partition in range(3)]
        futures = [
            await producer.send(topic, b"%d" % partition, partition=partition) for topic, partition in places * 4
        ]
        answers = await asyncio.gather(*futures)
    assert sorted((a.topic, a.partition, a.offset) for a in answers) == sorted(
        (topic, partition, offset) for topic, partition in places for offset in range(4)
    )


async def test_transactions_are_refused_at_once(broker: Broker) -> None:
    if broker.kind == "apache":
        pytest.skip("Apache Kafka has transactions")
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=broker.unique("transactions"))
    try:
        async with asyncio.timeout(10):
            with pytest.raises(KafkaError, match="InvalidRequestError"):
                await producer.start()
    finally:
        await producer.stop()
