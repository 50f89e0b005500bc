"""A sweeper deletes what is its own cluster's and nothing else, whatever store it was started on (docs/safety.md, rule 20)."""

import tracemalloc
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.support.maintenance import HOUR_MS, MaintenanceWorld, delete_topic, leave_orphans, other_store

from holdfast.contracts.objects import ObjectInfo
from holdfast.kernel.objects_owner import SKEW_MS, ObjectsOwner, adopt_objects, claim_objects
from holdfast.kernel.owner_mark import NotOwnerError, TimeSpan
from holdfast.log.keys import deleted_key
from holdfast.log.maintenance import (
    SWEEPER,
    collect_trash,
    delete_records,
    roll_up_segment_keys,
    sweep_orphans,
)
from holdfast.objects.memory import MemoryObjects
from holdfast.vocabulary.settings import MIB

DAY_MS = 24 * HOUR_MS


class Release010(ObjectsOwner):
    """What release 0.1.0 did: everything below the bucket's prefix is ours."""

    @property
    def prefix(self) -> str:
        return ""

    async def check(self) -> None:
        return

    async def unproven(self, *, keep_ms: int) -> Sequence[TimeSpan]:
        return ()


def unchecked(world: MaintenanceWorld) -> ObjectsOwner:
    return Release010(world.store, world.objects, cluster="any", clock=world.clock, random=world.random)


async def test_the_sweeper_of_another_store_is_refused_and_deletes_nothing(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 70)
    await roll_up_segment_keys(partition, world.context())
    await leave_orphans(world, partition)
    before = await world.there()
    world.clock.advance_ms(2 * HOUR_MS)
    async with other_store(world) as other:
        lease = await other.lease(SWEEPER)
        with pytest.raises(NotOwnerError) as refused:
            await sweep_orphans(lease, other.context())
        assert world.owner.cluster in str(refused.value)
        assert other.owner.cluster in str(refused.value)
    assert await world.there() == before
    assert len(await world.read()) == 140


async def test_without_the_check_it_would_delete_all_that_was_published(world: MaintenanceWorld) -> None:
    world.owner = unchecked(world)
    await world.fill(await world.open(), 5)
    assert len(await world.there()) == 5
    world.clock.advance_ms(2 * HOUR_MS)
    async with other_store(world) as other:
        other.owner = unchecked(other)
        await sweep_orphans(await other.lease(SWEEPER), other.context())
    assert await world.there() == set()


async def test_after_an_adoption_the_objects_of_the_former_cluster_are_still_there(world: MaintenanceWorld) -> None:
    await world.fill(await world.open(), 5)
    before = await world.there()
    async with other_store(world) as other:
        await other.owner.adopt(force=True)
        world.clock.advance_ms(100 * DAY_MS)
        await other.sweep()
        with pytest.raises(NotOwnerError):
            await sweep_orphans(await world.lease(SWEEPER), world.context())
    assert await world.there() == before


async def test_trash_is_not_collected_from_objects_that_were_adopted(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 5)
    await delete_records(partition, 8, world.context())
    before = await world.there()
    world.clock.advance_ms(HOUR_MS)
    async with other_store(world) as other:
        await other.owner.adopt(force=True)
        with pytest.raises(NotOwnerError):
            await collect_trash(await world.lease(SWEEPER), world.context())
    assert await world.there() == before


async def test_a_backup_too_young_to_be_found_out_keeps_what_it_lost(world: MaintenanceWorld) -> None:
    """No mark was put after the backup, so the restored store looks like the one that was lost."""
    partition = await world.open()
    await world.fill(partition, 2)
    backup = (await world.memory.scan("", "\U0010ffff")).entries
    await world.fill(partition, 3)
    published = await world.there()
    async with other_store(world, entries=backup) as restored:
        restored.owner = await claim_objects(
            restored.store, world.objects, clock=world.clock, random=restored.random
        )  # nothing is wrong as far as it can tell
        for _ in range(20):
            world.clock.advance_ms(DAY_MS)
            await restored.owner.raise_mark(unproven_keep_ms=restored.settings.unproven_keep_ms)
            swept = await sweep_orphans(await restored.lease(SWEEPER), restored.context())
            assert swept.deleted == 0
        assert await world.there() == published
        world.clock.advance_ms(10 * DAY_MS + SKEW_MS)
        await restored.sweep()
    assert len(await world.there()) == 2


async def test_a_server_that_runs_on_collects_orphans_after_their_grace(world: MaintenanceWorld) -> None:
    await leave_orphans(world, await world.open())
    world.clock.advance_ms(2 * HOUR_MS)
    await world.owner.raise_mark(unproven_keep_ms=world.settings.unproven_keep_ms)
    assert (await sweep_orphans(await world.lease(SWEEPER), world.context())).deleted == 1


async def test_keys_of_release_010_are_swept_only_if_the_store_knows_their_topics(world: MaintenanceWorld) -> None:
    owner, world.owner = world.owner, unchecked(world)  # writes as 0.1.0 did
    await leave_orphans(world, await world.open(0), await world.open(1))
    await leave_orphans(world, await world.open(2))
    async with other_store(world) as other:
        other.owner = unchecked(other)
        await leave_orphans(other, await other.open(0, topic="theirs"), await other.open(1, topic="theirs"))
        await leave_orphans(other, await other.open(2, topic="theirs"))
    assert len(await world.there()) == 4
    world.owner = owner
    world.clock.advance_ms(2 * HOUR_MS)
    swept = await sweep_orphans(await world.lease(SWEEPER), world.context())
    assert (swept.deleted, swept.unjudged) == (2, 2)
    assert not any("6f7264657273" in key for key in await world.there())


async def test_what_a_deleted_topic_left_under_keys_of_release_010_goes(world: MaintenanceWorld) -> None:
    owner, world.owner = world.owner, unchecked(world)
    partition = await world.open()
    await world.fill(partition, 70)
    await roll_up_segment_keys(partition, world.context())
    await leave_orphans(world, partition)
    world.owner = owner
    await delete_topic(world)
    assert await world.memory.get(deleted_key(partition.partition_id.topic_id)) is not None
    await world.settle()
    assert await world.there() == set()


class Crowd(MemoryObjects):
    """Many thousand objects, which take no RAM of their own; every hundredth is old."""

    count = 0
    now_ms = 0

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, after=after):
            yield info
        if prefix.endswith("/segments/"):
            for n in range(self.count):
                yield ObjectInfo(
                    f"{prefix}{n:032x}/0/{0:020d}-{1:020d}-1-{n:020x}.strm", 1, self.now_ms if n % 100 else 1
                )


@pytest.mark.slow
async def test_a_sweep_of_many_thousand_objects_takes_little_memory(world: MaintenanceWorld) -> None:
    crowd = Crowd(clock=world.clock)
    crowd.count = 50_000
    world.objects = crowd
    await adopt_objects(world.store, crowd, clock=world.clock, random=world.random)
    world.owner = await claim_objects(world.store, crowd, clock=world.clock, random=world.random)
    world.clock.advance_ms(2 * HOUR_MS)
    crowd.now_ms = world.clock.now_ms()
    lease = await world.lease(SWEEPER)
    store = UnmarkingStore(world)
    tracemalloc.start()
    try:
        swept = await sweep_orphans(lease, world.context(store=store))  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert swept.deleted == crowd.count // 100
    assert peak < 4 * MIB


class UnmarkingStore:
    """Takes marks for deletion without keeping them: this test is about the sweeper's memory, not about the store's."""

    def __init__(self, world: MaintenanceWorld) -> None:
        self._store = world.store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, *, require: Sequence[object] = (), apply: Sequence[object] = ()) -> object:
        return await self._store.commit(require=require, apply=())  # type: ignore[arg-type]
