"""Orphans and deleted topics: a sweeper and a publication may come in any order, and no record is lost in either."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from tests.support.maintenance import (
    HOUR_MS,
    CrashError,
    MaintenanceWorld,
    crash_at,
    delete_topic,
    leave_orphans,
)

from holdfast.contracts.objects import Buffer, Stored
from holdfast.contracts.store import Operation, Requirement
from holdfast.log.keys import DELETED, DELETION_MARKS, TRASH
from holdfast.log.maintenance import (
    SWEEPER,
    delete_records,
    expire_deletion_marks,
    purge_deleted,
    roll_up_segment_keys,
    sweep_orphans,
)
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.vocabulary.errors import ClosedError, FencedError


async def test_an_orphan_goes_once_it_is_old_and_not_before(world: MaintenanceWorld) -> None:
    await leave_orphans(world, await world.open())
    lease = await world.lease(SWEEPER)
    assert (await sweep_orphans(lease, world.context())).judged == 0
    world.clock.advance_ms(world.settings.orphan_grace_ms)
    assert (await sweep_orphans(lease, world.context())).deleted == 1
    assert await world.there() == set()


async def test_a_shared_orphan_goes_too(world: MaintenanceWorld) -> None:
    await leave_orphans(world, await world.open(0), await world.open(1))
    assert len(await world.there()) == 1
    await world.settle()
    assert await world.there() == set()


async def test_what_is_named_or_in_the_trash_is_no_orphan(world: MaintenanceWorld) -> None:
    world.settings = replace(world.settings, grace_ms=10 * HOUR_MS)
    partition = await world.open()
    await world.fill(partition, 70)
    await roll_up_segment_keys(partition, world.context())
    await delete_records(partition, 20, world.context())
    before = await world.there()
    world.clock.advance_ms(2 * HOUR_MS)
    swept = await sweep_orphans(await world.lease(SWEEPER), world.context())
    assert (swept.deleted, swept.spared) == (0, 0)
    assert await world.there() == before


async def test_what_cannot_be_checked_is_never_deleted(world: MaintenanceWorld) -> None:
    await world.objects.put("shared/foreign.strm", [b"no directory"])
    await world.objects.put("segments/odd/name", [b"?"])
    world.clock.advance_ms(2 * HOUR_MS)
    swept = await sweep_orphans(await world.lease(SWEEPER), world.context())
    assert (swept.unjudged, swept.deleted) == (2, 0)
    assert len(await world.there()) == 2


class SlowObjects:
    """Stores at once, and answers when it is let."""

    def __init__(self, world: MaintenanceWorld) -> None:
        self._world = world
        self.stored, self.answer = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.objects, name)

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored:
        stored = await self._world.objects.put(key, body)
        self.stored.set()
        await self.answer.wait()
        assert isinstance(stored, Stored)
        return stored


@pytest.mark.parametrize("together", [1, 2])
async def test_a_publication_after_the_deletion_mark_is_refused_and_repeated(
    world: MaintenanceWorld, together: int
) -> None:
    partitions = [await world.open(number) for number in range(together)]
    for partition in partitions:
        await world.append(partition, [(b"k", b"v")])
    slow = SlowObjects(world)
    publisher = SegmentPublisher(
        store=world.store,
        objects=slow,  # type: ignore[arg-type]
        clock=world.clock,
        random=world.random,
        settings=world.log_settings,
    )
    publishing = asyncio.ensure_future(publisher.publish(partitions))
    await slow.stored.wait()
    world.clock.advance_ms(world.settings.orphan_grace_ms)
    lease = await world.lease(SWEEPER)
    assert (await sweep_orphans(lease, world.context())).deleted == 1
    assert await expire_deletion_marks(lease, world.context()) == 0  # the publication may still come
    slow.answer.set()
    assert await publishing == []  # nothing was lost, nothing was published
    assert all(partition.record.published == 0 for partition in partitions)
    await world.publish(*partitions)
    assert await expire_deletion_marks(lease, world.context()) == 1
    assert await world.dooms() == []
    for partition in partitions:
        assert len(await world.read(partition.partition_id.number)) == 1
    await world.settle()


class Meddling:
    """A store in which something happens right before the first commit that mentions a key."""

    def __init__(self, world: MaintenanceWorld, marker: str, work: Callable[[], Awaitable[None]]) -> None:
        self._world, self._marker, self._work = world, marker, work

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.store, name)

    async def commit(self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()) -> object:
        if self._marker and any(each.key.startswith(self._marker) for each in apply):
            self._marker = ""
            await self._work()
        return await self._world.store.commit(require=require, apply=apply)


async def test_a_publication_before_the_deletion_mark_is_seen_and_the_object_spared(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.append(partition, [(b"k", b"v")])
    slow = SlowObjects(world)
    publisher = SegmentPublisher(
        store=world.store,
        objects=slow,  # type: ignore[arg-type]
        clock=world.clock,
        random=world.random,
        settings=world.log_settings,
    )
    publishing = asyncio.ensure_future(publisher.publish([partition]))
    await slow.stored.wait()
    world.clock.advance_ms(world.settings.orphan_grace_ms)

    async def publish() -> None:
        slow.answer.set()
        assert await publishing == []

    lease = await world.lease(SWEEPER)
    context = world.context(store=Meddling(world, DELETION_MARKS, publish))  # type: ignore[arg-type]
    swept = await sweep_orphans(lease, context)
    assert (swept.deleted, swept.spared) == (0, 1)
    assert await world.dooms() == []
    assert partition.record.published == 1
    assert len(await world.read()) == 1


async def test_a_crash_at_any_step_of_a_sweep_is_finished_by_the_next(world: MaintenanceWorld) -> None:
    for step in range(10):
        partition = await world.open()
        await world.fill(partition, 2)
        expected = await world.read()
        await leave_orphans(world, partition)
        partition = await world.open()
        world.clock.advance_ms(2 * HOUR_MS)
        crashed = False
        try:
            with crash_at(step):
                await sweep_orphans(await world.lease(SWEEPER), world.context())
        except CrashError:
            crashed = True
        assert await world.read() == expected
        await world.settle()
        await world.fill(partition, 1)  # no doom outlives the next change of the partition's record
        await world.settle()
        assert await world.dooms() == []
        if not crashed:
            return
    pytest.fail("there are more steps than crashes")


async def test_every_object_is_checked_once_and_all_of_them_now_and_then(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 5)
    lease = await world.lease(SWEEPER)
    world.clock.advance_ms(3 * HOUR_MS)
    assert (await sweep_orphans(lease, world.context())).judged == 5
    await world.fill(partition, 1)
    world.clock.advance_ms(3 * HOUR_MS)
    assert (await sweep_orphans(lease, world.context())).judged == 1
    world.clock.advance_ms(world.settings.orphan_full_interval_ms)
    assert (await sweep_orphans(lease, world.context())).judged == 6


async def test_a_sweeper_that_was_replaced_deletes_nothing(world: MaintenanceWorld) -> None:
    await leave_orphans(world, await world.open())
    former = await world.lease(SWEEPER)
    await world.lease(SWEEPER)
    world.clock.advance_ms(2 * HOUR_MS)
    with pytest.raises(FencedError):
        await sweep_orphans(former, world.context())
    assert len(await world.there()) == 1


async def test_a_deleted_topic_goes_wholly_and_its_neighbour_stays(world: MaintenanceWorld) -> None:
    orders = [await world.open(number) for number in range(3)]
    other = await world.open(topic="other")
    for _ in range(70):
        for partition in (*orders, other):
            await world.append(partition, [(b"k", b"v")])
        await world.publish(*orders, other)
    for partition in orders[:2]:
        await roll_up_segment_keys(partition, world.context())
    await leave_orphans(world, orders[0])
    await delete_topic(world)
    await world.settle()
    await world.settle()
    assert await world.keys(f"log/{b'orders'.hex()}/") == []
    assert await world.keys(DELETED) == []
    assert len(await world.read(topic="other")) == 70


@pytest.mark.slow
async def test_a_crash_between_commits_of_a_purge_is_finished_by_the_next(world: MaintenanceWorld) -> None:
    for step in range(10):
        topic = f"topic{step}"
        partitions = [await world.open(number, topic=topic) for number in range(2)]
        for partition in partitions:
            await world.fill(partition, 50)
        await delete_topic(world, topic)
        crashed = False
        try:
            with crash_at(step):
                await purge_deleted(await world.lease(SWEEPER), world.context())
        except CrashError:
            crashed = True
        await world.settle()
        assert await world.there() == set()
        if not crashed:
            return
    pytest.fail("there are more steps than crashes")


async def test_a_topic_that_is_half_purged_takes_no_publication(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 60)
    await world.append(partition, [(b"k", b"v")])
    await delete_topic(world)
    with pytest.raises(CrashError), crash_at(0):
        await purge_deleted(await world.lease(SWEEPER), world.context())
    assert await world.keys("log/") != []
    assert await world.publisher().publish([partition]) == [partition]
    await world.settle()
    assert await world.there() == set()


async def test_a_leader_that_has_not_seen_the_deletion_cannot_publish(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 2)
    await world.append(partition, [(b"k", b"v")])
    await delete_topic(world)
    lease = await world.lease(SWEEPER)
    assert await purge_deleted(lease, world.context()) > 0
    assert await world.publisher().publish([partition]) == [partition]
    with pytest.raises(ClosedError):
        await world.open()  # not as if it were a new topic
    await world.settle()
    assert await world.there() == set()
    assert await world.keys("log/") == []
    assert await world.keys(TRASH) == []
