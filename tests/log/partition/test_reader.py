"""Reading by offset and by time, from tail and segments, by the leader and by anybody."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.support.partitions import ORDERS, Owner, PartitionWorld, append, batch, records
from tests.support.waiting import async_until

from holdfast.contracts.store import Delete, Entry, Put, Scan
from holdfast.kafka.special_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.keys import index_entry_key, segment_entry_key
from holdfast.log.maintenance import delete_records
from holdfast.log.metadata import IndexRecord
from holdfast.log.model import ACKS_LEADER, PartitionConfig
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.retained_partition import RetainedPartition
from holdfast.log.partition.tail import Tail
from holdfast.log.published_log import PublishedLog
from holdfast.log.reader import LogReader, ReadablePartition, end_of_epoch
from holdfast.log.segment_list import load_segments
from holdfast.log.settings import LogSettings
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.errors import ClosedError, CorruptError, ExpiredError, InvalidError, UnavailableError
from holdfast.vocabulary.settings import MIB


@pytest.fixture
def reading(world: PartitionWorld) -> LogReader:
    return LogReader(world.objects, clock=world.clock, settings=world.settings)


async def filled(owner: Owner) -> LeadingPartition:
    """Offsets 0–3 in two segments, 4–5 in the tail; timestamps are out of order on purpose."""
    partition = await owner.open()
    await append(partition, batch("a", "b", at_ms=1_000))
    await owner.publisher.publish([partition])
    await append(partition, batch("c", at_ms=5_000))
    await append(partition, batch("d", at_ms=3_000))
    await owner.publisher.publish([partition])
    await append(partition, batch("e", at_ms=4_000))
    await append(partition, batch("f", at_ms=6_000))
    return partition


async def values(reading: LogReader, log: ReadablePartition, offset: int, bytes_max: int = 1 << 20) -> str:
    return "".join(value for _, value in records((await reading.fetch(log, offset, bytes_max=bytes_max)).batches))


async def consumed(reading: LogReader, log: ReadablePartition, *, bytes_max: int) -> list[tuple[int, str]]:
    """A consumer: fetch, go on behind the last record, until the high watermark."""
    found: list[tuple[int, str]] = []
    at = log.start_offset
    while at < log.high_watermark:
        fetched = records((await reading.fetch(log, at, bytes_max=bytes_max)).batches)
        found += [each for each in fetched if each[0] >= at]
        at = fetched[-1][0] + 1
    return found


@pytest.mark.parametrize("bytes_max", [1, 100, 250, 1 << 20])
async def test_a_consumer_reads_everything_once_and_in_order(
    world: PartitionWorld, reading: LogReader, bytes_max: int
) -> None:
    partition = await filled(await world.owner())
    assert await consumed(reading, partition, bytes_max=bytes_max) == list(enumerate("abcdef"))


async def test_a_fetch_goes_on_from_segments_into_the_tail(world: PartitionWorld, reading: LogReader) -> None:
    partition = await filled(await world.owner())
    assert await values(reading, partition, 1) == "abcdef"  # whole batches: it begins before the offset
    assert await values(reading, partition, 3) == "def"
    assert await values(reading, partition, 6) == ""


async def test_a_fetch_returns_at_least_one_batch_and_no_more_than_asked(
    world: PartitionWorld, reading: LogReader
) -> None:
    partition = await filled(await world.owner())
    assert await values(reading, partition, 2, bytes_max=1) == "c"
    one = (await reading.fetch(partition, 2, bytes_max=1)).size_bytes
    assert await values(reading, partition, 2, bytes_max=3 * one) == "cde"
    assert await values(reading, partition, 2, bytes_max=3 * one - 1) == "cd"


async def test_a_fetch_that_has_enough_does_not_read_another_segment(world: PartitionWorld) -> None:
    world.settings = LogSettings(fetch_enough_bytes=1)
    partition = await filled(await world.owner())
    reading = LogReader(world.objects, clock=world.clock, settings=world.settings)
    assert await values(reading, partition, 0) == "ab"
    assert await consumed(reading, partition, bytes_max=1 << 20) == list(enumerate("abcdef"))


@pytest.mark.parametrize("offset", [-1, 7, 1_000])
async def test_an_offset_out_of_range_says_which_range_there_is(
    world: PartitionWorld, reading: LogReader, offset: int
) -> None:
    partition = await filled(await world.owner())
    with pytest.raises(OffsetOutOfRangeError) as error:
        await reading.fetch(partition, offset, bytes_max=1)
    assert (error.value.offset, error.value.start, error.value.end) == (offset, 0, 6)


async def test_what_is_published_before_its_leader_had_the_answer_is_not_out_of_range_there(
    world: PartitionWorld, reading: LogReader
) -> None:
    owner = await world.owner()
    partition = await owner.open(partition_config=PartitionConfig(level="object"))
    appended = await append(partition, batch("a", "b"), acks=ACKS_LEADER)
    assert (appended.end_offset, partition.high_watermark) == (2, 0)
    assert (await reading.fetch(partition, 2, bytes_max=1 << 20)).batches == []
    assert reading.fetch_now(partition, 2, bytes_max=1 << 20) == ([], 0, 0, 0)
    with pytest.raises(OffsetOutOfRangeError):
        await reading.fetch(partition, 3, bytes_max=1)
    await append(partition, batch("c"), acks=ACKS_LEADER)
    polling = asyncio.ensure_future(reading.fetch(partition, 2, bytes_max=1 << 20, wait_ms=30_000))
    await async_until(lambda: partition._visible._waiters)
    await owner.publisher.publish([partition])
    assert records((await polling).batches) == [(2, "c")]


async def test_a_long_poll_is_woken_by_an_append_and_ends_by_itself(world: PartitionWorld, reading: LogReader) -> None:
    partition = await (await world.owner()).open()
    polling = asyncio.ensure_future(reading.fetch(partition, 0, bytes_max=1 << 20, wait_ms=30_000))
    await async_until(lambda: partition._visible._waiters)
    await append(partition, batch("a"))
    assert records((await polling).batches) == [(0, "a")]
    assert (await reading.fetch(partition, 1, bytes_max=1, wait_ms=20)).batches == []


async def test_a_long_poll_waits_for_as_many_bytes_as_it_asks_for(world: PartitionWorld, reading: LogReader) -> None:
    partition = await (await world.owner()).open()
    await append(partition, batch("a"))
    one = (await reading.fetch(partition, 0, bytes_max=1)).size_bytes
    fetching = reading.fetch(partition, 0, bytes_max=1 << 20, wait_ms=30_000, bytes_min=one + 1)
    polling = asyncio.ensure_future(fetching)
    await async_until(lambda: partition._visible._waiters)
    await append(partition, batch("b"))
    assert [value for _, value in records((await polling).batches)] == ["a", "b"]


async def test_a_long_poll_fails_when_the_partition_is_closed(world: PartitionWorld, reading: LogReader) -> None:
    partition = await (await world.owner()).open()
    polling = asyncio.ensure_future(reading.fetch(partition, 0, bytes_max=1, wait_ms=30_000))
    await async_until(lambda: partition._visible._waiters)
    partition.close(ClosedError("partition"))
    with pytest.raises(ClosedError):
        await polling


async def test_a_long_poll_fails_when_a_full_disk_takes_back_what_it_waits_for(
    world: PartitionWorld, reading: LogReader
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    polling = asyncio.ensure_future(reading.fetch(partition, 0, bytes_max=1, wait_ms=30_000))
    await async_until(lambda: partition._visible._waiters)
    ann.disk.full = True
    with pytest.raises(UnavailableError):
        await append(partition, batch("a"))
    with pytest.raises(UnavailableError):
        await polling


async def test_an_owner_whose_session_has_ended_does_not_answer_reads(
    world: PartitionWorld, reading: LogReader
) -> None:
    ann = await world.owner()
    partition = await filled(ann)
    ann.session.deadline_ms = 0
    with pytest.raises(ExpiredError):
        await reading.fetch(partition, 5, bytes_max=1)


async def test_anybody_reads_what_is_published_and_nothing_else(world: PartitionWorld, reading: LogReader) -> None:
    ann = await world.owner()
    partition = await filled(ann)
    log = await PublishedLog.open(ORDERS, store=world.store, clock=world.clock)
    assert (log.start_offset, log.high_watermark) == (0, 4)
    assert await consumed(reading, log, bytes_max=1) == list(enumerate("abcd"))
    polling = asyncio.ensure_future(reading.fetch(log, 4, bytes_max=1 << 20, wait_ms=30_000))
    await async_until(lambda: world.store._feed.watched)
    await ann.publisher.publish([partition])
    assert [value for _, value in records((await polling).batches)] == ["e", "f"]
    assert (await reading.fetch(log, 6, bytes_max=1, wait_ms=20)).batches == []


async def test_a_partition_that_was_never_opened_is_empty(world: PartitionWorld, reading: LogReader) -> None:
    log = await PublishedLog.open(ORDERS, store=world.store, clock=world.clock)
    assert (await reading.fetch(log, 0, bytes_max=1)).batches == []


async def test_the_first_record_at_a_time_is_exact_however_disordered_the_times_are(
    world: PartitionWorld, reading: LogReader
) -> None:
    partition = await filled(await world.owner())
    expected = {0: 0, 1_000: 0, 1_001: 2, 5_000: 2, 5_001: 5, 6_000: 5}
    found = {time_ms: await reading.offset_for_timestamp(partition, time_ms) for time_ms in expected}
    assert {time_ms: reached.offset if reached else None for time_ms, reached in found.items()} == expected
    assert await reading.offset_for_timestamp(partition, 6_001) is None


async def test_the_earliest_the_latest_and_the_greatest(world: PartitionWorld, reading: LogReader) -> None:
    partition = await filled(await world.owner())
    earliest = await reading.offset_for_timestamp(partition, EARLIEST)
    latest = await reading.offset_for_timestamp(partition, LATEST)
    greatest = await reading.offset_for_timestamp(partition, MAX_TIMESTAMP)
    assert [each and tuple(each) for each in (earliest, latest, greatest)] == [(0, -1), (6, -1), (5, 6_000)]
    log = await PublishedLog.open(ORDERS, store=world.store, clock=world.clock)
    published = await reading.offset_for_timestamp(log, MAX_TIMESTAMP)
    assert published is not None
    assert tuple(published) == (2, 5_000)


async def test_an_empty_partition_has_no_greatest_timestamp(world: PartitionWorld, reading: LogReader) -> None:
    partition = await (await world.owner()).open()
    assert await reading.offset_for_timestamp(partition, MAX_TIMESTAMP) is None


async def test_records_below_the_start_are_not_found_by_time(world: PartitionWorld, reading: LogReader) -> None:
    partition = await filled(await world.owner())
    async with partition.record_lock:
        await partition.change_record(msgspec.structs.replace(partition.record, start=3))
    reached = await reading.offset_for_timestamp(partition, 2_000)
    assert reached is not None
    assert reached.offset == 3
    with pytest.raises(OffsetOutOfRangeError):
        await reading.fetch(partition, 2, bytes_max=1)


async def test_where_an_epoch_ended(world: PartitionWorld, reading: LogReader) -> None:
    await filled(await world.owner())
    await world.owners[0].end()
    again = await (await world.owner()).open()
    await append(again, batch("g"))
    assert end_of_epoch(again, 1) == (1, 6)
    assert end_of_epoch(again, 2) == (2, 7)
    assert end_of_epoch(again, 3) == (-1, -1)
    assert await values(reading, again, 5) == "fg"


async def test_a_reader_steps_over_the_gap_of_an_unclean_takeover(world: PartitionWorld, reading: LogReader) -> None:
    ann = await world.owner("ann")
    await filled(ann)
    await ann.end()
    bob = await world.owner("bob")
    partition = await bob.open(partition_config=PartitionConfig(unclean_takeover=True))
    await append(partition, batch("z"))
    assert await values(reading, partition, 0) == "abcdz"
    assert await values(reading, partition, 50) == "z"
    await bob.publisher.publish([partition])
    assert await values(reading, partition, 50) == "z"


async def folded(world: PartitionWorld, partition: LeadingPartition) -> IndexRecord:
    """Move every segment key into an index object, as upkeep does."""
    entries = list(partition.segments.recent)
    index = IndexRecord(
        base_offset=0,
        end_offset=entries[-1].end_offset,
        object=f"indexes/{world.random.token()}",
        entries=2,
        size_bytes=1,
    )
    await world.objects.put(index.object, [msgspec.json.encode(entries)])
    partition_id = partition.partition_id
    await world.store.commit(
        apply=[
            Put(index_entry_key(partition_id.topic_id, partition_id.number, 0), msgspec.json.encode(index)),
            *(
                Delete(segment_entry_key(partition_id.topic_id, partition_id.number, each.base_offset))
                for each in entries
            ),
        ]
    )
    return index


async def test_older_segments_are_found_through_index_objects(world: PartitionWorld, reading: LogReader) -> None:
    partition = await filled(await world.owner())
    await folded(world, partition)
    partition.segments = await load_segments(world.store, ORDERS.topic_id, ORDERS.number)
    assert partition.segments.recent == []
    assert await consumed(reading, partition, bytes_max=1) == list(enumerate("abcdef"))
    reached = await reading.offset_for_timestamp(partition, 2_000)
    assert reached is not None
    assert reached.offset == 2


async def test_a_reader_whose_list_is_too_old_reads_it_again(world: PartitionWorld, reading: LogReader) -> None:
    """Segments move into an index, the index is written anew, and the old one is deleted: nothing is skipped."""
    partition = await filled(await world.owner())
    first = await folded(world, partition)
    log = await PublishedLog.open(ORDERS, store=world.store, clock=world.clock)
    await folded(world, partition)
    await world.objects.delete([first.object])
    assert await consumed(reading, log, bytes_max=1) == list(enumerate("abcd"))
    log = await PublishedLog.open(ORDERS, store=world.store, clock=world.clock)
    log.segments.indexes[0] = first
    log.segments._listed.clear()
    greatest = await reading.offset_for_timestamp(log, MAX_TIMESTAMP)
    assert greatest is not None
    assert greatest.offset == 2


async def test_a_segment_that_retention_removed_is_out_of_range_and_one_that_vanished_is_corrupt(
    world: PartitionWorld, reading: LogReader
) -> None:
    partition = await filled(await world.owner())
    log = await PublishedLog.open(ORDERS, store=world.store, clock=world.clock)
    gone = partition.segments.recent[0]
    await world.objects.delete([gone.object])
    with pytest.raises(CorruptError):
        await reading.fetch(log, 0, bytes_max=1)
    async with partition.record_lock:
        await partition.change_record(
            msgspec.structs.replace(partition.record, start=2),
            apply=[Delete(segment_entry_key(ORDERS.topic_id, ORDERS.number, 0))],
        )
    with pytest.raises(OffsetOutOfRangeError) as error:
        await reading.fetch(log, 0, bytes_max=1)
    assert error.value.start == 2
    assert await values(reading, log, 2) == "cd"


async def test_reads_of_segments_are_bounded_side_by_side(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await filled(ann)
    world.settings = LogSettings(segment_reads_max=2, segment_readers_max=1)
    now, most = 0, 0
    real_get = world.objects.get

    async def slow_get(key: str, *, start: int = 0, end: int | None = None) -> object:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await world.clock.sleep_ms(5)
        now -= 1
        return await real_get(key, start=start, end=end)

    world.objects.get = slow_get  # type: ignore[method-assign,assignment]
    reading = LogReader(world.objects, clock=world.clock, settings=world.settings)
    fetched: Sequence[str] = await asyncio.gather(*(values(reading, partition, 2 * (n % 2)) for n in range(10)))
    assert most == 2
    assert set(fetched) == {"abcdef", "cdef"}
    assert len(reading._readers) == 1


@pytest.mark.parametrize(
    ("ahead_bytes", "reads"), [(9 * MIB, [0, 1]), (450_000, [0, 1, 3, 5]), (1, [0, 1, 2, 3, 4, 5])], ids=str
)
async def test_who_reads_on_finds_it_read_ahead_and_who_jumps_about_does_not(
    world: PartitionWorld, ahead_bytes: int, reads: list[int]
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    for number in range(6):
        await append(partition, batch(str(number) * 200_000))  # a block each
    await ann.publisher.publish([partition])
    settings = replace(world.settings, read_ahead_bytes=ahead_bytes)
    reading = LogReader(world.objects, clock=world.clock, settings=settings)
    asked = []
    reader = reading._read_from

    async def read_from(segment: object, at: int, bytes_max: int) -> object:
        asked.append(at)
        return await reader(segment, at, bytes_max)  # type: ignore[arg-type]

    reading._read_from = read_from  # type: ignore[method-assign,assignment]
    for number in (3, 1):
        assert (await values(reading, partition, number, 1))[0] == str(number)
    assert asked == [3, 1]
    found = await consumed(reading, partition, bytes_max=1)
    assert [value[0] for _, value in found] == list("012345")
    assert asked == [3, 1, *reads]
    assert len(reading._ahead) == 0


async def several_segments(world: PartitionWorld) -> tuple[LeadingPartition, LogReader]:
    """Six segments, each of one batch; nothing of them is kept in RAM."""
    ann = await world.owner()
    partition = await ann.open()
    for number in range(6):
        await append(partition, batch(str(number) * 200_000))
        await ann.publisher.publish([partition])
    partition.tail.forget_until(6)
    return partition, LogReader(world.objects, clock=world.clock, settings=world.settings)


async def test_reading_ahead_goes_on_into_the_next_segments_without_waiting_for_this_one(world: PartitionWorld) -> None:
    partition, reading = await several_segments(world)
    real_get, gate = world.objects.get, asyncio.Event()
    asked: list[str] = []

    async def held_get(key: str, *, start: int = 0, end: int | None = None) -> object:
        if key not in asked:
            asked.append(key)
        if len(asked) > 1:
            await gate.wait()
        return await real_get(key, start=start, end=end)

    world.objects.get = held_get  # type: ignore[method-assign,assignment]
    assert (await values(reading, partition, 0, 1))[0] == "0"
    objects = [segment.object for segment in partition.segments.recent]
    await async_until(lambda: asked == objects[:3])  # two ahead, though neither has come
    gate.set()
    found = await consumed(reading, partition, bytes_max=1)
    assert [value[0] for _, value in found] == list("012345")
    assert asked == objects
    await reading.close()


async def test_what_was_read_ahead_of_a_segment_that_was_replaced_is_not_shown(world: PartitionWorld) -> None:
    partition, reading = await several_segments(world)
    assert (await values(reading, partition, 0, 1))[0] == "0"
    await asyncio.wait([guess.read for guess in reading._ahead._guesses.values()])
    old = partition.segments.recent[1]
    partition.segments.recent[1] = msgspec.structs.replace(partition.segments.recent[2], base_offset=1, end_offset=2)
    with pytest.raises(InvalidError):  # it was looked at: the segment that is listed now is another one's
        await values(reading, partition, 1, 1)
    partition.segments.recent[1] = old
    assert (await values(reading, partition, 1, 1))[0] == "1"
    await reading.close()


async def test_a_read_ahead_of_what_is_gone_by_then_is_read_again(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    for number in range(3):
        await append(partition, batch(str(number) * 200_000))
    await ann.publisher.publish([partition])
    reading = LogReader(world.objects, clock=world.clock, settings=world.settings)
    assert (await values(reading, partition, 0, 1))[0] == "0"
    (guess,) = reading._ahead._guesses.values()
    guess.read.cancel()
    assert (await values(reading, partition, 1, 1))[0] == "1"
    await reading.close()


async def test_what_goes_while_a_reader_looks_at_the_list_is_not_skipped_in_silence(
    world: PartitionWorld, reading: LogReader
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    for value in "abcd":
        await append(partition, batch(value))
        await ann.publisher.publish([partition])

    class Deletes(FaultyStore):
        """Half of the records go right after the first answer."""

        async def get(self, key: str) -> Entry | None:
            found = await super().get(key)
            await delete_records(partition, 2, ann.maintenance())
            return found

        async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
            found = await super().scan(start, end, limit=limit, reverse=reverse)
            await delete_records(partition, 2, ann.maintenance())
            return found

    log = await PublishedLog.open(ORDERS, store=Deletes(world.store, random=world.random), clock=world.clock)
    try:
        found = await values(reading, log, 0)
    except OffsetOutOfRangeError:
        return
    assert found == "abcd"  # they are kept for a while, for readers that know them


class Holds(FaultyStore):
    """Holds back the answer to one scan until it is let go."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.held: asyncio.Event | None = None

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        found = await super().scan(start, end, limit=limit, reverse=reverse)
        held, self.held = self.held, None
        if held is not None:
            await held.wait()
        return found


@pytest.mark.parametrize("kind", ["published", "retained"])
async def test_an_answer_of_the_store_that_comes_late_hides_nothing(
    world: PartitionWorld, reading: LogReader, kind: str
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    for value in ("a", "b"):
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    store = Holds(world.store, random=world.random)
    log: PublishedLog | RetainedPartition = await PublishedLog.open(ORDERS, store=store, clock=world.clock)
    if kind == "retained":
        log = RetainedPartition(
            ORDERS,
            epoch=1,
            high_watermark=2,
            record=partition.record,
            segments=partition.segments,
            tail=Tail(2),
            store=store,
            clock=world.clock,
        )
    store.held = let_go = asyncio.Event()
    late = asyncio.ensure_future(log.refresh())
    await async_until(lambda: store.held is None)
    await append(partition, batch("c"))
    await ann.publisher.publish([partition])
    await log.refresh()
    assert log.high_watermark == 3
    let_go.set()
    await late
    assert log.high_watermark == 3
    assert records((await reading.fetch(log, 2, bytes_max=1)).batches) == [(2, "c")]
