"""aiokafka: seeking, pausing, offsets by time, ends and beginnings, positions out of range, long polls, small bites."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndTimestamp
from tests.support.aiokafka_client import (
    CLOCK,
    READ_TIMEOUT_S,
    administering,
    consuming,
    producing,
    read,
    rest,
    send,
    take,
)
from tests.support.broker import Broker
from tests.support.record_shapes import KEEP


async def numbered(broker: Broker, name: str, count: int, partitions: int = 1) -> str:
    """A topic whose every partition holds the numbers below `count`."""
    topic = broker.create_topic(name, partitions)
    async with producing(broker) as producer:
        for partition in range(partitions):
            await send(producer, topic, [b"%d" % number for number in range(count)], partition)
    return topic


async def test_a_consumer_seeks_anywhere(broker: Broker) -> None:
    topic = await numbered(broker, "seek", 30)
    place = TopicPartition(topic, 0)
    async with consuming(broker) as consumer:
        consumer.assign([place])
        for offset in (17, 3, 29, 0):
            consumer.seek(place, offset)
            (record,) = await take(consumer, 1)
            assert (record.offset, record.value) == (offset, b"%d" % offset)
            assert await consumer.position(place) == offset + 1
        await consumer.seek_to_end(place)
        assert await consumer.position(place) == 30
        await consumer.seek_to_beginning(place)
        assert [record.offset for record in await rest(consumer)] == list(range(30))
        assert consumer.highwater(place) == 30


async def test_a_paused_partition_is_silent_until_it_is_resumed(broker: Broker) -> None:
    topic = await numbered(broker, "pause", 10, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with consuming(broker) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert {record.partition for record in await take(consumer, 10)} == {1}
        assert consumer.paused() == {first}
        consumer.resume(first)
        assert [record.offset for record in await take(consumer, 10)] == list(range(10))


async def test_beginnings_and_ends(broker: Broker) -> None:
    topic = await numbered(broker, "ends", 12, partitions=2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    async with consuming(broker) as consumer:
        assert await consumer.beginning_offsets(places) == dict.fromkeys(places, 0)
        assert await consumer.end_offsets(places) == dict.fromkeys(places, 12)
        async with administering(broker) as admin:
            assert await admin.delete_records({places[0]: RecordsToDelete(5)}) == {places[0]: 5}
        assert await consumer.beginning_offsets(places) == {places[0]: 5, places[1]: 0}


async def test_offsets_by_time(broker: Broker) -> None:
    topic = broker.create_topic("times", config=KEEP)
    place = TopicPartition(topic, 0)
    async with producing(broker) as producer:
        for at_ms in (1_000, 2_000, 2_000, 5_000):
            await producer.send_and_wait(topic, b"", timestamp_ms=at_ms)
        batch = producer.create_batch()  # a place in the midst of a batch is found too
        for at_ms in (6_000, 7_000, 8_000):
            batch.append(timestamp=at_ms, key=None, value=b"")
        await (await producer.send_batch(batch, topic, partition=0))
    wanted = {0: (0, 1_000), 1_000: (0, 1_000), 1_001: (1, 2_000), 2_000: (1, 2_000), 4_000: (3, 5_000)}
    wanted |= {5_001: (4, 6_000), 6_500: (5, 7_000), 8_000: (6, 8_000)}
    async with consuming(broker) as consumer:
        for asked_ms, found in wanted.items():
            assert await consumer.offsets_for_times({place: asked_ms}) == {place: OffsetAndTimestamp(*found)}
        assert await consumer.offsets_for_times({place: 8_001}) == {place: None}


async def test_an_unknown_topic_is_auto_created(broker: Broker) -> None:
    read_first, written_first = broker.unique("asked"), broker.unique("written")
    async with consuming(broker, read_first, group_id=broker.unique("asks"), metadata_max_age_ms=300) as consumer:
        async with producing(broker) as producer:
            assert (await producer.send_and_wait(written_first, b"made")).offset == 0
            await producer.send_and_wait(read_first, b"made")
        (record,) = await take(consumer, 1)
        assert (record.topic, record.offset, record.value) == (read_first, 0, b"made")


@pytest.mark.parametrize("offset", [31, 1_000_000])
async def test_a_position_out_of_range_is_an_error_where_no_reset_is_wanted(broker: Broker, offset: int) -> None:
    topic = await numbered(broker, "range", 30)
    place = TopicPartition(topic, 0)
    async with consuming(broker, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        consumer.seek(place, offset)
        with pytest.raises(OffsetOutOfRangeError) as refusal:
            await take(consumer, 1)
        assert refusal.value.args[0] == {place: offset}
        consumer.seek(place, 29)
        assert [record.offset for record in await take(consumer, 1)] == [29]


async def test_a_position_out_of_range_is_reset(broker: Broker) -> None:
    topic = await numbered(broker, "reset", 30)
    place = TopicPartition(topic, 0)
    async with administering(broker) as admin:
        await admin.delete_records({place: RecordsToDelete(10)})
    async with consuming(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        for offset in (3, 99):
            consumer.seek(place, offset)
            assert (await take(consumer, 1))[0].offset == 10
    async with consuming(broker, auto_offset_reset="latest") as consumer, producing(broker) as producer:
        consumer.assign([place])
        consumer.seek(place, 99)
        waiting = asyncio.create_task(take(consumer, 1))
        while await consumer.position(place) == 99:
            await CLOCK.sleep_ms(10)
        await producer.send_and_wait(topic, b"new")
        assert [(record.offset, record.value) for record in await waiting] == [(30, b"new")]


async def test_a_position_at_the_end_is_in_range(broker: Broker) -> None:
    topic = await numbered(broker, "tail", 5)
    place = TopicPartition(topic, 0)
    async with consuming(broker, auto_offset_reset="none", fetch_max_wait_ms=100) as consumer:
        consumer.assign([place])
        consumer.seek(place, 5)
        assert await consumer.getmany(timeout_ms=300) == {}


async def test_a_long_poll_is_woken_by_a_record(broker: Broker) -> None:
    topic = broker.create_topic("poll")
    patient = {"fetch_max_wait_ms": 200_000, "request_timeout_ms": 250_000}  # far longer than `take` waits
    async with producing(broker) as producer, consuming(broker, **patient) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await producer.send_and_wait(topic, b"first")
        await take(consumer, 1)  # the next fetch finds nothing and waits
        for number in range(5):
            waiting = asyncio.create_task(take(consumer, 1))
            await CLOCK.sleep_ms(100)
            await producer.send_and_wait(topic, b"%d" % number)
            assert [record.value for record in await waiting] == [b"%d" % number]


async def test_an_empty_long_poll_ends_in_time(broker: Broker) -> None:
    topic = await numbered(broker, "quiet", 1)
    async with consuming(broker, fetch_max_wait_ms=300) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await take(consumer, 1)
        asked = 0
        client, send_as_it_was = consumer._client, consumer._client.send

        async def counting(node: int, request: object, **more: object) -> object:
            nonlocal asked
            asked += type(request).__name__ == "FetchRequest"
            return await send_as_it_was(node, request, **more)

        client.send = counting
        began_ms = CLOCK.boot_ms()
        async with asyncio.timeout(READ_TIMEOUT_S):
            while asked < 4:  # it does not hang
                await consumer.getmany(timeout_ms=300)
        assert asked <= 2 + (CLOCK.boot_ms() - began_ms) // 300  # one each 300 ms: it does not spin either


async def test_min_bytes_are_waited_for(broker: Broker) -> None:
    topic = broker.create_topic("minimum")
    async with (
        producing(broker) as producer,
        consuming(broker, fetch_min_bytes=5_000, fetch_max_wait_ms=15_000) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        waiting = asyncio.create_task(consumer.getmany(timeout_ms=14_000))
        await producer.send_and_wait(topic, b"x" * 100)
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done
        await producer.send_and_wait(topic, b"y" * 6_000)
        async with asyncio.timeout(8):
            (records,) = (await waiting).values()
        assert [len(record.value) for record in records] == [100, 6_000]


async def test_a_slow_consumer_takes_small_bites_and_misses_nothing(broker: Broker) -> None:
    topic = broker.create_topic("bites", 3)
    async with producing(broker, max_batch_size=2_000) as producer:
        for partition in range(3):
            values = [b"%03d" % number + b"." * 300 for number in range(100)]
            await send(producer, topic, values, partition)
    small = {"max_partition_fetch_bytes": 500, "fetch_max_bytes": 700, "max_poll_records": 7}
    records = await read(broker, topic, 300, partitions=3, **small)
    for partition in range(3):
        values = [record.value[:3] for record in records if record.partition == partition]
        assert values == [b"%03d" % number for number in range(100)]


async def test_a_batch_larger_than_the_bite_still_comes(broker: Broker) -> None:
    topic = broker.create_topic("large")
    async with producing(broker) as producer:
        await producer.send_and_wait(topic, b"x" * 500_000)
        await producer.send_and_wait(topic, b"small")
    records = await read(broker, topic, 2, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000)
    assert [len(record.value) for record in records] == [500_000, 5]


async def test_many_partitions_share_one_fetch(broker: Broker) -> None:
    topic = await numbered(broker, "wide", 10, partitions=20)
    records = await read(broker, topic, 200, partitions=20)
    assert sorted((record.partition, record.offset) for record in records) == [
        (partition, offset) for partition in range(20) for offset in range(10)
    ]


async def test_a_topic_that_is_created_later_is_found_by_pattern(broker: Broker) -> None:
    stem = broker.unique("pattern")
    async with consuming(broker, group_id=broker.unique("pattern"), metadata_max_age_ms=300) as consumer:
        consumer.subscribe(pattern=f"^{stem}.*")
        topic = broker.create_topic(stem)
        async with producing(broker) as producer:
            await producer.send_and_wait(topic, b"found")
        (record,) = await take(consumer, 1)
        assert (record.topic, record.value) == (topic, b"found")
