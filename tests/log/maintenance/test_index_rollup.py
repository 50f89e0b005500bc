"""Folding: few keys in the store, every record still found, whatever crashes where."""

from dataclasses import replace

import pytest
from tests.support.maintenance import CrashError, MaintenanceWorld, crash_at

from holdfast.contracts.store import Put
from holdfast.log.keys import deletion_mark_key, segments_prefix
from holdfast.log.maintenance import roll_up_segment_keys
from holdfast.log.maintenance.index_objects import parse_index_key
from holdfast.log.maintenance.index_rollup import keys_to_roll_up
from holdfast.log.segment_list import load_segments
from holdfast.vocabulary.errors import UnavailableError

TOPIC_ID = b"orders".hex()


@pytest.mark.slow
async def test_a_thousand_segments_leave_few_keys_and_every_record_is_found(world: MaintenanceWorld) -> None:
    partition = await world.open()
    for _ in range(100):
        await world.fill(partition, 10)
        await roll_up_segment_keys(partition, world.context())
        assert len(await world.keys(segments_prefix(TOPIC_ID, 0))) <= 64
    assert len(await world.keys("log/")) <= 64 + 1 + 1
    records = await world.read()
    assert [each.offset for each in records] == list(range(2_000))
    assert all(each.value == b"v%d" % each.offset for each in records)
    for offset in (0, 1, 777, 1_500, 1_871, 1_999):
        found = await partition.segments.find(offset, world.objects)
        assert found is not None
        assert found.base_offset <= offset < found.end_offset
    await world.settle()
    assert len(await world.there()) == 1_000 + 1


@pytest.mark.slow
async def test_a_thousand_segments_are_rolled_up_in_commits_within_the_limits(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 1_000, each_ms=1)
    assert await roll_up_segment_keys(partition, world.context()) >= 1_000 - 64
    assert [each.offset for each in await world.read()] == list(range(2_000))


async def test_a_full_index_is_followed_by_another(world: MaintenanceWorld) -> None:
    world.log_settings = replace(world.log_settings, segment_keys_max=4, index_entries_max=16)
    partition = await world.open()
    for _ in range(50):
        await world.fill(partition, 1)
        await roll_up_segment_keys(partition, world.context())
    assert [each.entries for each in partition.segments.indexes][:-1] == [15, 15, 15]
    assert [each.offset for each in await world.read()] == list(range(100))
    again = await world.open()
    assert again.segments.indexes == partition.segments.indexes
    assert again.segments.recent == partition.segments.recent
    await world.settle()


def test_folding_goes_down_to_half_of_what_is_allowed() -> None:
    assert keys_to_roll_up(64, 64) == 0
    assert keys_to_roll_up(65, 64) == 33
    assert 0 < keys_to_roll_up(10_000, 64) < 80


async def test_a_crash_at_any_step_of_folding_leaves_the_log_whole(world: MaintenanceWorld) -> None:
    world.log_settings = replace(world.log_settings, segment_keys_max=4)
    for step in range(30):
        partition = await world.open()
        await world.fill(partition, 12)
        expected = await world.read()
        try:
            with crash_at(step):
                await roll_up_segment_keys(partition, world.context())
        except CrashError:
            partition = await world.open()
            assert await world.read() == expected
            await roll_up_segment_keys(partition, world.context())
        else:
            break
        assert await world.read() == expected
        assert len(partition.segments.recent) <= 4
        await world.settle()
    else:
        pytest.fail("there are more steps than crashes")


async def test_an_index_that_was_marked_for_deletion_is_not_listed(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 70)
    expected = await world.read()

    class DoomingObjects:
        """A sweeper that is much too quick."""

        def __getattr__(self, name: str) -> object:
            return getattr(world.objects, name)

        async def put(self, key: str, body: object) -> object:
            stored = await world.objects.put(key, body)  # type: ignore[arg-type]
            await world.memory.commit(apply=[Put(deletion_mark_key(key), b"{}")])
            return stored

    context = replace(world.context(), objects=DoomingObjects())  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="orphan"):
        await roll_up_segment_keys(partition, context)
    assert not partition.segments.indexes
    assert await roll_up_segment_keys(partition, world.context()) > 0
    assert await world.read() == expected


async def test_a_reader_that_planned_before_the_fold_reads_on(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 70)
    plan = await load_segments(world.memory, TOPIC_ID, 0)
    await roll_up_segment_keys(partition, world.context())
    await world.fill(partition, 60)
    await roll_up_segment_keys(partition, world.context())
    older = await load_segments(world.memory, TOPIC_ID, 0)
    await world.settle()
    assert all([await world.objects.get(each.object, start=0, end=1) == b"S" for each in plan.recent])
    assert [each.base_offset async for each in older.all(world.objects)] == list(range(0, 260, 2))


def test_the_key_of_an_index_says_whose_it_is() -> None:
    key = f"indexes/ab/3/{1:020d}-{9:020d}-2-up.v1.json"
    parsed = parse_index_key(key)
    assert parsed == ("ab", 3, 1, 9, 2, "up")
    assert parse_index_key(key + "x") is None
    assert parse_index_key("segments/ab/3/x") is None
