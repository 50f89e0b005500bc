"""The upkeep of an agent: everything is bounded by itself, one agent sweeps, and nothing that goes wrong stops the rest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.support.maintenance import HOUR_MS, MaintenanceWorld, delete_topic, leave_orphans
from tests.support.waiting import until_in_fake_time

from holdfast.kernel.keys import EPOCHS, holder_key
from holdfast.kernel.lease import release
from holdfast.kernel.objects_owner import read_mark
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.log.keys import DELETED, REPLICA_SETS
from holdfast.log.maintenance import (
    SWEEPER,
    MaintainedAgent,
    MaintenanceSettings,
    delete_records,
    loop,
    run_maintenance,
)
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.replica_sets import replica_set_write
from holdfast.vocabulary.errors import ExpiredError, InvalidError
from holdfast.vocabulary.tasks import background_tasks

KEEP = CleanupPolicy(retention_ms=None)


def maintained(
    world: MaintenanceWorld,
    *partitions: LeadingPartition,
    policy: CleanupPolicy = KEEP,
    agent: str = "ann",
    session: HeldSession | None = None,
) -> MaintainedAgent:
    return MaintainedAgent(
        agent=agent,
        session=session or world.session,
        partitions=lambda: partitions,
        policy=lambda _: policy,
    )


@asynccontextmanager
async def upkeep(world: MaintenanceWorld, work: MaintainedAgent) -> AsyncIterator[None]:
    async with background_tasks(run_maintenance(work, world.context())):
        yield


async def maintained_until(
    world: MaintenanceWorld, done: Callable[[], object], *, within_ms: int = 5 * HOUR_MS
) -> None:
    """Let time pass until it is so; compaction and folding also need real threads to come back."""

    async def holds() -> object:
        await asyncio.to_thread(lambda: None)
        return done()

    await until_in_fake_time(world.clock, holds, within_ms=within_ms, step_ms=1_000)


@pytest.mark.slow
async def test_keys_are_folded_and_old_segments_go_by_themselves(world: MaintenanceWorld) -> None:
    partition = await world.open()
    async with upkeep(world, maintained(world, partition, policy=CleanupPolicy(retention_ms=HOUR_MS))):
        await world.fill(partition, 100, each_ms=0)
        await maintained_until(world, lambda: len(partition.segments.recent) <= 64, within_ms=60_000)
        await maintained_until(world, lambda: partition.record.start == 200)
        assert await world.read() == []
        for _ in range(1_000):
            await world.clock.run_for_ms(5_000, step_ms=1_000)
            if not await world.there():
                break
    assert await world.there() == set()


async def test_a_compacted_topic_is_compacted_and_keeps_its_old_records(world: MaintenanceWorld) -> None:
    partition = await world.open()
    policy = CleanupPolicy(compact=True, delete=False, retention_ms=1, min_dirty_ratio=0.1)
    for at in range(10):
        await world.append(partition, [(b"a", b"%d" % at)])
        await world.publish(partition)
    async with upkeep(world, maintained(world, partition, policy=policy)):
        await maintained_until(world, lambda: partition.segments.recent[0].compacted_at_ms > 0)
        assert [each.offset for each in await world.read()] == [9]
        await world.clock.run_for_ms(HOUR_MS, step_ms=10_000)
        assert [each.offset for each in await world.read()] == [9]


@pytest.mark.slow
async def test_one_agent_sweeps_and_another_takes_over(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await leave_orphans(world, partition)
    async with hold_session(
        world.memory,
        clock=world.clock,
        random=world.random,
        settings=SessionSettings(ttl_ms=10**12, renew_ms=10**11, margin_ms=0, stall_ms=0),
    ) as other:
        async with (
            upkeep(world, maintained(world, agent="bob", session=other)),
            upkeep(world, maintained(world, agent="ann")),
        ):
            await world.clock.run_for_ms(60_000, step_ms=1_000)
            entry = await world.memory.get(holder_key(SWEEPER))
            assert entry is not None
            assert b"bob" in entry.value
        async with upkeep(world, maintained(world, agent="ann")):
            await world.clock.run_for_ms(60_000, step_ms=1_000)
            entry = await world.memory.get(holder_key(SWEEPER))
            assert entry is not None
            assert b"ann" in entry.value
            await world.clock.run_for_ms(3 * HOUR_MS, step_ms=10_000)
    assert await world.there() == set()


@pytest.mark.slow
async def test_a_deleted_topic_goes_by_itself(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 70)
    replicated = PartitionRecord(opened_epoch=1, opened_replicas=("one", "two"), in_sync=("one",))
    await world.memory.commit(apply=(replica_set_write(partition.partition_id, replicated),))
    await delete_topic(world)
    async with upkeep(world, maintained(world)):
        await world.clock.run_for_ms(3 * HOUR_MS, step_ms=10_000)
    assert await world.there() == set()
    assert await world.keys("log/") == []
    assert await world.keys(REPLICA_SETS) == []
    assert await world.keys(DELETED) == []


async def test_a_lost_partition_does_not_stop_the_maintenance_of_the_others(world: MaintenanceWorld) -> None:
    lost, kept = await world.open(0), await world.open(1)
    for partition in (lost, kept):
        await world.fill(partition, 70, each_ms=0)
    await world.open(0)
    async with upkeep(world, maintained(world, lost, kept)):
        await maintained_until(world, lambda: len(kept.segments.recent) <= 64, within_ms=60_000)
    assert len(lost.segments.recent) == 70


@pytest.mark.slow
async def test_damage_is_logged_and_skipped(world: MaintenanceWorld, caplog: pytest.LogCaptureFixture) -> None:
    damaged, sound = await world.open(0), await world.open(1)
    for partition in (damaged, sound):
        await world.fill(partition, 150, each_ms=0)
    async with upkeep(world, maintained(world, damaged, sound)):
        await maintained_until(world, lambda: len(damaged.segments.recent) <= 64 and len(sound.segments.recent) <= 64)
        await world.objects.delete([damaged.segments.indexes[0].object])
        for partition in (damaged, sound):
            await world.fill(partition, 70, each_ms=0)
        await maintained_until(world, lambda: len(sound.segments.recent) <= 64)
        await world.clock.run_for_ms(60_000, step_ms=1_000)
    told = [each for each in caplog.messages if "failed, and will fail until the damage is repaired" in each]
    assert told
    assert len(set(told)) == len(told), "once, and not in every round"


async def test_a_store_that_is_away_for_a_while_is_waited_for(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 70, each_ms=0)
    async with upkeep(world, maintained(world, partition)):
        world.store.reachable = False
        await world.clock.run_for_ms(120_000, step_ms=1_000)
        assert len(partition.segments.recent) == 70
        world.store.reachable = True
        await maintained_until(world, lambda: len(partition.segments.recent) <= 64)
    assert len(await world.read()) == 140


@pytest.mark.slow
async def test_an_outage_is_one_line_for_all_partitions_and_rounds(
    world: MaintenanceWorld, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = [await world.open(number) for number in range(3)]
    async with upkeep(world, maintained(world, *partitions)):
        for _ in range(2):
            for partition in partitions:
                await world.fill(partition, 70, each_ms=0)
            world.store.reachable = False
            await world.clock.run_for_ms(60_000, step_ms=1_000)
            world.store.reachable = True
            await maintained_until(world, lambda: all(len(each.segments.recent) <= 64 for each in partitions))
            await world.clock.run_for_ms(10_000, step_ms=1_000)
    told = [each for each in caplog.messages if each.startswith("segment key roll-up of")]
    assert len(told) == 2, told
    assert all("of 3 partitions failed, retrying later: store is unavailable" in each for each in told)


async def test_maintenance_ends_with_the_session(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 2)
    running = asyncio.ensure_future(run_maintenance(maintained(world, partition), world.context()))
    await world.clock.run_for_ms(10_000)
    world.session.deadline_ms = 0
    with pytest.raises(ExpiredError):
        await world.passing(_awaited(running))


async def _awaited(task: "asyncio.Future[None]") -> None:
    await task


async def test_a_pipeline_is_asked_every_time(world: MaintenanceWorld) -> None:
    partition = await world.open()
    await world.fill(partition, 5)
    pending: list[int | None] = [4]
    work = replace(maintained(world, partition, policy=CleanupPolicy(retention_ms=1)), protect=lambda _: pending[0])
    async with upkeep(world, work):
        await world.clock.run_for_ms(HOUR_MS // 4, step_ms=10_000)
        assert partition.record.start == 4
        pending[0] = None
        await maintained_until(world, lambda: partition.record.start == 10)
    assert await delete_records(partition, 10, world.context()) == 10


def test_settings_refuse_what_cannot_be() -> None:
    with pytest.raises(InvalidError):
        MaintenanceSettings(grace_ms=-1)
    with pytest.raises(InvalidError):
        MaintenanceSettings(index_interval_ms=0)
    with pytest.raises(InvalidError):
        CleanupPolicy(min_dirty_ratio=1.5)
    with pytest.raises(InvalidError):
        CleanupPolicy(retention_ms=-2)


async def test_leases_of_deleted_topics_are_forgotten_and_the_objects_marked(world: MaintenanceWorld) -> None:
    lease = await world.lease("partition/gone/00000")
    await release(world.memory, lease, clock=world.clock, random=world.random)
    before = await read_mark(world.objects)
    async with upkeep(world, maintained(world)):
        await world.clock.run_for_ms(5 * world.settings.trash_interval_ms, step_ms=1_000)
        assert await world.keys(f"{EPOCHS}partition/gone/") == []
        after = await read_mark(world.objects)
    assert before is not None
    assert after is not None
    assert after.number >= before.number + 3


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    """How often the loop begins this work for a partition."""
    real, calls = getattr(loop, name), 0

    def count(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, name, count)
    return lambda: calls


async def test_a_partition_at_rest_is_not_visited_to_be_merged_or_compacted(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await world.open()
    await world.fill(partition, 3)
    merges, compactions = counted(monkeypatch, "merge_segments"), counted(monkeypatch, "compact")
    async with upkeep(world, maintained(world, partition)):
        await world.clock.run_for_ms(10 * world.settings.compaction_interval_ms, step_ms=1_000)
    assert merges() == 0
    assert compactions() == 0


async def test_a_list_in_which_nothing_was_to_be_merged_is_not_looked_at_again_until_it_changes(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settings = replace(world.settings, merge_bytes_max=2)  # every segment is large
    partition = await world.open()
    await world.fill(partition, 10)
    merges = counted(monkeypatch, "merge_segments")
    async with upkeep(world, maintained(world, partition)):
        await world.clock.run_for_ms(20 * world.settings.merge_interval_ms, step_ms=1_000)
        assert merges() == 1
        await world.fill(partition, 1)
        await world.clock.run_for_ms(20 * world.settings.merge_interval_ms, step_ms=1_000)
        assert merges() == 2
