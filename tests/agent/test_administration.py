"""What operators ask of a cluster: agents take it from the plan, and what was asked for stays."""

import msgspec
import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.waiting import async_until

from holdfast.agent.administration import AgentStatus, ClusterAdministration, PartitionStatus
from holdfast.contracts.store import Put
from holdfast.kernel.keys import assignment_key
from holdfast.kernel.placement_requests import AssignmentRecord, drained_agents
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import TopicPartition

PARTITIONS = 4


async def pair(cluster: LocalCluster) -> tuple[Node, Node, ClusterAdministration]:
    ann, bob = await cluster.node("ann"), await cluster.node("bob")
    await ann.service.create_topic("orders", PARTITIONS)
    await async_until(lambda: len(ann.leads()) == len(bob.leads()) == PARTITIONS // 2)
    return ann, bob, ClusterAdministration(cluster.store, clock=cluster.clock, random=cluster.random)


async def agents(administration: ClusterAdministration) -> dict[str, AgentStatus]:
    return {each.id: each for each in await administration.agents()}


async def as_planned(administration: ClusterAdministration) -> bool:
    return all(each.leases == each.planned for each in await administration.agents())


async def partition(administration: ClusterAdministration, number: int) -> PartitionStatus:
    return (await administration.partitions("orders"))[number]


async def test_a_cluster_is_listed(cluster: LocalCluster) -> None:
    ann, bob, administration = await pair(cluster)
    await cluster.produce("orders", 1, "a")
    await async_until(lambda: as_planned(administration))  # group shards, too
    listed = await agents(administration)
    assert {name: (each.live, each.draining, each.leases == each.planned) for name, each in listed.items()} == {
        "ann": (True, False, True),
        "bob": (True, False, True),
    }
    for status in await administration.partitions("orders"):
        leader = cluster.leader(status.partition)
        assert leader is not None
        assert (status.leader, status.planned, status.offline) == (leader.name, (leader.name,), "")
        assert status.epoch >= 1
    leases = {each.resource: each.holder for each in await administration.leases()}
    assert leases["planner"] in ("ann", "bob")
    assert {number for number in range(PARTITIONS) if leases[f"partition/orders/{number:05d}"] == "ann"} == ann.leads()
    assert await administration.misplaced() == 0
    assert bob.leads()


async def test_a_partition_moves_stays_and_is_placed_again(cluster: LocalCluster) -> None:
    ann, bob, administration = await pair(cluster)
    number = min(ann.leads())
    await cluster.produce("orders", number, "before")
    epoch = (await partition(administration, number)).epoch
    await administration.assign("orders", {number: ("bob",)})
    await async_until(lambda: number in bob.leads() and len(ann.leads()) == PARTITIONS // 2)
    moved = await partition(administration, number)
    assert (moved.leader, moved.assigned) == ("bob", ("bob",))
    assert moved.epoch > epoch
    await cluster.produce("orders", number, "after")
    assert [value for _, value in await cluster.read("orders", number)] == ["before", "after"]
    assert await administration.rebalance() == 1
    assert (await partition(administration, number)).assigned == ()
    assert await administration.rebalance("orders") == 0


async def test_a_drained_agent_is_given_nothing_until_that_is_undone(cluster: LocalCluster) -> None:
    ann, bob, administration = await pair(cluster)
    await administration.drain("ann")
    await async_until(lambda: not ann.leads() and len(bob.leads()) == PARTITIONS)
    assert (await agents(administration))["ann"].draining
    await bob.service.create_topic("more", 2)
    await async_until(lambda: {TopicPartition("more", 0), TopicPartition("more", 1)} <= set(bob.agent.leading))
    with pytest.raises(InvalidError, match="nobody could serve"):
        await administration.drain("bob")
    await administration.undrain("ann")
    await async_until(lambda: len(ann.leads()) >= PARTITIONS // 2)


async def test_what_cannot_be_done_is_refused(cluster: LocalCluster) -> None:
    _, _, administration = await pair(cluster)
    with pytest.raises(UnknownTopicError):
        await administration.assign("nothing", {0: ("ann",)})
    with pytest.raises(InvalidError, match="invalid partition 4: must be 0 to 3"):
        await administration.assign("orders", {4: ("ann",)})
    with pytest.raises(InvalidError, match="invalid agent 'eve': must be ann, bob"):
        await administration.assign("orders", {0: ("eve",)})
    with pytest.raises(InvalidError, match="invalid agent 'eve': must be ann, bob"):
        await administration.drain("eve")
    with pytest.raises(InvalidError, match="must be none"):
        await administration.undrain("ann")
    with pytest.raises(UnknownTopicError):
        await administration.rebalance("nothing")


async def test_a_topic_of_a_group_is_led_by_its_agents_alone(cluster: LocalCluster) -> None:
    ann, bob, administration = await pair(cluster)
    await ann.service.create_topic("bulky", 2, {"agent_group": "bulk"})
    carl = await cluster.node("carl", group="bulk")
    bulky = {TopicPartition("bulky", 0), TopicPartition("bulky", 1)}
    await async_until(lambda: set(carl.agent.leading) == bulky)
    # A change of the group moves it, and what an operator assigned to the old group's agents is not followed any more.
    await administration.assign("bulky", {0: ("carl",)})
    await ann.service.topics.alter("bulky", {"agent_group": None})
    await async_until(lambda: not carl.agent.leading and bulky <= {*ann.agent.leading, *bob.agent.leading})
    with pytest.raises(InvalidError, match="live agents of group default"):
        await administration.assign("bulky", {0: ("carl",)})


async def test_a_topic_that_is_deleted_meanwhile_is_not_assigned_for_its_successor(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, _, administration = await pair(cluster)
    get = administration._topics.get

    async def delete_after(name: str) -> Topic:
        found = await get(name)
        await ann.service.topics.delete(name)
        return found

    monkeypatch.setattr(administration._topics, "get", delete_after)
    with pytest.raises(InvalidError, match="one that exists"):
        await administration.assign("orders", {0: ("bob",)})
    assert await administration.assignments() == {}


async def test_the_assignments_of_a_deleted_topic_go_with_it(cluster: LocalCluster) -> None:
    ann, _, administration = await pair(cluster)
    await administration.assign("orders", {0: ("bob",)})
    await ann.service.topics.delete("orders")
    assert await administration.rebalance() == 0


async def test_a_new_topic_has_no_assignments_of_a_former_one(cluster: LocalCluster) -> None:
    _, bob, administration = await pair(cluster)
    left = Put(assignment_key("bills"), msgspec.json.encode(AssignmentRecord({0: ("bob",)})))
    await cluster.store.commit(apply=[left])
    await bob.service.create_topic("bills", 2)
    assert await administration.assignments() == {}


async def test_an_agent_that_leaves_is_drained_until_its_session_ends_and_what_an_operator_asked_for_stays(
    cluster: LocalCluster,
) -> None:
    ann, bob, administration = await pair(cluster)
    await ann.stop()
    await async_until(lambda: bob.leads() == set(range(PARTITIONS)))
    assert not (await agents(administration))["bob"].draining
    assert await drained_agents(cluster.store, clock=cluster.clock, random=cluster.random) == {}
    ann = await cluster.node("ann")
    await async_until(lambda: ann.agent.member)
    await administration.drain("bob")
    await bob.stop()
    assert list(await drained_agents(cluster.store, clock=cluster.clock, random=cluster.random)) == ["bob"]
