"""Partitions that are taken over together: few calls, and one that cannot be opened affects no other."""

from collections.abc import Sequence

import msgspec
from tests.support.partitions import TOPIC_ID, Owner, PartitionWorld, append, batch

from holdfast.contracts.store import Put
from holdfast.kernel.keys import epoch_key
from holdfast.kernel.lease import EpochRecord
from holdfast.log.errors import TailNotLocalError
from holdfast.log.keys import deleted_key, offline_key, state_key
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.takeover import open_partitions
from holdfast.log.partition.takeover_recovery import PartitionTakeover
from holdfast.vocabulary.errors import ClosedError, FencedError, HoldfastError, UnavailableError

OTHER_ID = "f" * 32


def partition(number: int, topic_id: str = TOPIC_ID) -> PartitionId:
    return PartitionId(topic="orders" if topic_id == TOPIC_ID else "other", topic_id=topic_id, number=number)


async def takeovers(
    owner: Owner, partitions: Sequence[PartitionId], *, was_offline: bool = False
) -> list[PartitionTakeover]:
    return [
        PartitionTakeover(
            partition_id=each, lease=await owner.acquire(each), config=PartitionConfig(), was_offline=was_offline
        )
        for each in partitions
    ]


def kinds(opened: Sequence[LeadingPartition | HoldfastError]) -> list[type]:
    return [type(each) for each in opened]


async def test_neighbours_are_read_in_one_scan_and_taken_over_in_one_commit(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    wanted = await takeovers(ann, [partition(number) for number in range(24)])
    ann.store.calls.clear()
    opened = await open_partitions(wanted, ann.resources())
    assert kinds(opened) == [LeadingPartition] * 24
    assert (ann.store.calls["scan"], ann.store.calls["commit"]) == (1, 1)
    for number, each in enumerate(opened):
        assert isinstance(each, LeadingPartition)
        assert each.partition_id.number == number
        assert (await append(each, batch(f"record {number}"))).base_offset == 0


async def test_more_than_one_commit_can_have_go_into_several(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    wanted = await takeovers(ann, [partition(number) for number in range(60)], was_offline=True)
    ann.store.calls.clear()
    opened = await open_partitions(wanted, ann.resources())
    assert kinds(opened) == [LeadingPartition] * 60
    assert ann.store.calls["commit"] == 3  # four operations each, and the topic's


async def test_one_whose_lease_is_lost_is_fenced_and_the_others_are_led(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    wanted = await takeovers(ann, [partition(number) for number in range(3)])
    newer = Put(epoch_key(wanted[1].lease.resource), msgspec.json.encode(EpochRecord(7)))
    await world.store.commit(apply=[newer])
    opened = await open_partitions(wanted, ann.resources())
    assert kinds(opened) == [LeadingPartition, FencedError, LeadingPartition]


async def test_one_whose_tail_is_elsewhere_stays_offline_and_the_others_are_led(world: PartitionWorld) -> None:
    ann, bob = await world.owner("ann"), await world.owner("bob")
    await append(await bob.open(partition(1)), batch("in another WAL"))
    await bob.lose_session()
    wanted = await takeovers(ann, [partition(number) for number in range(3)])
    opened = await open_partitions(wanted, ann.resources())
    assert kinds(opened) == [LeadingPartition, TailNotLocalError, LeadingPartition]


async def test_tails_in_our_own_wal_are_recovered(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    for number in (0, 2):
        await append(await ann.open(partition(number)), batch("a"), batch("b"))
    await ann.end()
    world.owners.remove(ann)
    ann = await world.owner("ann")
    wanted = await takeovers(ann, [partition(number) for number in range(3)])
    opened = await open_partitions(wanted, ann.resources())
    assert [each.next_offset for each in opened if isinstance(each, LeadingPartition)] == [2, 0, 2]


async def test_partitions_of_a_deleted_topic_are_not_opened_and_those_of_others_are(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    wanted = await takeovers(ann, [partition(0), partition(0, OTHER_ID), partition(1)])
    await world.store.commit(apply=[Put(deleted_key(TOPIC_ID), b"{}")])
    opened = await open_partitions(wanted, ann.resources())
    assert kinds(opened) == [ClosedError, LeadingPartition, ClosedError]


async def test_without_the_store_none_is_opened_and_the_next_attempt_opens_all(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    wanted = await takeovers(ann, [partition(number) for number in range(3)])
    ann.store.reachable = False
    assert kinds(await open_partitions(wanted, ann.resources())) == [UnavailableError] * 3
    ann.store.reachable = True
    assert kinds(await open_partitions(wanted, ann.resources())) == [LeadingPartition] * 3


async def test_a_mark_of_being_offline_goes_when_the_partition_is_opened(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    (takeover,) = await takeovers(ann, [partition(0)], was_offline=True)
    key = offline_key(takeover.lease.resource)
    await world.store.commit(apply=[Put(key, b"{}")])
    await open_partitions([takeover], ann.resources())
    assert await world.store.get(key) is None
    assert await world.store.get(state_key(TOPIC_ID, 0)) is not None
