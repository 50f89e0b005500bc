"""Partitions whose lease is held and that are not open: which of them may move to another agent (SAFETY 9, 11)."""

from typing import cast

import pytest
from tests.support.partitions import ORDERS, Owner, PartitionWorld

from holdfast.log.errors import TO_REPLICATE, TO_SEAL, EpochSpentError, ReplicasUnreachableError, TailDamagedError
from holdfast.log.model import PartitionConfig
from holdfast.log.partition.takeover_recovery import PartitionTakeover
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.unopened_partitions import UnopenedPartitions
from holdfast.vocabulary.errors import CorruptError, HoldfastError, UnavailableError
from holdfast.vocabulary.types import TopicPartition

WHICH = TopicPartition(ORDERS.topic, ORDERS.number)
PASSING = UnavailableError("store", "it does not answer")


class Alone:
    """A network that reaches nobody."""

    def is_connected(self, wal_id: str) -> bool:
        return False


ALONE = cast(ReplicaNetwork, Alone())


async def failed(
    owner: Owner, level: str, error: HoldfastError, network: ReplicaNetwork | None = None
) -> UnopenedPartitions:
    """Those of an agent that could not open a partition at this level."""
    config = PartitionConfig(level=level, replicas=3 if level == "quorum" else 1)
    takeover = PartitionTakeover(partition_id=ORDERS, lease=await owner.acquire(), config=config)
    unopened = UnopenedPartitions(owner.store, clock=owner.world.clock, random=owner.world.random, network=network)
    unopened.opening(takeover.lease)
    assert await unopened.go_offline(takeover, error) is None
    return unopened


@pytest.mark.parametrize("error", [PASSING, CorruptError("replica", "it cannot be read")], ids=["passing", "corrupt"])
@pytest.mark.parametrize("level", ["quorum", "object"])
async def test_what_other_agents_have_as_well_moves_though_this_one_cannot_open_it(
    world: PartitionWorld, level: str, error: HoldfastError
) -> None:
    (await failed(await world.owner(), level, error)).check_movable(WHICH)


async def test_a_tail_that_is_damaged_here_does_not_move_whatever_the_level_is_now(world: PartitionWorld) -> None:
    unopened = await failed(await world.owner(), "quorum", TailDamagedError("WAL", "offsets 3 to 4 are missing"))
    with pytest.raises(UnavailableError, match="in this WAL"):
        unopened.check_movable(WHICH)


async def test_a_tail_that_may_be_in_this_wal_alone_does_not_move_until_it_was_read(world: PartitionWorld) -> None:
    unopened = await failed(await world.owner(), "local", PASSING)
    with pytest.raises(UnavailableError, match="in this WAL"):
        unopened.check_movable(WHICH)
    unopened.forget_reason(WHICH)
    unopened.check_movable(WHICH)


@pytest.mark.parametrize(
    "error", [ReplicasUnreachableError("orders:0", "to seal", 2, (), ("a", "b")), EpochSpentError("orders:0", 1, "x")]
)
async def test_what_waits_for_replicas_or_a_new_epoch_moves(world: PartitionWorld, error: HoldfastError) -> None:
    (await failed(await world.owner(), "local", error)).check_movable(WHICH)


async def test_what_waits_for_replicas_is_tried_again_when_they_answer(world: PartitionWorld) -> None:
    owner = await world.owner()
    unopened = await failed(owner, "quorum", ReplicasUnreachableError("orders:0", TO_SEAL, 2, (), ("a", "b")), ALONE)
    assert await unopened.openable() == []


async def test_what_would_replicate_to_others_is_tried_again_without_those_that_do_not_answer(
    world: PartitionWorld,
) -> None:
    """They may be gone for ever, with their disks."""
    owner = await world.owner()
    error = ReplicasUnreachableError("orders:0", TO_REPLICATE, 2, ("a",), ("b",))
    unopened = await failed(owner, "quorum", error, ALONE)
    assert [lease.resource for lease in await unopened.openable()] == list(unopened.leases)
