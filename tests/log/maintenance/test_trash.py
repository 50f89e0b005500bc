"""The trash: shared objects go with the last of their partitions, and nothing goes while somebody may still publish it."""

import pytest
from tests.support.maintenance import CrashError, MaintenanceWorld, crash_at, crash_on

from holdfast.contracts.objects import Missing
from holdfast.log.keys import TRASH
from holdfast.log.maintenance import SWEEPER, collect_trash, delete_records, roll_up_segment_keys
from holdfast.log.segments import SegmentReader


async def test_a_shared_object_goes_with_the_last_partition_that_lists_it(world: MaintenanceWorld) -> None:
    first, second = await world.open(0), await world.open(1)
    for partition in (first, second):
        await world.append(partition, [(b"k", b"v")])
    await world.publish(first, second)
    assert first.segments.recent[0].object == second.segments.recent[0].object
    lease = await world.lease(SWEEPER)
    await delete_records(first, -1, world.context())
    world.clock.advance_ms(world.settings.grace_ms)
    collected = await collect_trash(lease, world.context())
    assert (collected.deleted, collected.kept) == (0, 1)
    assert await world.keys(TRASH) == []
    assert len(await world.read(1)) == 1
    await delete_records(second, -1, world.context())
    await _pass_grace(world)
    await _pass_grace(world)
    assert await world.there() == set()
    assert await world.keys(TRASH) == []


async def _pass_grace(world: MaintenanceWorld) -> None:
    world.clock.advance_ms(world.settings.grace_ms)
    await collect_trash(await world.lease(SWEEPER), world.context())


@pytest.mark.parametrize("indexed", [False, True], ids=["listed by key", "listed in an index"])
async def test_a_shared_object_stays_until_the_grace_of_its_last_partition_is_over(
    world: MaintenanceWorld, indexed: bool
) -> None:
    first, second = await world.open(0), await world.open(1)
    for _ in range(70 if indexed else 1):
        for partition in (first, second):
            await world.append(partition, [(b"k", b"v")])
        await world.publish(first, second)
    if indexed:
        await roll_up_segment_keys(first, world.context())
    planned = second.segments.recent[0]
    await delete_records(first, -1, world.context())
    world.clock.advance_ms(world.settings.grace_ms - 1)
    await delete_records(second, -1, world.context())
    lease = await world.lease(SWEEPER)
    for _ in range(2):  # the first grace is over, then all but a moment of the second
        world.clock.advance_ms(1)
        await collect_trash(lease, world.context())
        reader = SegmentReader(world.objects, planned.object, planned.start, planned.end)
        assert not isinstance(await reader.read(0, 1 << 20), Missing)
        world.clock.advance_ms(world.settings.grace_ms - 3)
    await _pass_grace(world)
    await _pass_grace(world)
    assert await world.there() == set()
    assert await world.keys(TRASH) == []


async def test_a_shared_object_that_many_partitions_let_go_is_read_once_in_a_collection(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [await world.open(number) for number in range(6)]
    for partition in partitions:
        await world.append(partition, [(b"k", b"v")])
    await world.publish(*partitions)
    lease, read = await world.lease(SWEEPER), list[str]()
    real = world.objects.get_tail

    async def counted(key: str, size_bytes: int) -> object:
        read.append(key)
        return await real(key, size_bytes)

    monkeypatch.setattr(world.objects, "get_tail", counted)
    for partition in partitions[:-1]:
        await delete_records(partition, -1, world.context())
        world.clock.advance_ms(1_000)  # each has a key of its own in the trash
    assert len(await world.keys(TRASH)) == 5
    world.clock.advance_ms(world.settings.grace_ms)
    assert (await collect_trash(lease, world.context())).kept == 5
    assert len(read) == 1
    await delete_records(partitions[-1], -1, world.context())
    world.clock.advance_ms(world.settings.grace_ms)
    assert (await collect_trash(lease, world.context())).postponed == 1  # until the last grace is over for sure
    world.clock.advance_ms(world.settings.grace_ms)
    assert (await collect_trash(lease, world.context())).deleted == 1
    assert await world.there() == set()


async def test_a_shared_object_listed_in_an_index_of_another_partition_stays(world: MaintenanceWorld) -> None:
    first, second = await world.open(0), await world.open(1)
    for _ in range(70):
        for partition in (first, second):
            await world.append(partition, [(b"k", b"v")])
        await world.publish(first, second)
    await roll_up_segment_keys(second, world.context())
    assert second.segments.indexes
    await delete_records(first, -1, world.context())
    await world.settle()
    assert len(await world.read(1)) == 70
    await delete_records(second, 10, world.context())
    await world.settle()
    assert len(await world.there()) == 60 + 1
    assert [each.offset for each in await world.read(1)] == list(range(10, 70))


async def test_a_shared_object_whose_publication_is_half_done_is_not_deleted(world: MaintenanceWorld) -> None:
    partitions = [await world.open(number) for number in range(25)]
    for partition in partitions:
        await world.append(partition, [(b"k", b"v")])
    with pytest.raises(CrashError), crash_on("publish.before-commit", time=2):  # before the second of two commits
        await world.publisher().publish(partitions)
    done = [each for each in partitions if (await world.state(each.partition_id.number)).published]
    assert 0 < len(done) < 25
    leaders = [await world.open(each.partition_id.number) for each in done]
    for leader in leaders:
        await delete_records(leader, 1, world.context())
    world.clock.advance_ms(world.settings.grace_ms)
    lease = await world.lease(SWEEPER)
    collected = await collect_trash(lease, world.context())
    assert (collected.deleted, collected.awaited) == (0, 1)  # one key: all were unlinked in the same millisecond
    assert len(await world.there()) == 1
    for partition in partitions:
        if not (
            await world.state(partition.partition_id.number)
        ).published:  # the upload is not repeated: the tail was lost with RAM
            leader = await world.open(partition.partition_id.number)
            await world.append(leader, [(b"k", b"w")])
            await world.publish(leader)
    await _pass_grace(world)
    await _pass_grace(world)
    assert not any("/shared/" in key for key in await world.there())


@pytest.mark.slow
async def test_a_crash_at_any_step_of_a_collection_is_finished_by_the_next(world: MaintenanceWorld) -> None:
    for step in range(30):
        first, second = await world.open(0), await world.open(1)
        for _ in range(70):
            for partition in (first, second):
                await world.append(partition, [(b"k", b"v")])
            await world.publish(first, second)
        await roll_up_segment_keys(first, world.context())
        await delete_records(first, -1, world.context())
        world.clock.advance_ms(world.settings.grace_ms)
        expected = await world.read(1)
        lease = await world.lease(SWEEPER)
        crashed = False
        try:
            with crash_at(step):
                await collect_trash(lease, world.context())
        except CrashError:
            crashed = True
        assert await world.read(1) == expected
        await delete_records(second, -1, world.context())
        await world.settle()
        assert await world.there() == set()
        if not crashed:
            return
    pytest.fail("there are more steps than crashes")


async def test_a_reader_whose_plan_has_a_deleted_object_gets_missing(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 3)
    plan = list(partition.segments.recent)
    await delete_records(partition, 4, world.context())
    reader = SegmentReader(world.objects, plan[0].object, plan[0].start, plan[0].end)
    assert not isinstance(await reader.read(0, 1 << 20), Missing)
    await world.settle()
    late = SegmentReader(world.objects, plan[0].object, plan[0].start, plan[0].end)
    assert isinstance(await late.read(0, 1 << 20), Missing)


async def test_what_an_index_in_the_trash_lists_is_no_orphan(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 70)
    await roll_up_segment_keys(partition, world.context())
    planned = partition.segments.indexes[0]
    world.clock.advance_ms(2 * world.settings.orphan_grace_ms)
    await delete_records(partition, planned.end_offset, world.context())
    before = await world.there()
    await world.sweep()
    assert await world.there() == before
    await world.settle()
    assert len(await world.there()) < len(before)
