"""Snapshots of partitions: only the leader lists one, and what no list names any more goes, whatever comes in which order."""

import pytest
from tests.support.maintenance import CrashError, MaintenanceWorld, crash_on, delete_topic

from holdfast.log.keys import DELETION_MARKS
from holdfast.log.maintenance import SWEEPER, expire_deletion_marks, sweep_orphans
from holdfast.log.owned_snapshots import OwnedSnapshots
from holdfast.vocabulary.errors import FencedError, UnavailableError


async def snapshots(world: MaintenanceWorld) -> OwnedSnapshots:
    """Those of a partition that is opened anew."""
    found = OwnedSnapshots(await world.open(), world.context())
    await found.load()
    return found


async def test_two_snapshots_are_kept_and_older_ones_go(world: MaintenanceWorld) -> None:
    owned = await snapshots(world)
    for offset in (10, 20, 30):
        await owned.put(offset, [b"at %d" % offset])
    assert [each.offset for each in (await owned.load()).snapshots] == [20, 30]
    assert await owned.read(owned.list.snapshots[-1]) == b"at 30"
    assert len(await world.there()) == 3  # a reader may still be at it
    await world.settle()
    assert len(await world.there()) == 2


async def test_a_leader_that_was_replaced_lists_nothing(world: MaintenanceWorld) -> None:
    old = await snapshots(world)
    new = await snapshots(world)
    with pytest.raises(FencedError):
        await old.put(10, [b"late"])
    assert (await new.load()).snapshots == ()
    await new.put(5, [b"now"])
    await world.settle()
    assert len(await world.there()) == 1


async def test_an_upload_that_was_not_listed_is_an_orphan(world: MaintenanceWorld) -> None:
    owned = await snapshots(world)
    await owned.put(10, [b"first"])
    with crash_on("heap.snapshot-uploaded"), pytest.raises(CrashError):
        await owned.put(20, [b"orphan"])
    assert len(await world.there()) == 2
    again = await snapshots(world)
    await world.settle()
    assert [each.offset for each in again.list.snapshots] == [10]
    assert len(await world.dooms()) == 1  # it could still be listed
    await again.put(30, [b"second"])
    await expire_deletion_marks(await world.lease(SWEEPER), world.context())
    assert await world.keys(DELETION_MARKS) == []


async def test_a_snapshot_that_the_sweeper_takes_for_an_orphan_is_not_listed(world: MaintenanceWorld) -> None:
    owned = await snapshots(world)
    put = world.objects.put

    async def slow(key: str, body: object) -> object:
        stored = await put(key, body)  # type: ignore[arg-type]
        world.clock.advance_ms(world.settings.orphan_grace_ms)
        assert (await sweep_orphans(await world.lease(SWEEPER), world.context())).deleted == 1
        return stored

    world.objects.put = slow  # type: ignore[method-assign, assignment]
    with pytest.raises(UnavailableError):
        await owned.put(10, [b"slow"])
    world.objects.put = put  # type: ignore[method-assign]
    assert (await owned.load()).snapshots == ()
    assert await world.there() == set()
    await owned.put(11, [b"quick"])
    assert len((await owned.load()).snapshots) == 1


async def test_the_snapshots_of_a_deleted_topic_go(world: MaintenanceWorld) -> None:
    owned = await snapshots(world)
    await owned.put(10, [b"a"])
    await owned.put(20, [b"b"])
    await delete_topic(world, "orders")
    await world.settle()
    assert await world.there() == set()
