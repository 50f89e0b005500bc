"""What a closed partition leaves in RAM counts against the budget of the tails, until it is recovered or not needed any more."""

from tests.support.partitions import ORDERS, TOPIC_ID, Owner, PartitionWorld, append, batch
from tests.support.waiting import async_until

from holdfast.log.model import PartitionConfig
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.partition.takeover import open_partition
from holdfast.log.partition.unpublished_frames import UnpublishedFrames
from holdfast.log.replication.messages import Answer, Append, Seal
from holdfast.log.replication.positions import NOWHERE, ReplicaEntry
from holdfast.log.replication.replica_frames import state_key
from holdfast.log.replication.replica_wal import ReplicaWal
from holdfast.log.wal.set_aside import list_tails
from holdfast.vocabulary.errors import ClosedError

KEY = (bytes.fromhex(TOPIC_ID), 0)


def kept_by(owner: Owner, budget: TailBudget) -> UnpublishedFrames:
    return UnpublishedFrames(owner.wal, owner.wal_id, owner.store, clock=owner.world.clock, budget=budget)


async def close_with_unpublished(owner: Owner, budget: TailBudget) -> tuple[UnpublishedFrames, int]:
    """A partition whose session was lost before its last records were published; and how many bytes these are."""
    partition = await owner.open()
    partition.tail.join_budget(budget)
    await append(partition, batch("published"))
    await owner.publisher.publish([partition])
    await append(partition, batch("b" * 1_000))
    size_bytes, frames = partition.unpublished_bytes, kept_by(owner, budget)
    assert budget.used_bytes == size_bytes > 1_000
    await owner.lose_session()
    partition.close(ClosedError("session"))
    frames.remember(partition)
    return frames, size_bytes


async def test_frames_of_a_closed_partition_count_against_the_budget(world: PartitionWorld) -> None:
    ann, budget = await world.owner(), TailBudget(1_000)
    _, size_bytes = await close_with_unpublished(ann, budget)
    assert budget.used_bytes == size_bytes
    assert budget.full


async def test_they_are_counted_once_when_the_partition_is_led_here_again(world: PartitionWorld) -> None:
    ann, budget = await world.owner(), TailBudget(10_000)
    frames, size_bytes = await close_with_unpublished(ann, budget)
    again = await open_partition(ORDERS, await ann.acquire(), ann.resources(budget=budget), frames=frames.frames)
    frames.forget(*KEY)
    assert budget.used_bytes == again.unpublished_bytes == size_bytes
    await ann.publisher.publish([again])
    assert budget.used_bytes == 0


async def test_what_another_leader_went_on_without_does_not_stay_in_memory(world: PartitionWorld) -> None:
    ann, budget = await world.owner(), TailBudget(10_000)
    frames, _ = await close_with_unpublished(ann, budget)
    bob = await world.owner("bob")
    await append(await bob.open(partition_config=PartitionConfig(unclean_takeover=True)), batch("c"))
    await frames.release_unneeded()
    assert budget.used_bytes == 0
    assert [each async for each in frames.frames(*KEY)] == []
    assert len(list_tails(ann.wal.directory)) == 1  # it was set aside first


async def test_a_deleted_topic_leaves_nothing_in_memory(world: PartitionWorld) -> None:
    ann, budget = await world.owner(), TailBudget(10_000)
    frames, _ = await close_with_unpublished(ann, budget)
    frames.discard(*KEY)
    assert budget.used_bytes == 0


def test_tails_are_published_from_half_of_what_is_left_beside_kept_frames_on() -> None:
    budget = TailBudget(1_000)
    budget.keep(600)
    budget.charge(300)
    assert (budget.used_bytes, budget.excess_bytes, budget.full) == (900, 100, False)
    budget.charge(200)
    assert budget.full
    budget.charge(-500)
    assert (budget.excess_bytes, budget.full) == (0, False)  # nothing of what is kept can be published
    budget.keep(-600)
    assert budget.used_bytes == 0


async def test_entries_of_a_replica_are_not_released_for_a_leader_elsewhere(world: PartitionWorld) -> None:
    ann, bob = await world.owner(), await world.owner("bob")
    await append(await bob.open(), batch("a"))  # the record names bob's WAL
    mine, answers = await ReplicaWal.open(ann.wal, "ann", KEY), list[Answer | None]()
    entry = ReplicaEntry(1, 0, 1, (b"a copy",))
    mine.handle(
        Append(partition=KEY, epoch=1, previous=NOWHERE, entries=(entry,), hw=0, published=NOWHERE), answers.append
    )
    await async_until(lambda: bool(answers))
    await kept_by(ann, TailBudget(1_000)).release_unneeded()
    assert ann.wal.unreleased() == {KEY: 1, state_key(KEY): 2}


async def test_a_replica_of_a_topic_that_is_gone_is_released_with_its_promise(world: PartitionWorld) -> None:
    ann, gone = await world.owner(), (bytes(range(16)), 3)
    mine, answers = await ReplicaWal.open(ann.wal, "ann", gone), list[Answer | None]()
    mine.handle(Seal(partition=gone, epoch=1, wal_id="ann"), answers.append)
    await async_until(lambda: bool(answers))
    await kept_by(ann, TailBudget(1_000)).release_unneeded()
    assert ann.wal.unreleased() == {}
