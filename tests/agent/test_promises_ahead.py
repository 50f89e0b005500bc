"""A store that was put back in time, to before an epoch that replicas have promised: what they acknowledged is not cut off."""

import asyncio

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.kernel.keys import epoch_key, partition_resource
from holdfast.log.replication.messages import Answer, Seal, Sealed
from holdfast.log.topics import Topics
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.types import TopicPartition

WHICH = TopicPartition("orders", 0)
RESOURCE = partition_resource(WHICH)
FORGOTTEN = 4


async def promise(node: Node, key: tuple[bytes, int]) -> None:
    """As to a leader whose epoch the store has forgotten since."""
    answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
    wal_id = node.agent.replicas.wal_id
    node.agent.replicas.handle(Seal(partition=key, epoch=FORGOTTEN, wal_id=wal_id), wal_id, answer.set_result)
    assert isinstance(await answer, Sealed)


async def refused(cluster: LocalCluster) -> tuple[Node, int]:
    """The leader of a partition whose replicas have promised more than the store knows, and its epoch."""
    cluster.streams = True
    nodes = [await cluster.node(name) for name in ("ann", "bob", "carol")]
    await nodes[0].service.create_topic("orders", 1, {"durability": "quorum", "replication_factor": 3})
    await cluster.produce("orders", 0, "a")
    leader = cluster.leader(0)
    assert leader is not None
    partition = leader.agent.log.leading[WHICH]
    for node in nodes:
        await promise(node, partition.wal_key)
    with pytest.raises(HoldfastError):
        await leader.service.produce("orders", 0, batch("refused"))
    return leader, partition.lease.epoch


async def test_nobody_climbs_over_a_promise_that_the_store_has_forgotten(cluster: LocalCluster) -> None:
    leader, epoch = await refused(cluster)
    await async_until(lambda: "restored from before" in leader.agent.offline.get(WHICH, ""))
    handler = leader.agent.log._handler
    assert handler is not None
    (lease,) = [each for each in handler.leases if each.resource == RESOURCE]
    for _ in range(3):
        handler._epoch_pauses._taken.clear()
        await handler._retry_open([lease])
    entry = await cluster.store.get(epoch_key(RESOURCE))
    assert entry is not None
    assert entry.version == lease.version
    assert lease.epoch == epoch


async def test_an_epoch_that_was_not_taken_makes_no_pause_longer(cluster: LocalCluster) -> None:
    leader, _ = await refused(cluster)
    await async_until(lambda: "restored from before" in leader.agent.offline.get(WHICH, ""))
    handler = leader.agent.log._handler
    assert handler is not None
    (lease,) = [each for each in handler.leases if each.resource == RESOURCE]
    await handler._take_new_epoch(lease)
    await async_until(lambda: RESOURCE not in handler._epoch_pauses._taken)  # another try may be under way


async def test_an_operator_may_allow_to_go_on_without_what_the_store_has_forgotten(cluster: LocalCluster) -> None:
    leader, _ = await refused(cluster)
    await async_until(lambda: "restored from before" in leader.agent.offline.get(WHICH, ""))
    topics = Topics(cluster.store, clock=cluster.clock, random=cluster.random)
    await topics.alter("orders", {"unclean_takeover": True})
    await cluster.produce("orders", 0, "b")
    serving = cluster.leader(0)
    assert serving is not None
    assert serving.agent.log.leading[WHICH].lease.epoch > FORGOTTEN
