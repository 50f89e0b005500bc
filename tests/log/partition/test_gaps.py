"""Offsets that no record has, at the end of a log or inside it, can be read over (docs/safety.md, rule 22)."""

import pytest
from tests.support.partitions import ORDERS, Owner, PartitionWorld, append, batch, records

from holdfast.kafka.special_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from holdfast.log.batches import Buffer, RecordBatchLimits, parse_header, split_batches
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.maintenance import apply_retention, compact
from holdfast.log.maintenance.retention import delete_records
from holdfast.log.model import CleanupPolicy, PartitionConfig
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.published_log import PublishedLog
from holdfast.log.reader import LogReader, ReadablePartition, end_of_epoch
from holdfast.log.settings import LogSettings

UNCLEAN = PartitionConfig(unclean_takeover=True)


@pytest.fixture
def reading(world: PartitionWorld) -> LogReader:
    return LogReader(world.objects, clock=world.clock, settings=world.settings)


async def read_to_end(reading: LogReader, log: ReadablePartition, at: int = 0, *, bytes_max: int = 1 << 20) -> str:
    """What a Kafka client reads: it goes on behind the last batch, with records or without, until the high watermark."""
    found = ""
    for _ in range(100):
        if at >= log.high_watermark:
            return found
        fetched = (await reading.fetch(log, at, bytes_max=bytes_max)).batches
        assert fetched, f"a reader at {at} waits for ever: the log ends at {log.high_watermark}"
        found += "".join(value for offset, value in records(fetched) if offset >= at)
        at = _end(fetched[-1])
    raise AssertionError("no progress")


async def taken_over(world: PartitionWorld) -> tuple[Owner, LeadingPartition]:
    """Offsets 0 and 1 are published, 2 to 99 were reserved by an agent that is gone."""
    ann = await world.owner("ann")
    partition = await ann.open()
    await append(partition, batch("a", "b"))
    await ann.publisher.publish([partition])
    await append(partition, batch("left out"))
    await ann.end()
    bob = await world.owner("bob")
    return bob, await bob.open(partition_config=UNCLEAN)


async def test_a_reader_reaches_the_end_after_an_unclean_takeover(world: PartitionWorld, reading: LogReader) -> None:
    bob, partition = await taken_over(world)
    assert partition.high_watermark == 100
    assert await read_to_end(reading, partition) == "ab"
    await append(partition, batch("c"))
    assert await read_to_end(reading, partition) == "abc"
    await bob.publisher.publish([partition])
    assert await read_to_end(reading, partition) == "abc"


async def test_anybody_reads_over_a_gap_at_the_end_of_what_is_published(
    world: PartitionWorld, reading: LogReader
) -> None:
    await taken_over(world)
    log = await PublishedLog.open(ORDERS, store=world.store, clock=world.clock)
    assert await read_to_end(reading, log) == "ab"


async def test_a_log_without_any_record_is_read_over(world: PartitionWorld, reading: LogReader) -> None:
    """At `object` level what was reserved and never acknowledged is skipped by any takeover."""
    level = PartitionConfig(level="object")
    ann = await world.owner("ann")
    partition = await ann.open(partition_config=level)
    await partition.reserve(1)
    await ann.end()
    bobs = await (await world.owner("bob")).open(partition_config=level)
    assert (bobs.start_offset, bobs.high_watermark) == (0, 100)
    assert await read_to_end(reading, bobs) == ""


@pytest.mark.parametrize("bytes_max", [1, 62, 1 << 20])
async def test_a_gap_wider_than_a_batch_can_cover_takes_several(world: PartitionWorld, bytes_max: int) -> None:
    world.settings = LogSettings(reserve_offsets=5 << 31)
    reading = LogReader(world.objects, clock=world.clock, settings=world.settings)
    _, partition = await taken_over(world)
    assert partition.high_watermark == 5 << 31
    assert await read_to_end(reading, partition, bytes_max=bytes_max) == "ab"


async def test_what_covers_a_gap_is_a_valid_batch_of_the_epoch_that_left_it(
    world: PartitionWorld, reading: LogReader
) -> None:
    _, partition = await taken_over(world)
    (cover,) = (await reading.fetch(partition, 2, bytes_max=1 << 20)).batches
    (found,) = split_batches(cover, limits=RecordBatchLimits(), stored=True)
    header = found.header
    assert (header.base_offset, header.last_offset, header.count) == (2, partition.high_watermark - 1, 0)
    assert (header.producer_id, header.max_timestamp) == (-1, -1)
    # A client compares the epoch of what it read last with where that epoch ended: it must not think it was truncated.
    assert end_of_epoch(partition, header.leader_epoch) == (header.leader_epoch, partition.high_watermark)


async def test_a_gap_holds_no_times(world: PartitionWorld, reading: LogReader) -> None:
    _, partition = await taken_over(world)
    assert await reading.offset_for_timestamp(partition, 1_000) == (0, 1_000)
    assert await reading.offset_for_timestamp(partition, 1_001) is None
    assert await reading.offset_for_timestamp(partition, MAX_TIMESTAMP) == (0, 1_000)
    assert await reading.offset_for_timestamp(partition, EARLIEST) == (0, -1)
    assert await reading.offset_for_timestamp(partition, LATEST) == (partition.high_watermark, -1)


async def test_a_reader_that_has_no_room_left_gets_nothing(world: PartitionWorld, reading: LogReader) -> None:
    _, partition = await taken_over(world)
    assert (await reading.fetch(partition, 2, bytes_max=0)).batches == []


async def test_a_gap_is_read_over_after_retention_and_deletion_ended_in_it(
    world: PartitionWorld, reading: LogReader
) -> None:
    bob, partition = await taken_over(world)
    context = bob.maintenance()
    assert await apply_retention(partition, CleanupPolicy(retention_ms=1), context) == 2
    assert await read_to_end(reading, partition, 2) == ""
    assert await delete_records(partition, 50, context) == 50
    assert await read_to_end(reading, partition, 50) == ""
    with pytest.raises(OffsetOutOfRangeError):
        await reading.fetch(partition, 49, bytes_max=1)
    await append(partition, batch("c"))
    await bob.publisher.publish([partition])
    assert await read_to_end(reading, partition, 50) == "c"


async def test_a_gap_is_read_over_after_compaction_joined_what_is_around_it(
    world: PartitionWorld, reading: LogReader
) -> None:
    bob, partition = await taken_over(world)
    await append(partition, batch("c"))
    await bob.publisher.publish([partition])
    done = await compact(partition, CleanupPolicy(compact=True, min_dirty_ratio=0), bob.maintenance())
    assert done.written == 1
    for at in (0, 2, 50, 100):
        assert await read_to_end(reading, partition, at) == ("abc" if at == 0 else "c")


def _end(data: Buffer) -> int:
    return parse_header(data).last_offset + 1
