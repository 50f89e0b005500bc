"""A topic that is deleted while its leader drains it, or uses it: the partition is lost, and nothing else is."""

from collections.abc import Sequence

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.contracts.store import Committed, Conflict, Delete, Operation, Put, Requirement
from holdfast.log.errors import NotLeaderError
from holdfast.log.keys import state_key
from holdfast.log.topics import Topics, UnknownTopicError


async def purge(cluster: LocalCluster, topic: str) -> None:
    """Delete the topic, and remove its records at once, as the sweeper of another agent does."""
    gone = await Topics(cluster.store, clock=cluster.clock, random=cluster.random).delete(topic)
    await cluster.store.commit(apply=[Delete(state_key(gone.id, number)) for number in range(gone.partitions)])


def purge_before_next_change(cluster: LocalCluster, node: Node, topic: str) -> list[str]:
    """The next change of a record by this agent is under way while the topic goes; lists the topics that went."""
    commit, purged = node.store.commit, list[str]()

    async def late_commit(
        *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        changed = [each.key for each in apply if isinstance(each, Put) and each.key.endswith("/state")]
        if changed and not purged:
            purged.append(topic)
            await purge(cluster, topic)
        return await commit(require=require, apply=apply)

    node.store.commit = late_commit  # type: ignore[method-assign]
    return purged


async def test_an_agent_stops_gracefully_though_a_topic_goes_while_it_is_drained(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1, {"roll_ms": 100})
    await cluster.produce("orders", 0, "a")
    (partition,) = ann.agent.log.leading.values()
    await async_until(lambda: partition.record.published == 1)
    bob = await cluster.node("bob")
    await async_until(lambda: len(ann.agent.cluster.members) == 2)
    purged = purge_before_next_change(cluster, ann, "orders")
    await ann.stop()  # gives back what it reserved, and hands over
    assert purged == ["orders"]
    assert not bob.task.done()


async def test_a_topic_that_goes_and_comes_back_under_its_leader_is_served_again(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1)
    await cluster.produce("orders", 0, "old")
    purged = purge_before_next_change(cluster, ann, "orders")
    with pytest.raises((NotLeaderError, UnknownTopicError)):  # after which a client asks again
        await ann.service.produce("orders", 0, batch(*["more than is reserved"] * 150))
    assert purged == ["orders"]
    await async_until(lambda: not ann.leads())
    await ann.service.create_topic("orders", 1)
    assert await cluster.produce("orders", 0, "new") == 0
    assert await cluster.read("orders", 0) == [(0, "new")]
