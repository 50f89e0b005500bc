"""Consumer against a real broker: groups, commits, rebalances, positions, and reading without a group."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from tests.support.broker import Broker
from tests.support.server_process import produce
from tests.support.waiting import async_until

from holdfast.client import (
    Consumer,
    ConsumerSettings,
    DeserializationError,
    Producer,
    ProducerRecord,
    Record,
    TopicPartition,
)
from holdfast.vocabulary.errors import ClosedError, ExpiredError, InvalidError, UsageError

EXPLICIT = ConsumerSettings(auto_commit_interval_ms=0, fetch_wait_ms=20)
AUTO = ConsumerSettings(auto_commit_interval_ms=1, fetch_wait_ms=20)


def filled(broker: Broker, name: str, count: int = 10, partitions: int = 1) -> str:
    topic = broker.create_topic(name, partitions)
    for number in range(partitions):
        produce(broker.bootstrap, topic, *(str(each) for each in range(count)), partition=number)
    return topic


async def read_some(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += await consumer.fetch(count - len(found))
    return found


async def test_a_group_goes_on_after_what_was_committed(broker: Broker) -> None:
    topic, group = filled(broker, "explicit"), broker.unique("billing")
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, topic, group_id=group, settings=EXPLICIT) as consumer:
        await read_some(consumer, 4)
        await consumer.commit()
        await read_some(consumer, 3)
        assert await consumer.committed() == {place: 4}
        assert consumer.position(place) == 7
    async with Consumer(broker.bootstrap, topic, group_id=group, settings=EXPLICIT) as consumer:
        assert (await read_some(consumer, 1))[0].offset == 4
        await consumer.commit({place: 9})
        assert await consumer.committed(place) == {place: 9}


async def test_automatic_commits_never_commit_the_record_that_is_being_processed(broker: Broker) -> None:
    topic, group = filled(broker, "automatic"), broker.unique("billing")
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, topic, group_id=group, settings=AUTO) as consumer:
        seen = 0
        async for record in consumer:
            seen = record.offset
            found = await consumer.committed(place)
            assert (found[place] or 0) <= record.offset
            if seen == 5:
                break
    async with Consumer(broker.bootstrap, topic, group_id=group, settings=AUTO) as consumer:
        assert (await anext(consumer)).offset == 5  # it was not known to be processed


async def test_a_fetch_that_was_cancelled_has_lost_nothing(broker: Broker) -> None:
    topic = broker.create_topic("cancelled")
    async with Consumer(broker.bootstrap, topic, value_deserializer="str") as consumer:
        found: list[str] = []
        for number in range(5):
            waiting = asyncio.create_task(consumer.fetch())
            await asyncio.sleep(0)  # noqa: TID251 (it begins)
            produce(broker.bootstrap, topic, str(number))
            waiting.cancel()
            done, _ = await asyncio.wait([waiting])
            found += [record.value for each in done if not each.cancelled() for record in each.result()]
        found += [record.value for record in await read_some(consumer, 5 - len(found))]
        assert found == list("01234")


async def test_a_second_member_gets_half_of_the_partitions_and_nothing_is_lost_or_read_twice(broker: Broker) -> None:
    topic, group = filled(broker, "rebalanced", 20, 4), broker.unique("billing")
    settings = ConsumerSettings(auto_commit_interval_ms=60_000, fetch_wait_ms=20)
    revoked: list[TopicPartition] = []
    read: list[tuple[int, int]] = []

    async def on_revoked(partitions: Sequence[TopicPartition]) -> None:
        revoked.extend(partitions)

    async def work(consumer: Consumer) -> None:
        for record in await consumer.fetch(3, timeout_ms=20):
            read.append((record.partition, record.offset))

    first = Consumer(broker.bootstrap, topic, group_id=group, settings=settings, on_revoked=on_revoked)
    second = Consumer(broker.bootstrap, topic, group_id=group, settings=settings)
    async with first:
        while not read:
            await work(first)
        async with second:
            await async_until(lambda: _both(first, second, work), what="both have partitions")
            assert set(revoked) == set(second.assignment)
            assert len(first.assignment) == len(second.assignment) == 2
            while len(read) < 80:
                await work(first)
                await work(second)
    assert sorted(read) == [(partition, offset) for partition in range(4) for offset in range(20)]


async def _both(first: Consumer, second: Consumer, work: object) -> bool:
    await asyncio.gather(work(first), work(second))  # type: ignore[operator]
    return len(first.assignment) == 2 and len(second.assignment) == 2


async def test_records_of_a_partition_that_was_taken_away_cannot_be_committed(broker: Broker) -> None:
    topic, group = filled(broker, "taken", 5, 2), broker.unique("billing")
    async with Consumer(broker.bootstrap, topic, group_id=group, settings=EXPLICIT) as first:
        await read_some(first, 10)
        async with Consumer(broker.bootstrap, topic, group_id=group, settings=EXPLICIT) as second:

            async def shared() -> bool:
                await asyncio.gather(first.fetch(timeout_ms=20), second.fetch(timeout_ms=20))
                return len(first.assignment) == 1 and len(second.assignment) == 1

            await async_until(shared, what="both have a partition")
            with pytest.raises(ExpiredError, match="was rebalanced before the records were committed"):
                await first.commit()
            (kept,) = first.assignment
            assert await first.committed(kept) == {kept: 5}
            await first.commit()  # said once


async def test_seek_pause_resume_and_lag(broker: Broker) -> None:
    topic = filled(broker, "moved", 10, 2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(broker.bootstrap, partitions=[one, two], settings=EXPLICIT) as consumer:
        await consumer.pause(one)
        assert {each.partition for each in await read_some(consumer, 10)} == {1}
        assert await consumer.lag() == {one: 10, two: 0}
        await consumer.resume()
        assert [each.offset for each in await read_some(consumer, 3)] == [0, 1, 2]
        await consumer.seek(one, 8)
        assert [each.offset for each in await read_some(consumer, 2)] == [8, 9]
        await consumer.seek(one, "earliest")
        assert (await anext(consumer)).offset == 0
        await consumer.seek(one, "latest")
        assert await consumer.fetch(timeout_ms=50) == []
        with pytest.raises(UsageError, match="is not assigned to this consumer"):
            await consumer.seek(TopicPartition(topic, 7), 0)
        await consumer.seek(one, 0)
        await anext(consumer)
        with pytest.raises(UsageError, match="has no group: give it a group_id"):
            await consumer.commit()
    with pytest.raises(ClosedError, match="consumer is closed"):
        await consumer.fetch()


async def test_reading_without_a_group_begins_at_an_offset_or_a_time(broker: Broker) -> None:
    topic = broker.create_topic("by-time")
    async with Producer(broker.bootstrap) as producer:
        for second in range(5):
            await producer.send(topic, b"%d" % second, timestamp_ms=1_700_000_000_000 + second * 1_000)
    at = datetime.fromtimestamp(1_700_000_003, tz=UTC)
    for start, first in ((at, 3), (2, 2), ("@1700000001000", 1), ("earliest", 0)):
        async with Consumer(broker.bootstrap, topic, start=start) as consumer:
            assert (await anext(consumer)).offset == first
    with pytest.raises(InvalidError, match="does not exist at"):
        async with Consumer(broker.bootstrap, broker.unique("missing")):
            pass


async def test_a_record_that_cannot_be_read_is_named_and_stays_until_it_is_passed(broker: Broker) -> None:
    topic = broker.create_topic("unreadable")
    async with Producer(broker.bootstrap) as producer:
        await producer.send_many(topic, [ProducerRecord(value) for value in (b"1", b"{", b"3")])
    place = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, topic, value_deserializer="json") as consumer:
        assert (await anext(consumer)).value == 1
        for _ in range(2):
            with pytest.raises(DeserializationError, match=r"cannot deserialize the value of .* at offset 1") as failed:
                await anext(consumer)
        await consumer.seek(place, failed.value.offset + 1)
        assert (await anext(consumer)).value == 3
