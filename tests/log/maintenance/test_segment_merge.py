"""Merging: the number of segments follows the bytes of a log; what a reader gets is the same before and after, whatever crashes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.maintenance import COMPACT_NOW, HOUR_MS, CrashError, MaintenanceWorld, crash_at

from holdfast.log.maintenance import apply_retention, compact, merge_segments, roll_up_segment_keys
from holdfast.log.maintenance.segment_merge import FAN_IN, MergeLimits, choose_merge
from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary.errors import FencedError
from holdfast.vocabulary.settings import KIB, MIB

KEEP_ALL = CleanupPolicy(retention_ms=None)
LIMITS = MergeLimits(bytes_max=8 * MIB, span_ms_max=None)


def segment(at: int, size_bytes: int, *, time_ms: int = 0, compacted_at_ms: int = 0) -> SegmentRecord:
    return SegmentRecord(
        base_offset=at,
        end_offset=at + 1,
        object=f"o{at}",
        start=0,
        end=size_bytes,
        epoch=1,
        records=1,
        min_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        compacted_at_ms=compacted_at_ms,
    )


def merged(listed: list[SegmentRecord], chosen: list[SegmentRecord]) -> list[SegmentRecord]:
    at = listed.index(chosen[0])
    assert listed[at : at + len(chosen)] == chosen
    one = replace_bounds(chosen)
    return [*listed[:at], one, *listed[at + len(chosen) :]]


def replace_bounds(chosen: list[SegmentRecord]) -> SegmentRecord:
    first, last = chosen[0], chosen[-1]
    size_bytes = sum(each.size_bytes for each in chosen)
    return SegmentRecord(
        base_offset=first.base_offset,
        end_offset=last.end_offset,
        object=f"{first.object}-{last.object}",
        start=0,
        end=size_bytes,
        epoch=1,
        records=len(chosen),
        min_timestamp_ms=min(each.min_timestamp_ms for each in chosen),
        max_timestamp_ms=max(each.max_timestamp_ms for each in chosen),
        merged_from_ms=min(each.oldest_ms for each in chosen),
    )


async def everything_merged(partition: LeadingPartition, world: MaintenanceWorld) -> None:
    while await merge_segments(partition, KEEP_ALL, world.context()):
        pass


class TestChoice:
    @pytest.mark.slow
    def test_a_day_of_four_segments_a_second_leaves_few_and_writes_each_byte_a_few_times(self) -> None:
        listed: list[SegmentRecord] = []
        written = 0
        for at in range(20_000):
            listed.append(segment(at, KIB))
            while chosen := list(choose_merge(listed, LIMITS)):
                written += sum(each.size_bytes for each in chosen)
                listed = merged(listed, chosen)
            assert len(listed) <= 6 * FAN_IN
        assert written <= 6 * 20_000 * KIB

    def test_what_is_half_full_is_left_alone(self) -> None:
        assert not choose_merge([segment(at, 4 * MIB) for at in range(100)], LIMITS)

    def test_a_merged_segment_is_no_larger_than_allowed(self) -> None:
        chosen = choose_merge([segment(at, 3 * MIB) for at in range(100)], LIMITS)
        assert [each.base_offset for each in chosen] == [0, 1]

    def test_segments_with_a_gap_between_them_are_not_merged(self) -> None:
        listed = [segment(2 * at, KIB) for at in range(100)]
        assert not choose_merge(listed, LIMITS)

    def test_compacted_segments_are_not_mixed_with_others(self) -> None:
        listed = [segment(at, KIB, compacted_at_ms=1 if at < 4 else 0) for at in range(11)]
        assert not choose_merge(listed, LIMITS)

    def test_a_merged_segment_spans_a_share_of_the_retention(self) -> None:
        limits = MergeLimits.of(CleanupPolicy(retention_ms=16 * HOUR_MS, retention_bytes=160 * MIB), 64 * MIB)
        assert limits == MergeLimits(bytes_max=10 * MIB, span_ms_max=HOUR_MS)
        listed = [segment(at, KIB, time_ms=at * HOUR_MS // 4) for at in range(20)]
        assert [each.base_offset for each in choose_merge(listed, limits)] == [0, 1, 2, 3, 4]

    @pytest.mark.slow
    def test_what_was_merged_before_does_not_grow_beyond_the_span(self) -> None:
        limits = MergeLimits(bytes_max=8 * MIB, span_ms_max=10 * HOUR_MS)
        listed: list[SegmentRecord] = []
        written = 0
        for at in range(3_000):  # a quiet topic, for a month
            listed.append(segment(at, KIB, time_ms=at * HOUR_MS // 4))
            while chosen := list(choose_merge(listed, limits)):
                written += sum(each.size_bytes for each in chosen)
                listed = merged(listed, chosen)
        assert max(each.max_timestamp_ms - each.min_timestamp_ms for each in listed) <= 10 * HOUR_MS
        assert len(listed) <= 3_000 // 40 + 2 * FAN_IN
        assert written <= 4 * 3_000 * KIB

    def test_a_policy_without_deletion_has_no_span(self) -> None:
        assert MergeLimits.of(CleanupPolicy(delete=False, compact=True), MIB) == MergeLimits(
            bytes_max=MIB, span_ms_max=None
        )

    @given(st.lists(st.integers(200, 10 * MIB), max_size=300))
    def test_whatever_the_sizes_it_comes_to_an_end_with_few_small_neighbours(self, sizes: list[int]) -> None:
        listed = [segment(at, size_bytes) for at, size_bytes in enumerate(sizes)]
        while chosen := list(choose_merge(listed, LIMITS)):
            assert len(chosen) > 1
            assert sum(each.size_bytes for each in chosen) <= LIMITS.bytes_max
            listed = merged(listed, chosen)
        row = 0
        for each in listed:
            row = row + 1 if 2 * each.size_bytes < LIMITS.bytes_max else 0
            assert row <= 64 + 1


@pytest.mark.slow
async def test_merging_keeps_every_record_and_bounds_the_number_of_segments(world: MaintenanceWorld) -> None:
    partition = await world.open()
    for _ in range(60):
        await world.fill(partition, 10, each_ms=250)
        await everything_merged(partition, world)
        await roll_up_segment_keys(partition, world.context())
    assert len(partition.segments.recent) + len(partition.segments.indexes) <= 32
    records = await world.read()
    assert [(each.offset, each.value) for each in records] == [(at, b"v%d" % at) for at in range(1_200)]
    await world.settle()
    assert await world.read() == records


async def test_many_new_segments_are_merged_in_commits_that_a_store_takes(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 100, each_ms=0)  # faster than they could be merged or rolled up
    records = await world.read()
    await everything_merged(partition, world)
    assert len(partition.segments.recent) < FAN_IN
    assert await world.read() == records


@pytest.mark.slow
async def test_a_quiet_topic_keeps_nothing_much_longer_than_its_retention(world: MaintenanceWorld) -> None:
    partition, policy = await world.open(), CleanupPolicy(retention_ms=32 * HOUR_MS)
    for _ in range(100):
        await world.fill(partition, 2, each_ms=HOUR_MS // 2)
        while await merge_segments(partition, policy, world.context()):
            pass
        await apply_retention(partition, policy, world.context())
    oldest = (await world.read())[0]
    assert world.clock.now_ms() - oldest.timestamp_ms <= 36 * HOUR_MS
    assert len(partition.segments.recent) <= 32


@pytest.mark.slow
async def test_segments_that_an_earlier_release_listed_in_an_index_are_merged_too(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 200, each_ms=1)
    await roll_up_segment_keys(partition, world.context())
    expected = await world.read()
    await everything_merged(partition, world)
    assert sum(each.entries for each in partition.segments.indexes) <= 8
    assert await world.read() == expected
    assert await merge_segments(await world.open(), KEEP_ALL, world.context()) == 0
    await world.settle()
    assert await world.read() == expected


async def test_an_index_with_nothing_to_merge_is_read_once(world: MaintenanceWorld) -> None:
    world.settings = replace(world.settings, merge_bytes_max=200_000)
    hourly = CleanupPolicy(retention_ms=HOUR_MS)  # far apart in time, so that nothing may be merged
    partition = await world.open()
    await world.fill(partition, 70, each_ms=HOUR_MS)
    await roll_up_segment_keys(partition, world.context())
    await merge_segments(partition, hourly, world.context())

    class NoReads:
        """Object storage that must not be asked."""

    context = replace(world.context(), objects=NoReads())  # type: ignore[arg-type]
    assert await merge_segments(partition, hourly, context) == 0


async def test_a_crash_at_any_step_of_merging_loses_nothing_and_leaves_nothing(world: MaintenanceWorld) -> None:
    for step in range(30):
        partition = await world.open()
        await world.fill(partition, FAN_IN)
        expected = await world.read()
        try:
            with crash_at(step):
                await merge_segments(partition, KEEP_ALL, world.context())
        except CrashError:
            partition = await world.open()
            assert await world.read() == expected
            await everything_merged(partition, world)
        else:
            break
        assert await world.read() == expected
        await world.settle()
    else:
        pytest.fail("there are more steps than crashes")


async def test_what_producers_sent_last_outlives_merging(world: MaintenanceWorld) -> None:
    partition = await world.open()
    for sequence in range(FAN_IN):
        await world.append(partition, [(b"k", b"v")], producer_id=7, sequence=sequence)
        await world.publish(partition)
    await everything_merged(partition, world)
    assert len(partition.segments.recent) == 1
    again = await world.open()
    await world.append(again, [(b"k", b"v")], producer_id=7, sequence=FAN_IN - 1)
    assert again.next_offset == FAN_IN  # a duplicate is still a duplicate


async def test_a_leader_that_was_replaced_merges_nothing(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, FAN_IN)
    expected = await world.read()
    await world.open()
    with pytest.raises(FencedError):
        await merge_segments(partition, KEEP_ALL, world.context())
    assert await world.read() == expected


async def test_a_merged_log_is_compacted_as_before(world: MaintenanceWorld) -> None:
    partition = await world.open()
    for at in range(20):
        await world.append(partition, [(b"k%d" % (at % 3), b"v%d" % at)])
        await world.publish(partition)
    await everything_merged(partition, world)
    await compact(partition, COMPACT_NOW, world.context())
    assert [each.value for each in await world.read()] == [b"v17", b"v18", b"v19"]


async def test_what_the_tail_still_has_stays_there(world: MaintenanceWorld) -> None:
    world.afterglow_bytes_max = MIB
    partition = await world.open()
    await world.fill(partition, FAN_IN)
    await everything_merged(partition, world)
    assert len(partition.segments.recent) == 1
    assert partition.tail.start == 0
