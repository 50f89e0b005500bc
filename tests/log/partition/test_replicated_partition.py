"""A partition whose tail three agents keep: what is acknowledged, who may acknowledge it, and what outlives whom."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.partitions import ORDERS, OTHER, Owner, append, append_run, batch, published, stored
from tests.support.replication.partitions import (
    LAG_MS,
    ReplicatedWorld,
    next_epoch,
    open_replicated,
    replicated,
    values,
    visible,
)
from tests.support.waiting import async_until

from holdfast.contracts.store import Delete, Put
from holdfast.kernel.lease import Lease, commit_fenced, release
from holdfast.log.errors import EpochSpentError, NotEnoughReplicasError, NotLeaderError, ReplicasUnreachableError
from holdfast.log.keys import replica_set_key, wal_key
from holdfast.log.maintenance import delete_records
from holdfast.log.model import ACKS_LEADER, ACKS_NONE, PartitionConfig
from holdfast.log.partition.drain import drain_to_replicas
from holdfast.log.partition.ended_logs import EndedLog, EndedLogs
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition.takeover import open_partition, open_partitions
from holdfast.log.partition.takeover_recovery import PartitionTakeover
from holdfast.log.replica_sets import read_replica_set
from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.positions import Position
from holdfast.log.settings import LeadershipSettings
from holdfast.vocabulary.errors import FencedError, HoldfastError, OutcomeUnknownError
from holdfast.vocabulary.settings import KIB

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ReplicatedWorld]:
    made = ReplicatedWorld(tmp_path)
    yield made
    for owner in made.owners:
        await owner.end()


def sent(sequence: int) -> bytes:
    return batch(f"sequence {sequence}", producer=7, sequence=sequence)


def log_end(world: ReplicatedWorld, owner: Owner, partition: LeadingPartition) -> int:
    """Where the replica of an agent ends."""
    hosted = world.hosts[owner.name].get(partition.wal_key)
    return -1 if hosted is None or hosted.replica is None else hosted.replica.log.position.offset


async def test_what_is_acknowledged_is_on_the_disks_of_the_set_that_the_store_names(world: ReplicatedWorld) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    record = await stored(world)
    wals = world.wals("ann", "bob", "carol")
    assert (record.level, record.opened_epoch, record.opened_replicas) == ("quorum", 1, wals)
    assert set(record.in_sync) <= set(wals)
    assert len(record.in_sync) >= 2
    shown = await world.store.get(replica_set_key(partition.partition_id.topic_id, 0))
    assert shown is not None
    assert read_replica_set(shown).replicas == wals
    for n in range(3):
        assert (await append(partition, batch(f"a{n}", f"b{n}"))).base_offset == 2 * n
    await append_run(partition, batch("c"), batch("d"))
    assert partition.high_watermark == 8
    assert values(visible(partition)) == ["a0", "b0", "a1", "b1", "a2", "b2", "c", "d"]
    await async_until(lambda: all(log_end(world, each, partition) == 8 for each in (ann, bob, carol)))


async def test_after_the_death_of_a_leader_another_has_every_acknowledged_record_once(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    for n in range(5):
        await append(partition, sent(n))
    await append_run(partition, batch("x"), batch("y"))
    await world.kill(ann)
    taken = await open_replicated(bob)
    assert taken.members == world.wals("bob", "carol")
    assert values(visible(taken)) == [f"sequence {n}" for n in range(5)] + ["x", "y"]
    again = await append(taken, sent(4))
    assert (again.base_offset, again.duplicate) == (4, True)
    assert (await append(taken, sent(5))).base_offset == 7
    assert [each.epoch for each in taken.epochs] == [1, 2]


async def test_a_leader_that_wakes_after_another_was_elected_is_refused_everywhere(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    old = await open_replicated(ann)
    await append(old, batch("a"))
    await world.store.close_session(ann.session.id)
    world.cluster.isolate(ann.wal_id)
    new = await open_replicated(bob)
    await append(new, batch("b"))
    late = asyncio.ensure_future(append(old, batch("late")))
    await async_until(lambda: log_end(world, ann, old) == 2)
    assert values(visible(old)) == ["a"]
    world.cluster.heal(ann.wal_id, bob.wal_id)
    with pytest.raises(FencedError):
        await late
    with pytest.raises(NotLeaderError):
        await append(old, batch("later"))
    assert old.ended is not None
    assert old.ended.promised == 2
    assert values(visible(new)) == ["a", "b"]


async def test_an_append_waits_for_a_majority_and_acks_1_for_the_own_disk_alone(world: ReplicatedWorld) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, batch("a"))
    for other in (bob, carol):
        world.cluster.cut(ann.wal_id, other.wal_id)
    await append(partition, batch("b"), acks=ACKS_LEADER)
    waiting = asyncio.ensure_future(append(partition, batch("c")))
    await async_until(lambda: log_end(world, ann, partition) == 3)
    assert (partition.high_watermark, partition.next_offset) == (1, 3)
    assert values(visible(partition)) == ["a"]
    assert partition.publishable()
    assert partition.publishable()[-1].end_offset == 1
    world.cluster.heal(ann.wal_id, bob.wal_id)
    assert (await waiting).base_offset == 2
    assert values(visible(partition)) == ["a", "b", "c"]


async def test_a_tail_is_handed_over_when_those_that_stay_have_it_and_not_when_they_keep_up_otherwise(
    world: ReplicatedWorld,
) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, batch("a"))
    await async_until(lambda: len(partition.in_sync) == 3)
    staying = world.wals("bob", "carol")
    assert partition.can_move_to(staying)
    world.cluster.cut(ann.wal_id, bob.wal_id)
    await append(partition, batch("b"))  # durable: it is here and at Carol's
    assert not partition.can_move_to(staying)
    draining = asyncio.ensure_future(drain_to_replicas(partition, staying, LeadershipSettings()))
    await async_until(lambda: not partition.accepting)
    await async_until(lambda: log_end(world, carol, partition) == 2)
    assert not draining.done()
    world.cluster.heal(ann.wal_id, bob.wal_id)
    assert await draining
    assert log_end(world, bob, partition) == 2


async def test_a_tail_that_those_who_stay_do_not_get_in_time_is_not_handed_over(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    await async_until(lambda: len(partition.in_sync) == 3)
    world.cluster.cut(ann.wal_id, bob.wal_id)
    await append(partition, batch("a"))
    assert not await drain_to_replicas(partition, world.wals("bob", "carol"), LeadershipSettings(drain_refuse_ms=1))
    await append(partition, batch("b"))
    assert values(visible(partition)) == ["a", "b"]


async def test_an_idempotent_duplicate_is_answered_when_the_first_is_on_a_majority(world: ReplicatedWorld) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    for other in (bob, carol):
        world.cluster.cut(ann.wal_id, other.wal_id)
    await append(partition, sent(1), acks=ACKS_NONE)
    again = asyncio.ensure_future(append(partition, sent(1)))
    await async_until(lambda: log_end(world, ann, partition) == 2)
    assert not again.done()
    world.cluster.heal(ann.wal_id, carol.wal_id)
    assert ((await again).base_offset, again.result().duplicate) == (1, True)


async def test_without_enough_replicas_in_sync_nothing_is_appended(world: ReplicatedWorld) -> None:
    ann, _, carol = await world.three()
    partition = await open_replicated(ann, replicated(min_insync=3))
    await async_until(lambda: len(partition.in_sync) == 3)
    await append(partition, batch("on three"))
    world.cluster.cut(ann.wal_id, carol.wal_id)
    waiting = asyncio.ensure_future(append(partition, batch("on two")))
    await async_until(lambda: log_end(world, ann, partition) == 2)
    await fall_behind(partition, carol)
    with pytest.raises(NotEnoughReplicasError) as error:
        await append(partition, batch("refused"))
    assert (error.value.in_sync, error.value.needed, error.value.appended) == (2, 3, False)
    assert (partition.next_offset, partition.high_watermark) == (2, 1)
    world.cluster.heal(ann.wal_id, carol.wal_id)
    assert (await waiting).base_offset == 1
    partition.check_members(world.clock.boot_ms(), LAG_MS)
    assert (await append(partition, batch("on three again"))).base_offset == 2


async def fall_behind(partition: ReplicatedPartition, *owners: Owner) -> None:
    """As if the lag had passed since these were heard of, and the others were heard of just now."""
    later_ms = partition._clock.boot_ms() + LAG_MS + 1
    away = {each.wal_id for each in owners}
    for member in partition.members:
        if member not in away:
            partition._leader.heard(member, later_ms)
    partition.check_members(later_ms, LAG_MS)


async def test_a_slow_replica_leaves_the_in_sync_set_and_returns_by_what_is_published(world: ReplicatedWorld) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await async_until(lambda: len(partition.in_sync) == 3)
    world.cluster.cut(ann.wal_id, carol.wal_id)
    for n in range(3):
        await append(partition, batch(f"missed {n}"))
    await fall_behind(partition, carol)
    await partition.commit_in_sync()
    assert (await stored(world)).in_sync == world.wals("ann", "bob")
    assert await ann.publisher.publish([partition]) == []
    record = await stored(world)
    assert (record.published, record.published_epoch) == (3, 1)
    await append(partition, batch("behind it"))
    assert await ann.publisher.publish([partition]) == []
    await append(partition, batch("after that"))
    assert log_end(world, carol, partition) == 0
    world.cluster.heal(ann.wal_id, carol.wal_id)
    await async_until(lambda: log_end(world, carol, partition) == 5)
    hosted = world.hosts["carol"].get(partition.wal_key)
    assert hosted is not None
    assert hosted.replica is not None
    assert hosted.replica.log.base.offset == 4  # it has never seen what lies below
    assert partition.check_members(world.clock.boot_ms(), LAG_MS)
    await partition.commit_in_sync()
    assert (await stored(world)).in_sync == world.wals("ann", "bob", "carol")
    await world.kill(ann)
    await world.kill(bob)
    bob = await world.owner("bob")
    taken = await open_replicated(carol)
    assert values(visible(taken)) == ["after that"]
    assert values(await published(world)) == ["missed 0", "missed 1", "missed 2", "behind it"]


async def test_what_is_published_is_released_by_every_replica(world: ReplicatedWorld) -> None:
    owners = await world.three()
    partition = await open_replicated(owners[0])
    for _ in range(40):
        await append(partition, batch("x" * 20 * KIB))
        assert await owners[0].publisher.publish([partition]) == []
    partition.announce()
    for owner in owners:
        wal = owner.wal
        await async_until(lambda wal=wal: wal.live_bytes <= 3 * 256 * KIB)  # type: ignore[misc]
    assert len(await published(world)) == 40
    assert partition.unpublished_frames() == []


async def test_all_three_are_started_again_and_nothing_is_lost(world: ReplicatedWorld) -> None:
    owners = await world.three()
    partition = await open_replicated(owners[0])
    for n in range(3):
        await append(partition, sent(n))
    for owner in owners:
        await world.kill(owner)
    ann, _, _ = await world.three()
    taken = await open_replicated(ann)
    assert values(visible(taken)) == [f"sequence {n}" for n in range(3)]
    assert (await append(taken, sent(2))).duplicate
    assert (await append(taken, sent(3))).base_offset == 3


async def test_a_full_disk_of_the_leader_ends_it_and_no_offset_is_given_twice(world: ReplicatedWorld) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    ended: list[ReplicatedPartition] = []
    partition.on_ended = ended.append
    world.cluster.cut(ann.wal_id, bob.wal_id)
    world.cluster.cut(ann.wal_id, carol.wal_id)
    ann.disk.full = True
    with pytest.raises(FencedError):
        await append(partition, sent(1))
    assert ended == [partition]
    with pytest.raises(NotLeaderError):
        await append(partition, sent(2))
    ann.disk.full = False
    world.cluster.heal(ann.wal_id, bob.wal_id)
    world.cluster.heal(ann.wal_id, carol.wal_id)
    with pytest.raises(EpochSpentError):
        await open_replicated(ann, lease=partition.lease)
    taken = await open_replicated(ann, lease=await next_epoch(ann, partition.lease))
    again = [await append(taken, sent(n)) for n in range(1, 3)]
    assert [each.base_offset for each in again] == [1, 2]
    assert values(visible(taken)) == [f"sequence {n}" for n in range(3)]


async def test_a_full_disk_of_the_leader_loses_nothing_that_two_others_have(world: ReplicatedWorld) -> None:
    ann, _, _ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    ann.disk.full = True
    answers = await asyncio.gather(*(append(partition, sent(n)) for n in range(1, 4)), return_exceptions=True)
    # The others may have had all of them before this disk refused one.
    await async_until(lambda: partition.ended is not None)
    ann.disk.full = False
    taken = await open_replicated(ann, lease=await next_epoch(ann, partition.lease))
    found = values(visible(taken))
    acknowledged = [n for n, answer in enumerate(answers, 1) if not isinstance(answer, BaseException)]
    assert found[: 1 + len(acknowledged)] == [f"sequence {n}" for n in (0, *acknowledged)]
    for n in range(4):
        await append(taken, sent(n))
    assert values(visible(taken)) == [f"sequence {n}" for n in range(4)]


async def test_when_the_answer_to_the_open_commit_is_lost_it_is_found_out(world: ReplicatedWorld) -> None:
    ann, _, _ = await world.three()
    lease = await ann.acquire()
    ann.store.lose_answer_to("/state")
    partition = await open_replicated(ann, lease=lease)
    await append(partition, batch("a"))
    assert (await stored(world)).opened_epoch == lease.epoch


async def test_an_epoch_that_may_have_been_opened_is_not_used_again(
    world: ReplicatedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, _, _ = await world.three()
    lease = await ann.acquire()

    async def answer_lost(*given: Any, **named: Any) -> object:
        await commit_fenced(*given, **named)
        raise OutcomeUnknownError("the open commit", "on purpose")

    with monkeypatch.context() as patched:
        patched.setattr("holdfast.log.partition.takeover_commit.commit_fenced", answer_lost)
        with pytest.raises(OutcomeUnknownError):
            await open_replicated(ann, lease=lease)
    with pytest.raises(EpochSpentError, match="it was opened"):
        await open_replicated(ann, lease=lease)
    taken = await open_replicated(ann, lease=await next_epoch(ann, lease))
    assert (await append(taken, batch("a"))).base_offset == 0


async def test_of_two_replicas_one_dies_and_writes_wait_for_an_epoch_with_another(world: ReplicatedWorld) -> None:
    ann, bob = await world.owner("ann"), await world.owner("bob")
    partition = await open_replicated(ann, replicated(2))
    await append(partition, sent(0))
    await world.kill(bob)
    waiting = asyncio.ensure_future(append(partition, sent(1)))
    await async_until(lambda: log_end(world, ann, partition) == 2)
    await fall_behind(partition, bob)
    with pytest.raises(NotEnoughReplicasError):
        await append(partition, sent(2))
    assert values(visible(partition)) == ["sequence 0"]  # reads go on
    partition.close(FencedError(partition.lease.resource, 1, 2))
    with pytest.raises(FencedError):
        await waiting
    alone = await open_replicated(ann, replicated(2), lease=await next_epoch(ann, partition.lease))
    assert alone.members == world.wals("ann")
    assert alone.publish_requested  # one copy is fewer than was promised
    with pytest.raises(NotEnoughReplicasError):
        await append(alone, sent(1))
    assert values(visible(alone)) == ["sequence 0", "sequence 1"]
    await world.owner("carol")
    world.planned = ["ann", "carol"]
    taken = await open_replicated(ann, replicated(2), lease=await next_epoch(ann, alone.lease))
    assert taken.members == world.wals("ann", "carol")
    assert [(await append(taken, sent(n))).base_offset for n in range(1, 3)] == [1, 2]
    assert values(visible(taken)) == [f"sequence {n}" for n in range(3)]


async def test_a_partition_that_cannot_be_sealed_says_who_is_missing_and_opens_when_one_is_back(
    world: ReplicatedWorld,
) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, batch("a"))
    missing = {ann.wal_id, bob.wal_id}
    await world.kill(ann)
    await world.kill(bob)
    lease = await carol.acquire()
    with pytest.raises(ReplicasUnreachableError) as error:
        await open_replicated(carol, lease=lease)
    assert (error.value.needed, error.value.answering) == (2, (carol.wal_id,))
    assert set(error.value.missing) == missing
    assert carol.wal_id in str(error.value)
    await world.owner("bob")
    taken = await open_replicated(carol, lease=lease)
    assert values(visible(taken)) == ["a"]


async def reopen(owner: Owner, ended: EndedLog, lease: Lease) -> ReplicatedPartition:
    takeover = PartitionTakeover(partition_id=ORDERS, lease=lease, config=replicated(), ended=ended)
    (opened,) = await open_partitions([takeover], owner.resources())
    if isinstance(opened, HoldfastError):
        raise opened
    assert isinstance(opened, ReplicatedPartition)
    return opened


async def test_a_leader_begins_an_epoch_with_its_own_log_although_nobody_else_of_its_set_is_left(
    world: ReplicatedWorld,
) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    await world.kill(bob)
    await world.kill(carol)
    waiting = asyncio.ensure_future(append(partition, sent(1)))
    await async_until(lambda: log_end(world, ann, partition) == 2)
    for name in ("dave", "erin"):
        await world.owner(name)
    world.planned = ["ann", "dave", "erin"]
    partition.close(FencedError(partition.lease.resource, 1, 2))
    await asyncio.gather(waiting, return_exceptions=True)
    ended = EndedLog(partition.lease.epoch, partition.log)
    taken = await reopen(ann, ended, await next_epoch(ann, partition.lease))
    assert taken.members == world.wals("ann", "dave", "erin")
    assert values(visible(taken)) == ["sequence 0", "sequence 1"]
    assert [(await append(taken, sent(n))).base_offset for n in (1, 2)] == [1, 2]


async def test_the_log_of_an_epoch_is_not_used_when_a_later_one_has_served(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    partition.close(FencedError(partition.lease.resource, 1, 2))
    ended = EndedLog(partition.lease.epoch, partition.log)
    await release(ann.store, partition.lease, clock=world.clock, random=world.random)
    later = await open_replicated(bob)
    await append(later, sent(1))
    later.close(FencedError(later.lease.resource, 2, 3))
    await release(bob.store, later.lease, clock=world.clock, random=world.random)
    taken = await reopen(ann, ended, await ann.acquire())
    assert values(visible(taken)) == ["sequence 0", "sequence 1"]


async def test_the_log_of_an_epoch_that_lacks_what_is_published_is_not_used(world: ReplicatedWorld) -> None:
    ann, _, _ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    partition.close(FencedError(partition.lease.resource, 1, 2))
    ended = EndedLog(partition.lease.epoch, EntryLog(Position(1, 9)))
    taken = await reopen(ann, ended, await next_epoch(ann, partition.lease))
    assert values(visible(taken)) == ["sequence 0"]


def test_logs_of_partitions_that_went_elsewhere_are_forgotten() -> None:
    logs = EndedLogs()
    for resource in ("held", "elsewhere", "just gone"):
        logs.remember(resource, EndedLog(1, EntryLog()), 0 if resource != "just gone" else 50_000)
    logs.sweep(["held"], 60_000)
    assert (logs.get("elsewhere"), len(logs)) == (None, 2)
    logs.forget("held")
    assert (logs.get("held"), len(logs)) == (None, 1)


async def test_an_operator_lets_it_go_on_with_what_one_replica_has_and_no_offset_is_given_twice(
    world: ReplicatedWorld,
) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    await append(partition, sent(1))
    await async_until(lambda: log_end(world, carol, partition) == 2)
    ceiling = (await stored(world)).reserved
    await world.kill(ann)
    lease = await carol.acquire()
    unclean = replace(replicated(), unclean_takeover=True)
    world.cluster.leave(bob.wal_id)
    await carol.store.commit(apply=[Put(wal_key(bob.wal_id), b"{}")])
    with pytest.raises(ReplicasUnreachableError) as error:
        await open_replicated(carol, unclean, lease=lease)
    assert error.value.unclean  # bob's agent lives: it is waited for
    await carol.store.commit(apply=[Delete(wal_key(bob.wal_id))])
    await bob.end()
    taken = await open_replicated(carol, unclean, lease=lease)
    assert values(visible(taken)) == ["sequence 0", "sequence 1"]
    assert taken.next_offset == ceiling > 2
    with pytest.raises(NotEnoughReplicasError):  # it is read; appends still need two copies
        await append(taken, sent(2))
    await world.owner("bob")  # with what it had: it follows the new epochs
    again = await open_replicated(carol, lease=await next_epoch(carol, taken.lease))
    assert [(await append(again, sent(n))).base_offset for n in (2, 3)] == [ceiling, ceiling + 1]
    assert values(visible(again)) == [f"sequence {n}" for n in range(4)]


@pytest.mark.parametrize("still_unclean", [True, False])
async def test_an_unclean_takeover_that_never_opened_loses_nothing_when_the_replica_is_back(
    world: ReplicatedWorld, still_unclean: bool
) -> None:
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    await async_until(lambda: log_end(world, carol, partition) == 1)
    world.cluster.cut(ann.wal_id, carol.wal_id)
    await append(partition, sent(1))  # acknowledged: ann and bob have it
    assert log_end(world, bob, partition) == 2
    await world.kill(ann)
    await world.kill(bob)
    dave = await world.owner("dave")
    dave.disk.full = True  # it answers nobody
    world.planned = ["carol", "dave"]
    unclean = replace(replicated(), unclean_takeover=True)
    lease = await carol.acquire()
    with pytest.raises(ReplicasUnreachableError) as error:
        await open_replicated(carol, unclean, lease=lease)
    assert "to replicate" in str(error.value)  # it was never opened
    assert (await stored(world)).opened_epoch == 1
    await world.owner("bob")  # with its disk: two of three can be sealed
    dave.disk.full = False
    world.planned = ["carol", "bob", "dave"]
    config = unclean if still_unclean else replicated()
    taken = await open_replicated(carol, config, lease=await next_epoch(carol, lease))
    assert values(visible(taken)) == ["sequence 0", "sequence 1"]


async def test_a_reopening_without_the_member_it_was_for_leaves_what_was_acknowledged_on_two_disks(
    world: ReplicatedWorld,
) -> None:
    """Bob and carol are cut off for a moment, dave joins and leaves again: one disk is lost, ann's."""
    ann, bob, carol = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    await async_until(lambda: log_end(world, bob, partition) == log_end(world, carol, partition) == 1)
    world.cluster.isolate(ann.wal_id)
    world.planned = ["ann", "dave"]  # dave is planned, and was connected a moment ago
    partition.close(FencedError(partition.lease.resource, 1, 2))
    ended = EndedLog(partition.lease.epoch, partition.log)
    await asyncio.gather(reopen(ann, ended, await next_epoch(ann, partition.lease)), return_exceptions=True)
    await world.kill(ann)  # with its disk
    world.planned = ["bob", "carol"]
    taken = await open_replicated(bob)
    assert values(visible(taken)) == ["sequence 0"]


async def test_one_that_cannot_be_sealed_holds_up_none_of_the_others(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    world.planned = ["ann", "bob"]
    lost = await open_replicated(ann, replicated(2))
    await append(lost, batch("only on two"))
    await world.kill(ann)
    bob_wal = bob.wal_id
    await world.kill(bob)
    carol = world.owners[-1]
    world.planned = ["carol"]
    takeovers = [
        PartitionTakeover(partition_id=each, lease=await carol.acquire(each), config=config)
        for each, config in ((lost.partition_id, replicated(2)), (OTHER, PartitionConfig()))
    ]
    seen: list[object] = []
    results = await open_partitions(
        takeovers, carol.resources(), on_result=lambda takeover, _: seen.append(takeover.partition_id)
    )
    assert isinstance(results[0], ReplicasUnreachableError)
    assert bob_wal in results[0].missing
    assert isinstance(results[1], LeadingPartition)
    assert seen == [OTHER, lost.partition_id]


async def test_partitions_that_become_ready_together_are_opened_by_one_commit(world: ReplicatedWorld) -> None:
    ann, _, _ = await world.three()
    ids = [type(OTHER)(topic="orders", topic_id=OTHER.topic_id, number=number) for number in range(20)]
    takeovers = [
        PartitionTakeover(partition_id=each, lease=await ann.acquire(each), config=replicated(), was_offline=False)
        for each in ids
    ]
    ann.store.calls.clear()
    opened = await open_partitions(takeovers, ann.resources())
    assert all(isinstance(each, ReplicatedPartition) for each in opened)
    assert ann.store.calls["commit"] < 10
    for each in opened:
        assert isinstance(each, ReplicatedPartition)
        await append(each, batch("a"))


async def test_a_clean_partition_needs_nobody_to_be_opened_with_another_set(world: ReplicatedWorld) -> None:
    ann, bob, carol = await world.three()
    world.planned = ["ann", "bob"]
    partition = await open_replicated(ann, replicated(2))
    await append(partition, sent(0))
    await ann.hand_back(partition)
    await world.kill(ann)
    await world.kill(bob)
    world.planned = ["carol"]
    taken = await open_replicated(carol, replicated(2))
    assert (taken.next_offset, taken.members) == (1, (carol.wal_id,))


async def test_a_local_tail_keeps_its_level_until_it_is_published(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    local = await ann.open()
    await append(local, sent(0))
    still = await open_partition(
        local.partition_id,
        await next_epoch(ann, local.lease),
        ann.resources(),
        config=replicated(),
        frames=_frames_of(local),
    )
    assert (type(still), still.level) == (LeadingPartition, "local")
    await append(still, sent(1))
    still.stop_accepting()
    assert await ann.publisher.publish([still], closing=True) == []
    now = await open_replicated(ann, lease=await next_epoch(ann, still.lease))
    assert (await append(now, sent(1))).base_offset == 1
    assert (await append(now, sent(2))).base_offset == 2
    await world.kill(ann)
    assert values(visible(await open_replicated(bob))) == ["sequence 2"]


async def test_a_leader_without_replicas_drops_the_log_of_the_replica_in_its_own_wal(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    hosted = world.hosts["ann"].get(partition.wal_key)
    assert hosted is not None
    replica = hosted.replica
    assert replica is not None
    await async_until(lambda: replica.log.size_bytes > 0)  # it is durable when two others have it
    world.planned = ["bob", "carol"]
    await ann.lose_session()
    moved = await open_replicated(bob, replicated(2))
    moved.stop_accepting()
    assert await bob.publisher.publish([moved], closing=True) == []
    assert replica.log.size_bytes
    await bob.lose_session()
    local = await ann.open()
    assert (type(local), hosted.size_bytes, len(replica.log)) == (LeadingPartition, 0, 0)


async def test_a_topic_that_leaves_quorum_and_returns_loses_nothing_in_restarts(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, sent(0))
    partition.stop_accepting()
    assert await ann.publisher.publish([partition], closing=True) == []
    local = await ann.open(lease=await next_epoch(ann, partition.lease))
    assert (type(local), (await stored(world)).opened_replicas) == (LeadingPartition, ())
    assert await world.store.get(replica_set_key(local.partition_id.topic_id, 0)) is None
    await append(local, sent(1))
    await world.kill(ann)
    ann = await world.owner("ann")  # its replica and its local tail are in one WAL
    hosted = world.hosts["ann"].get(local.wal_key)
    assert hosted is None or not hosted.failure
    again = await ann.open()
    assert values(visible(again)) == ["sequence 1"]
    again.stop_accepting()
    assert await ann.publisher.publish([again], closing=True) == []
    back = await open_replicated(ann, lease=await next_epoch(ann, again.lease))
    assert [(await append(back, sent(n))).base_offset for n in range(1, 4)] == [1, 2, 3]
    await world.kill(ann)
    await world.kill(bob)
    bob = await world.owner("bob")
    assert values(visible(await open_replicated(bob))) == ["sequence 2", "sequence 3"]


async def test_an_append_that_no_replica_could_write_is_refused_at_once(world: ReplicatedWorld) -> None:
    ann, _, _ = await world.three()
    partition = await open_replicated(ann)
    with pytest.raises(Exception, match="at most"):
        await append(partition, batch("x" * 300 * KIB))
    assert (await append(partition, batch("a"))).base_offset == 0


async def test_records_of_a_replicated_partition_are_deleted_and_compacted_as_everywhere(
    world: ReplicatedWorld,
) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    for n in range(4):
        await append(partition, sent(n))
    context = ann.maintenance()
    assert await ann.publisher.publish([partition]) == []
    assert await delete_records(partition, 2, context) == 2
    await append(partition, sent(4))
    assert await delete_records(partition, -1, context) == 5
    await append(partition, sent(5))
    await world.kill(ann)
    taken = await open_replicated(bob)
    assert (taken.start_offset, taken.next_offset) == (5, 6)
    assert values(visible(taken, 5)) == ["sequence 5"]
    assert (await append(taken, sent(6))).base_offset == 6


def _frames_of(partition: LeadingPartition):  # type: ignore[no-untyped-def]
    frames = partition.unpublished_frames()

    async def source(topic_id: bytes, number: int):  # type: ignore[no-untyped-def]
        for frame in frames:
            yield frame

    return source
