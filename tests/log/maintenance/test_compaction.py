"""Compaction of real partitions: what a reader replays is the same, offsets never change, and no crash loses anything."""

import asyncio
from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.maintenance import COMPACT_NOW, HOUR_MS, CrashError, MaintenanceWorld, crash_at, new_world, replay

from holdfast.contracts.store import Put
from holdfast.log.batches import Record, decode, encode, parse_header
from holdfast.log.keys import deletion_mark_key
from holdfast.log.maintenance import apply_retention, compact, delete_records, merge_segments, roll_up_segment_keys
from holdfast.log.maintenance.compaction_filter import ENTRY_BYTES
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.reader import LogReader
from holdfast.log.segment_list import load_segments
from holdfast.log.segments import SegmentReader
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError


def check_left(before: list[Record], after: list[Record]) -> None:
    """Nothing changed but that records went, and each that went is replaced by a later one or is an old tombstone."""
    assert replay(after) == replay(before)
    assert [each for each in before if each in set(after)] == after
    last = {each.key: each for each in before}
    for gone in set(before) - set(after):
        assert gone.key is not None
        assert last[gone.key].offset > gone.offset or gone.value is None


async def fill_keys(
    world: MaintenanceWorld, partition: LeadingPartition, batches: list[list[tuple[bytes | None, bytes | None]]]
) -> None:
    for pairs in batches:
        await world.append(partition, pairs)
        await world.publish(partition)
        world.clock.advance_ms(1_000)


async def test_the_last_of_each_key_is_left_and_offsets_stay(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"k%d" % (at % 3), b"v%d" % at), (b"z", b"z%d" % at)] for at in range(10)])
    done = await compact(partition, COMPACT_NOW, world.context())
    assert done.records_dropped == 16
    left = await world.read()
    assert [(each.offset, each.value) for each in left] == [(14, b"v7"), (16, b"v8"), (18, b"v9"), (19, b"z9")]
    state = await world.state()
    assert (state.start, state.published) == (0, 20)
    await world.settle()
    assert await world.read() == left


async def test_a_segment_that_loses_its_last_batch_still_covers_its_offsets(world: MaintenanceWorld) -> None:
    world.settings = replace(world.settings, merge_bytes_max=1)
    partition = await world.open()
    await world.append(partition, [(b"x", b"1")])
    await world.append(partition, [(b"a", b"1")])
    await world.publish(partition)
    await fill_keys(world, partition, [[(b"a", b"2")]])
    await compact(partition, COMPACT_NOW, world.context())
    assert [each.offset for each in await world.read()] == [0, 2]
    reading = LogReader(world.objects, clock=world.clock, settings=world.log_settings)
    fetched = await reading.fetch(partition, 1, bytes_max=1)
    assert [parse_header(each).last_offset for each in fetched.batches] == [1]  # empty, and leads on


async def test_a_reader_is_led_to_the_end_of_a_log_whose_last_record_was_a_tombstone(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"a", b"1"), (b"b", b"2")], [(b"a", None)]])
    for _ in range(2):
        await compact(partition, COMPACT_NOW, world.context())
        world.clock.advance_ms(2 * HOUR_MS)
        await fill_keys(world, partition, [[(None, b"3")]])
    reading = LogReader(world.objects, clock=world.clock, settings=world.log_settings)
    at = 0
    offsets = []
    while at < partition.high_watermark:
        fetched = await reading.fetch(partition, at, bytes_max=1)
        assert fetched.batches
        offsets += [each.offset for each in decode(bytes(fetched.batches[0]))]
        at = parse_header(fetched.batches[0]).last_offset + 1
    assert offsets == [1, 3, 4]


steps = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", None]), st.sampled_from([None, b"1", b"2", b"3"])),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from(["compact", "fold", "wait", "delete", "reopen", "sweep"]),
    ),
    max_size=25,
)


@pytest.mark.slow
@examples()
@given(steps=steps, merge=st.sampled_from([1, 400, 1 << 20]), budget=st.sampled_from([ENTRY_BYTES, 1 << 20]))
def test_whatever_happens_in_whatever_order_a_replay_is_the_same(steps: list[object], merge: int, budget: int) -> None:
    async def live() -> None:
        async with new_world() as world:
            world.settings = replace(world.settings, merge_bytes_max=merge, key_map_bytes_max=budget)
            world.log_settings = replace(world.log_settings, segment_keys_max=4, index_entries_max=16)
            partition = await world.open()
            oracle: list[Record] = []
            for step in steps:
                before = await world.read()
                if step == "compact":
                    await compact(partition, COMPACT_NOW, world.context())
                elif step == "fold":
                    await roll_up_segment_keys(partition, world.context())
                elif step == "wait":
                    world.clock.advance_ms(HOUR_MS)
                elif step == "delete":
                    await delete_records(
                        partition, (partition.record.start + partition.next_offset) // 2, world.context()
                    )
                    oracle = [each for each in oracle if each.offset >= partition.record.start]
                    before = [each for each in before if each.offset >= partition.record.start]
                elif step == "reopen":
                    partition = await world.open()
                elif step == "sweep":
                    await world.sweep()
                elif isinstance(step, list):
                    at, now_ms = partition.next_offset, world.clock.now_ms()
                    oracle += [Record(at + number, now_ms, *pair) for number, pair in enumerate(step)]
                    before = [*before, *oracle[-len(step) :]]
                    await fill_keys(world, partition, [step])
                after = await world.read()
                check_left(before, after)
                check_left(oracle, after)
                if step != "compact":
                    assert after == before
            await world.settle()
            check_left(oracle, await world.read())

    asyncio.run(live())


async def test_a_tombstone_is_left_for_its_time_and_then_goes(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"a", b"1"), (b"b", b"1")], [(b"a", None)]])
    await compact(partition, COMPACT_NOW, world.context())
    assert [(each.key, each.value) for each in await world.read()] == [(b"b", b"1"), (b"a", None)]
    world.clock.advance_ms(HOUR_MS // 2)
    await fill_keys(world, partition, [[(b"c", b"1")]])
    await compact(partition, COMPACT_NOW, world.context())
    assert len(await world.read()) == 3
    world.clock.advance_ms(HOUR_MS)
    await fill_keys(world, partition, [[(b"d", b"1")]])
    await compact(partition, COMPACT_NOW, world.context())
    assert [each.key for each in await world.read()] == [b"b", b"c", b"d"]


async def test_a_tombstone_with_an_old_time_still_waits_from_when_it_was_compacted(world: MaintenanceWorld) -> None:
    partition = await world.open()
    old = encode([Record(0, 5, b"a", None)])  # a producer may write any time into it
    await world.append_batch(partition, old)
    await world.publish(partition)
    await compact(partition, COMPACT_NOW, world.context())
    assert len(await world.read()) == 1


async def test_compaction_stops_below_what_is_young_protected_or_undecided(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"a", b"%d" % at)] for at in range(4)])
    lag = replace(COMPACT_NOW, min_compaction_lag_ms=2_500)
    await compact(partition, lag, world.context())
    assert [each.offset for each in await world.read()] == [1, 2, 3]
    await compact(partition, COMPACT_NOW, world.context(), protect=lambda: 3)
    assert [each.offset for each in await world.read()] == [2, 3]
    in_transaction = encode(
        [Record(0, 1, b"a", b"perhaps")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    await world.append_batch(partition, in_transaction)
    await world.publish(partition)
    await fill_keys(world, partition, [[(b"a", b"later")]])
    await compact(partition, COMPACT_NOW, world.context())
    assert [each.offset for each in await world.read()] == [3, 4, 5]
    abort = Record(0, 1, pack(">hh", 0, 0), pack(">hi", 0, 0))
    await world.append_batch(
        partition, encode([abort], producer_id=7, producer_epoch=0, base_sequence=1, control=True, transactional=True)
    )
    await world.publish(partition)
    await compact(partition, COMPACT_NOW, world.context())
    assert next((each.offset, each.value) for each in await world.read()) == (5, b"later")


@pytest.mark.parametrize("step", ["maintenance.keys-scanned", "maintenance.compacted-segment-uploaded"])
async def test_a_range_that_is_begun_while_a_pass_runs_stays_as_it_is(world: MaintenanceWorld, step: str) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"a", b"%d" % at), (b"b%d" % at, b"x")] for at in range(4)])
    pending: list[int] = []

    def begin(name: str) -> None:
        if name == step:
            pending.append(0)

    with failpoints.installed(begin):
        await compact(partition, COMPACT_NOW, world.context(), protect=lambda: pending[0] if pending else None)
    assert [each.offset for each in await world.read()] == list(range(8))
    done = await compact(partition, COMPACT_NOW, world.context())  # when the range is finished
    assert done.records_dropped == 3


async def test_a_log_that_is_mostly_compacted_is_left_alone(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"k%d" % at, b"v")] for at in range(8)])
    half = replace(COMPACT_NOW, min_dirty_ratio=0.5)
    assert (await compact(partition, half, world.context())).surveyed == 8
    await fill_keys(world, partition, [[(b"k0", b"v")]])
    assert (await compact(partition, half, world.context())).surveyed == 0
    commits = world.store.calls["commit"]
    assert (await compact(partition, COMPACT_NOW, world.context())).surveyed == 1
    assert world.store.calls["commit"] > commits


@pytest.mark.slow
async def test_small_segments_are_joined_also_inside_index_objects(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"k%d" % (at % 50), b"v%d" % at)] for at in range(200)])
    await roll_up_segment_keys(partition, world.context())
    before = await world.read()
    await compact(partition, COMPACT_NOW, world.context())
    check_left(before, await world.read())
    assert len(await world.read()) == 50
    total = sum(each.entries for each in partition.segments.indexes) + len(partition.segments.recent)
    assert total < 20
    await world.settle()
    assert len(await world.there()) == total + len(partition.segments.indexes)


async def test_producers_are_remembered_through_compaction(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.append(partition, [(b"a", b"1")], producer_id=9, sequence=0)
    await world.append(partition, [(b"a", b"2")], producer_id=9, sequence=1)
    await world.publish(partition)
    await fill_keys(world, partition, [[(b"a", None)]])
    await compact(partition, COMPACT_NOW, world.context())
    again = await world.open()
    await world.append(again, [(b"a", b"2")], producer_id=9, sequence=1)
    assert again.next_offset == 3


@pytest.mark.slow
async def test_a_crash_at_any_step_of_compaction_leaves_a_valid_log(world: MaintenanceWorld) -> None:
    world.settings = replace(world.settings, merge_bytes_max=800)
    world.log_settings = replace(world.log_settings, segment_keys_max=6, index_entries_max=16)
    for step in range(200):
        partition = await world.open()
        start = partition.next_offset
        await fill_keys(world, partition, [[(b"k%d" % (at % 5), b"v%d-%d" % (step, at))] for at in range(14)])
        if step % 2:
            await roll_up_segment_keys(partition, world.context())
        before = await world.read()
        crashed = False
        try:
            with crash_at(step):
                await compact(partition, COMPACT_NOW, world.context())
        except CrashError:
            crashed = True
        check_left(before, await world.read())
        partition = await world.open()
        await compact(partition, COMPACT_NOW, world.context())
        check_left(before, await world.read())
        assert len(await world.read()) == 5
        await world.settle()
        if not crashed and step % 2:
            return
        await delete_records(partition, start, world.context())
    pytest.fail("there are more steps than crashes")


@pytest.mark.slow
async def test_after_an_answer_lost_for_good_nothing_that_was_replaced_is_listed_again(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"a", b"%d" % at)] for at in range(70)])
    world.store.lose_answer_to("seg/")
    compacting = asyncio.ensure_future(compact(partition, COMPACT_NOW, world.context()))
    while not partition.segments.stale:
        await world.clock.run_for_ms(1)
        await asyncio.to_thread(lambda: None)
    world.store.reachable = False  # before anybody could ask what became of it
    with pytest.raises(OutcomeUnknownError):
        await world.passing(asyncio.wait_for(compacting, None))
    world.store.reachable = True
    world.log_settings = replace(world.log_settings, segment_keys_max=4)
    world.clock.advance_ms(2 * HOUR_MS)
    await world.sweep()  # what was replaced is gone
    await roll_up_segment_keys(partition, world.context())
    assert [each.value for each in await world.read()][-1] == b"69"
    await world.settle()


async def test_a_reader_in_the_middle_reads_on_or_plans_again(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"a", b"%d" % at)] for at in range(6)])
    plan = await load_segments(world.memory, partition.partition_id.topic_id, 0)
    reading = LogReader(world.objects, clock=world.clock, settings=world.log_settings)
    await reading.fetch(partition, 0, bytes_max=1)
    await compact(partition, COMPACT_NOW, world.context())
    for segment in plan.recent:  # within the grace the old plan is as good as ever
        reader = SegmentReader(world.objects, segment.object, segment.start, segment.end)
        assert await reader.read(segment.base_offset, 1 << 20)
    listed, partition.segments.recent = partition.segments.recent, plan.recent
    await world.settle()

    async def refresh(_: LeadingPartition) -> None:
        partition.segments.recent = listed

    monkeypatch.setattr(LeadingPartition, "refresh", refresh)  # a reader elsewhere, whose plan is older than the grace
    fetched = await reading.fetch(partition, 0, bytes_max=1 << 20)
    assert [each.value for batch in fetched.batches for each in decode(bytes(batch))] == [b"5"]


async def test_compaction_and_retention_at_once_lose_nothing(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"k%d" % (at % 4), b"v%d" % at)] for at in range(30)])
    await roll_up_segment_keys(partition, world.context())
    before = await world.read()
    results = await asyncio.gather(
        compact(partition, COMPACT_NOW, world.context()),
        delete_records(partition, 11, world.context()),
        return_exceptions=True,
    )
    assert all(not isinstance(each, Exception) or isinstance(each, UnavailableError) for each in results)
    check_left([each for each in before if each.offset >= 11], await world.read())
    await compact(partition, COMPACT_NOW, world.context())
    await world.settle()


async def test_publishing_goes_on_while_a_partition_is_compacted(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"k%d" % (at % 4), b"v%d" % at)] for at in range(30)])

    async def write() -> None:
        for at in range(20):
            await world.append(partition, [(b"k%d" % (at % 4), b"w%d" % at)])
            await world.publish(partition)

    await asyncio.gather(compact(partition, COMPACT_NOW, world.context()), write())
    assert replay(await world.read()) == {b"k%d" % (at % 4): b"w%d" % at for at in range(16, 20)}
    await world.settle()


async def test_a_compacted_segment_that_was_swept_is_not_listed(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await fill_keys(world, partition, [[(b"a", b"1")], [(b"a", b"2")]])
    before = await world.read()

    class Sweeping:
        def __init__(self, *, gone: bool) -> None:
            self.gone = gone

        def __getattr__(self, name: str) -> object:
            return getattr(world.objects, name)

        async def put(self, key: str, body: object) -> object:
            stored = await world.objects.put(key, body)  # type: ignore[arg-type]
            if self.gone:  # the sweep is over, and even its doom is forgotten
                await world.objects.delete([key])
            else:
                await world.memory.commit(apply=[Put(deletion_mark_key(key), b"{}")])
            return stored

    for gone in (True, False):
        with pytest.raises(UnavailableError):
            await compact(partition, COMPACT_NOW, replace(world.context(), objects=Sweeping(gone=gone)))  # type: ignore[arg-type]
        assert await world.read() == before
    await compact(partition, COMPACT_NOW, world.context())
    assert [each.offset for each in await world.read()] == [1]


async def test_a_fenced_leader_cannot_compact(world: MaintenanceWorld) -> None:
    former = await world.open()
    await fill_keys(world, former, [[(b"a", b"1")], [(b"a", b"2")]])
    before = await world.read()
    await world.open()
    with pytest.raises(FencedError):
        await compact(former, COMPACT_NOW, world.context())
    assert await world.read() == before


async def test_the_keys_of_one_segment_are_taken_in_slices_when_ram_is_short(world: MaintenanceWorld) -> None:
    world.settings = replace(world.settings, key_map_bytes_max=10 * ENTRY_BYTES)
    partition = await world.open()
    await fill_keys(world, partition, [[(b"k%d" % (at % 40), b"v%d" % at) for at in range(80)]] * 2)
    before = await world.read()
    for _ in range(2):
        await compact(partition, COMPACT_NOW, world.context())
    check_left(before, await world.read())
    assert len(await world.read()) == 40


@pytest.mark.slow
@pytest.mark.parametrize("merging", [False, True])
async def test_tombstones_go_even_if_the_log_is_compacted_more_often_than_they_are_kept(
    world: MaintenanceWorld, merging: bool
) -> None:
    policy = CleanupPolicy(compact=True, delete=False, min_dirty_ratio=0.0, delete_retention_ms=4 * HOUR_MS)
    partition = await world.open()
    for hour in range(40):
        await world.append(partition, [(b"k%d" % hour, b"v")])
        await world.append(partition, [(b"k%d" % hour, None)])
        await world.publish(partition)
        world.clock.advance_ms(HOUR_MS)
        await compact(partition, policy, world.context())
        while merging and await merge_segments(partition, policy, world.context()):
            pass
    assert len(await world.read()) <= 7
    assert len(partition.segments.recent) <= 8


@pytest.mark.slow
async def test_a_log_that_is_compacted_and_deleted_keeps_nothing_much_longer_than_its_retention(
    world: MaintenanceWorld,
) -> None:
    policy = CleanupPolicy(compact=True, delete=True, min_dirty_ratio=0.0, retention_ms=32 * HOUR_MS)
    partition = await world.open()
    for hour in range(80):
        await world.append(partition, [(b"k%d" % hour, b"v")])
        await world.publish(partition)
        world.clock.advance_ms(HOUR_MS)
        await compact(partition, policy, world.context())
        await apply_retention(partition, policy, world.context())
    assert world.clock.now_ms() - (await world.read())[0].timestamp_ms <= 36 * HOUR_MS
