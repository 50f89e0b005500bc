"""Retention: pure decisions against a slow oracle, then real partitions, with a crash at every step."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.maintenance import HOUR_MS, CrashError, MaintenanceWorld, crash_at

from holdfast.log.keys import TRASH
from holdfast.log.maintenance import (
    apply_retention,
    collect_trash,
    decide_retention,
    delete_records,
    roll_up_segment_keys,
)
from holdfast.log.maintenance.orphan_sweeper import SWEEPER
from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import CleanupPolicy
from holdfast.vocabulary.errors import FencedError, InvalidError, OutcomeUnknownError

FOREVER = CleanupPolicy(retention_ms=None)
HOUR = CleanupPolicy(retention_ms=HOUR_MS)


def segment(base: int, end: int, size: int, time_ms: int) -> SegmentRecord:
    return SegmentRecord(
        base_offset=base,
        end_offset=end,
        object=f"o{base}",
        start=0,
        end=size,
        epoch=1,
        records=end - base,
        min_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentRecord]:
    at, found = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(0, 8))):
        end = at + draw(st.integers(1, 5))
        found.append(segment(at, end, draw(st.integers(1, 100)), draw(st.integers(-1, 1_000))))
        at = end + draw(st.sampled_from([0, 0, 0, 3]))
    return found


@given(
    segments=logs(),
    start=st.integers(0, 40),
    now_ms=st.integers(0, 1_500),
    retention_ms=st.none() | st.integers(0, 1_000),
    retention_bytes=st.none() | st.integers(0, 400),
    protect_from=st.none() | st.integers(0, 40),
    bytes_after=st.integers(0, 100),
)
def test_what_goes_is_the_oldest_and_nothing_that_must_stay(
    segments: list[SegmentRecord],
    start: int,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
    protect_from: int | None,
    bytes_after: int,
) -> None:
    decision = decide_retention(
        segments, start, now_ms, retention_ms, retention_bytes, protect_from, bytes_after=bytes_after
    )
    assert decision.start >= start
    assert list(decision.unlink) == [each for each in segments if each.end_offset <= decision.start]
    newly = [each for each in decision.unlink if each.end_offset > start]
    if decision.start > start:
        assert decision.start == newly[-1].end_offset
        assert protect_from is None or decision.start <= protect_from
    kept = [each for each in segments if each.end_offset > decision.start]
    kept_bytes = sum(each.size_bytes for each in kept) + bytes_after
    live_bytes = kept_bytes + sum(each.size_bytes for each in newly)
    for each in newly:  # each had a reason
        later = [other.max_timestamp_ms for other in segments if other.base_offset >= each.base_offset]
        time_ms = next((time for time in later if time >= 0), -1)
        too_old = retention_ms is not None and time_ms >= 0 and now_ms - time_ms > retention_ms
        assert too_old or (retention_bytes is not None and live_bytes - each.size_bytes >= retention_bytes)
        live_bytes -= each.size_bytes
    if kept and not (protect_from is not None and kept[0].end_offset > protect_from):  # the first that stays has none
        assert retention_bytes is None or kept_bytes - kept[0].size_bytes < retention_bytes
        if kept[0].max_timestamp_ms >= 0 and retention_ms is not None:
            assert now_ms - kept[0].max_timestamp_ms <= retention_ms


async def test_segments_older_than_the_retention_go_and_the_rest_stays(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 5, each_ms=HOUR_MS // 2)
    before = await world.read()
    assert await apply_retention(partition, HOUR, world.context()) == 6
    assert await world.read() == [each for each in before if each.offset >= 6]
    await world.settle()
    assert len(await world.there()) == 2
    assert (await world.state()).epochs == partition.record.epochs != ()


async def test_a_log_is_cut_to_its_bytes_but_not_below_them(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 6)
    each_bytes = partition.segments.recent[0].size_bytes
    policy = CleanupPolicy(retention_ms=None, retention_bytes=3 * each_bytes - 1)
    assert await apply_retention(partition, policy, world.context()) == 6
    assert partition.segments.size_bytes >= 3 * each_bytes - 1
    assert await apply_retention(partition, policy, world.context()) == 6


async def test_objects_stay_for_their_grace_and_go_after_it(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 3)
    world.clock.advance_ms(2 * HOUR_MS)
    await apply_retention(partition, HOUR, world.context())
    lease = await world.lease(SWEEPER)
    assert (await collect_trash(lease, world.context())).deleted == 0
    assert len(await world.there()) == 3
    world.clock.advance_ms(world.settings.grace_ms)
    assert (await collect_trash(lease, world.context())).deleted == 3
    assert await world.there() == set()


async def test_retention_stops_where_a_pipeline_has_to_read_again(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 5)
    world.clock.advance_ms(2 * HOUR_MS)
    assert await apply_retention(partition, HOUR, world.context(), protect=lambda: 5) == 4
    with pytest.raises(InvalidError, match="pipeline"):
        await delete_records(partition, 8, world.context(), protect=lambda: 5)
    assert await delete_records(partition, 5, world.context(), protect=lambda: 5) == 5
    assert [each.offset for each in await world.read()] == [5, 6, 7, 8, 9]


async def test_a_pipeline_that_begins_meanwhile_is_respected(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 5)
    world.clock.advance_ms(2 * HOUR_MS)
    answers = [None, 4]  # asked once to decide, and then again before every commit
    assert (
        await apply_retention(
            partition, HOUR, world.context(), protect=lambda: answers.pop(0) if len(answers) > 1 else 4
        )
        == 4
    )
    assert len(await world.read()) == 6


async def test_records_are_deleted_up_to_any_visible_offset_and_not_beyond(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 3)
    assert await delete_records(partition, 3, world.context()) == 3
    assert await delete_records(partition, 1, world.context()) == 3
    assert [each.offset for each in await world.read()] == [3, 4, 5]
    with pytest.raises(InvalidError):
        await delete_records(partition, 7, world.context())
    assert await delete_records(partition, -1, world.context()) == 6
    assert await world.read() == []
    await world.settle()


async def test_records_deleted_in_the_tail_are_gone_once_it_is_published(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 2)
    for _ in range(3):
        await world.append(partition, [(b"k", b"v"), (b"k", b"v")])
    assert await delete_records(partition, 7, world.context()) == 7
    assert partition.tail.size_bytes > 0
    await world.publish(partition)
    assert [each.offset for each in await world.read()] == [7, 8, 9]
    assert await delete_records(partition, -1, world.context()) == 10
    await world.fill(partition, 1)
    await apply_retention(partition, FOREVER, world.context())
    assert [each.offset for each in await world.read()] == [10, 11]
    await world.settle()
    assert len(await world.there()) == 1


async def test_a_duplicate_is_still_one_after_everything_was_deleted_and_the_partition_opened_again(
    world: MaintenanceWorld,
) -> None:
    partition = await world.open()
    await world.append(partition, [(b"a", b"1"), (b"b", b"2")], producer_id=7, sequence=0)
    await world.publish(partition)
    assert await delete_records(partition, -1, world.context()) == 2
    await world.settle()
    again = await world.open()
    await world.append(again, [(b"a", b"1"), (b"b", b"2")], producer_id=7, sequence=0)
    assert again.next_offset == 2
    await world.append(again, [(b"c", b"3")], producer_id=7, sequence=2)
    await world.publish(again)
    await apply_retention(again, FOREVER, world.context())
    assert [each.value for each in await world.read()] == [b"3"]
    await world.settle()
    assert len(await world.there()) == 1  # the husk has gone


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 1, 7, 30, 63, 64, 100])
async def test_retention_reaches_into_index_objects(world: MaintenanceWorld, keep: int) -> None:
    partition = await world.open()
    await world.fill(partition, 150)
    await roll_up_segment_keys(partition, world.context())
    before = await world.read()
    each_bytes = max(each.size_bytes for each in partition.segments.recent)
    start = await apply_retention(
        partition, CleanupPolicy(retention_ms=None, retention_bytes=keep * each_bytes), world.context()
    )
    assert await world.read() == [each for each in before if each.offset >= start]
    assert 300 - start <= 2 * (keep + 2)
    if keep:
        await world.settle()
        assert len(await world.there()) <= keep + 4


@pytest.mark.slow
async def test_time_reaches_through_whole_index_objects_in_few_commits(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 150)
    await roll_up_segment_keys(partition, world.context())
    await world.fill(partition, 1, each_ms=2 * HOUR_MS)
    await world.fill(partition, 1)
    assert partition.segments.indexes
    before = world.store.calls["commit"]
    assert await apply_retention(partition, HOUR, world.context()) == 302
    assert world.store.calls["commit"] - before <= 3
    await world.settle()
    assert [each.offset for each in await world.read()] == [302, 303]
    assert len(await world.there()) == 1


@pytest.mark.slow
async def test_a_log_from_which_nothing_has_to_go_costs_no_request(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 150)
    await roll_up_segment_keys(partition, world.context())
    await delete_records(partition, 21, world.context())
    await apply_retention(partition, HOUR, world.context())

    class Unreadable:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    blind = replace(world.context(), objects=Unreadable())  # type: ignore[arg-type]
    before = dict(world.store.calls)
    assert await apply_retention(partition, HOUR, blind) == 21
    assert world.store.calls == before
    world.clock.advance_ms(HOUR_MS)
    assert await apply_retention(partition, HOUR, world.context()) == 300
    await world.settle()


@pytest.mark.slow
async def test_a_crash_at_any_step_of_retention_loses_nothing_and_leaves_nothing(world: MaintenanceWorld) -> None:
    for step in range(100):
        partition = await world.open()
        await world.fill(partition, 80)
        await world.append(partition, [(b"p", b"p")], producer_id=3, sequence=step)
        await world.publish(partition)
        await roll_up_segment_keys(partition, world.context())
        expected = await world.read()
        target = partition.next_offset - (0 if step % 2 else 5)
        crashed = False
        try:
            with crash_at(step // 2):
                await delete_records(partition, target, world.context())
        except CrashError:
            crashed = True
        partition = await world.open()
        start = (await world.state()).start
        assert await world.read() == [each for each in expected if each.offset >= start]
        await delete_records(partition, target, world.context())
        assert await world.read() == [each for each in expected if each.offset >= target]
        await world.settle()
        if not crashed and step % 2:
            return
    pytest.fail("there are more steps than crashes")


async def test_a_lost_answer_is_found_out_before_anything_else_is_changed(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 10)
    before = await world.read()
    for lose in (world.store.lose_answer_to, world.store.lose_request):
        lose("trash/")
        await world.passing(delete_records(partition, partition.record.start + 3, world.context()))
        start = partition.record.start
        assert await world.read() == [each for each in before if each.offset >= start]
    await world.fill(partition, 2)
    await world.settle()


@pytest.mark.slow
@pytest.mark.parametrize("applied", [True, False])
async def test_an_answer_lost_for_good_makes_the_list_be_loaded_again(world: MaintenanceWorld, applied: bool) -> None:
    partition = await world.open()
    await world.fill(partition, 100)
    before = await world.read()
    lose = world.store.lose_answer_to if applied else world.store.lose_request
    lose("idx/")
    folding = asyncio.ensure_future(roll_up_segment_keys(partition, world.context()))
    while not partition.segments.stale:
        await world.clock.run_for_ms(1)
    world.store.reachable = False  # before anybody could ask what became of it
    with pytest.raises(OutcomeUnknownError):
        await world.passing(_awaited(folding))
    assert partition.segments.stale
    assert partition.fenced_record.in_doubt
    world.store.reachable = True
    await roll_up_segment_keys(partition, world.context())
    await world.fill(partition, 1)
    assert (await world.read())[: len(before)] == before
    assert len(await world.keys("log/")) <= world.log_settings.segment_keys_max + 2
    await delete_records(partition, 150, world.context())
    await world.settle()
    assert (await world.read())[0].offset == 150


async def _awaited(task: "asyncio.Future[int]") -> int:
    return await task


async def test_a_cancelled_change_is_known_before_the_cancellation_is(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 6)
    world.store.lose_answer_to("trash/")
    deleting = asyncio.ensure_future(delete_records(partition, 4, world.context()))
    while not partition.segments.stale:
        await world.clock.run_for_ms(1)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await world.passing(_awaited(deleting))
    assert partition.record.start == 4
    await world.fill(partition, 1)
    assert [each.offset for each in await world.read()] == [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]


async def test_a_fenced_leader_changes_nothing(world: MaintenanceWorld) -> None:
    former = await world.open()
    await world.fill(former, 4)
    await world.open()
    before = await world.keys("log/")
    with pytest.raises(FencedError):
        await delete_records(former, 4, world.context())
    assert await world.keys("log/") == before
    assert await world.keys(TRASH) == []
