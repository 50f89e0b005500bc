"""A tail is recovered whole or not at all: what lies behind a hole is never skipped silently (docs/safety.md, rules 8 and 24)."""

import pytest
from tests.support.partitions import (
    OTHER,
    PartitionWorld,
    append,
    batch,
    published,
    records,
    stored,
    with_hole,
    write_at,
)

from holdfast.log.maintenance.retention import delete_records
from holdfast.log.model import PartitionConfig
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.reader import LogReader
from holdfast.vocabulary.errors import CorruptError

UNCLEAN = PartitionConfig(unclean_takeover=True)


def tail_of(partition: LeadingPartition) -> list[tuple[int, str]]:
    return records(partition.read_tail(0, bytes_max=1 << 20) or [])


async def test_a_frame_behind_a_hole_keeps_its_partition_offline_and_no_other(world: PartitionWorld) -> None:
    ann = await with_hole(world)
    with pytest.raises(CorruptError) as error:
        await ann.open()
    assert "000000000001.wal" in str(error.value)
    assert "offsets 1 to 4" in str(error.value)
    assert "unclean_takeover" in str(error.value)
    other = await ann.open(OTHER)
    assert tail_of(other) == [(0, "whole")]
    assert (await append(other, batch("goes on"))).base_offset == 1
    assert (await stored(world)).reserved == 100  # nothing was handed out again


async def test_with_unclean_takeover_it_goes_on_at_the_ceiling_and_keeps_what_precedes_the_hole(
    world: PartitionWorld,
) -> None:
    ann = await with_hole(world)
    partition = await ann.open(partition_config=UNCLEAN)
    assert tail_of(partition) == [(0, "a")]
    assert partition.next_offset == 100
    (gap,) = (await stored(world)).gaps
    assert (gap.start, gap.end, gap.wal) == (1, 100, ann.wal_id)
    reading = LogReader(world.objects, clock=world.clock, settings=world.settings)
    assert (await reading.fetch(partition, 1, bytes_max=1 << 20)).size_bytes > 0  # readers come over it
    # A second life before anything is published finds the same.
    await append(partition, batch("b"))
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()
    assert tail_of(partition) == [(0, "a"), (100, "b")]
    await ann.publisher.publish([partition])
    assert await published(world) == [(0, "a"), (100, "b")]
    await ann.hand_back(partition)
    assert (await stored(world)).clean


async def test_a_second_life_without_new_records_does_not_fall_back_below_the_ceiling(world: PartitionWorld) -> None:
    ann = await with_hole(world)
    await ann.open(partition_config=UNCLEAN)
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()
    assert (partition.next_offset, tail_of(partition)) == (100, [(0, "a")])


async def test_frames_are_recovered_in_the_order_of_their_offsets_and_once(world: PartitionWorld) -> None:
    """Copies of frames stand behind later ones, and a crash may leave both."""
    ann = await world.owner()
    partition = await ann.open()
    await partition.reserve(1)
    await write_at(ann, partition, 2, "c")
    await write_at(ann, partition, 1, "b")
    await write_at(ann, partition, 0, "a")
    await write_at(ann, partition, 1, "b")
    await ann.end()
    assert tail_of(await (await world.owner()).open()) == [(0, "a"), (1, "b"), (2, "c")]


async def test_a_stuck_partition_finds_its_tail_after_its_neighbour_filled_many_files(world: PartitionWorld) -> None:
    ann = await world.owner()
    stuck, busy = await ann.open(), await ann.open(OTHER)
    await append(stuck, batch("a"))
    for number in range(80):
        await append(busy, batch("x" * 60_000))
        if number == 20:
            await append(stuck, batch("b"))
        await ann.publisher.publish([busy])
    assert ann.wal.stats.copied_frames > 2
    assert ann.wal.stats.rolls >= 16
    assert len(ann.wal._file_references.files) < 14
    await ann.end()
    again = await (await world.owner()).open()
    assert tail_of(again) == [(0, "a"), (1, "b")]


async def test_a_start_inside_the_tail_does_not_cost_the_records_behind_it(world: PartitionWorld) -> None:
    """Deleting records forgets the epochs before the new start: what they wrote is not needed, what follows is."""
    ann = await world.owner()
    await append(await ann.open(), batch("a", "b"))
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("c", "d"))
    assert await delete_records(partition, 3, ann.maintenance()) == 3
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()
    assert (partition.start_offset, partition.next_offset) == (3, 4)
    assert tail_of(partition)[-1] == (3, "d")
    await ann.hand_back(partition)
    assert (await published(world))[-1] == (3, "d")


async def test_no_offset_is_given_again_after_everything_was_deleted(world: PartitionWorld) -> None:
    ann = await world.owner()
    await append(await ann.open(), batch("a", "b"))
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()  # epoch 2 begins at 2, and writes nothing
    assert await delete_records(partition, -1, ann.maintenance()) == 2
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()
    assert (partition.start_offset, partition.next_offset) == (2, 2)
    assert (await append(partition, batch("c"))).base_offset == 2
    await ann.hand_back(partition)
    assert (await stored(world)).clean
