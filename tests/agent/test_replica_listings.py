"""What operators see of replicas. No agent runs here: what agents and leaders write is written by hand."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec
import pytest_asyncio

from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.reassignments import is_under_way, target_agents
from holdfast.contracts.store import Put
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.keys import partition_resource, plan_key
from holdfast.kernel.lease import acquire
from holdfast.kernel.membership import MembershipSettings, hold_membership
from holdfast.kernel.planner import encode_placements
from holdfast.log.keys import state_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionId
from holdfast.log.replica_sets import replica_set_write
from holdfast.log.topics import Topic, Topics
from holdfast.log.wal_owners import register_wal_owner
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.types import Member, TopicPartition


class World:
    """A store, and agents that only stand in it. The WAL of `ann` is called `wal-of-ann`."""

    def __init__(self, store: MemoryStore, clock: FakeClock, random: SeededRandom) -> None:
        self.store, self.clock, self.random = store, clock, random
        self.topics = Topics(store, clock=clock, random=random)
        self.administration = ClusterAdministration(store, clock=clock, random=random)
        self.sessions: dict[str, str] = {}

    async def join(self, *agents: str) -> None:
        for agent in agents:
            self.sessions[agent] = session = (await self.store.open_session(1_000_000)).id
            told = {"clock": self.clock, "random": self.random}
            await register_wal_owner(self.store, f"wal-of-{agent}", agent=agent, session=session, **told)  # type: ignore[arg-type]
            member = Member(id=agent, session=session, wal_id=f"wal-of-{agent}")
            async with hold_membership(self.store, "agent", member, settings=MembershipSettings(), **told):  # type: ignore[arg-type]
                pass  # it stays until its session ends

    async def leave(self, agent: str) -> None:
        await self.store.close_session(self.sessions.pop(agent))

    async def lead(self, agent: str, number: int, *placement: str) -> None:
        """The agent holds the lease, as planned."""
        resource = partition_resource(TopicPartition("orders", number))
        await acquire(
            self.store, resource, holder=agent, session=self.sessions[agent], clock=self.clock, random=self.random
        )
        await self.store.commit(apply=(Put(plan_key("orders"), encode_placements([placement or (agent,)])),))

    async def open(self, topic: Topic, number: int, replicas: Sequence[str], in_sync: Sequence[str]) -> None:
        """The commit of a leader that serves with these replicas."""
        record = PartitionRecord(
            opened_epoch=1,
            opened_replicas=tuple(f"wal-of-{agent}" for agent in replicas),
            in_sync=tuple(f"wal-of-{agent}" for agent in in_sync),
        )
        partition_id = PartitionId(topic=topic.name, topic_id=topic.id, number=number)
        await self.store.commit(
            apply=(
                Put(state_key(topic.id, number), msgspec.json.encode(record)),
                replica_set_write(partition_id, record),
            )
        )


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    clock, random = FakeClock(), SeededRandom(3)
    yield World(MemoryStore(clock=clock, random=random, limits=StoreLimits()), clock, random)


async def test_partitions_and_agents_are_listed_with_replicas(world: World) -> None:
    await world.join("ann", "bob", "cat")
    topic = await world.topics.create("orders", 1, {"durability": "quorum", "replication_factor": 3})
    await world.lead("ann", 0, "ann", "bob", "cat")
    (status,) = await world.administration.partitions("orders")
    assert (status.replicas, status.in_sync) == (("ann",), ("ann",))  # nothing was opened with others yet
    await world.open(topic, 0, ["ann", "bob", "cat"], ["ann", "cat"])
    (status,) = await world.administration.partitions("orders")
    assert (status.leader, status.replicas, status.in_sync) == ("ann", ("ann", "bob", "cat"), ("ann", "cat"))
    assert status.planned == ("ann", "bob", "cat")
    await world.leave("cat")
    (status,) = await world.administration.partitions("orders")
    assert (status.replicas, status.in_sync) == (("ann", "bob", "cat"), ("ann",))
    listed = {each.id: (each.live, each.replicas, each.in_sync) for each in await world.administration.agents()}
    assert listed == {"ann": (True, 1, 1), "bob": (True, 1, 0), "cat": (False, 1, 0)}


async def test_the_tail_of_a_drained_agent_is_needed_until_enough_others_keep_up(world: World) -> None:
    await world.join("ann", "bob", "cat")
    topic = await world.topics.create("orders", 2, {"durability": "quorum", "replication_factor": 3})
    await world.open(topic, 0, ["bob", "cat", "ann"], ["bob", "ann"])
    await world.open(topic, 1, ["bob", "cat"], ["bob"])  # ann has no part in this one
    assert await world.administration.tails_needed_of("ann") == 1
    await world.open(topic, 0, ["bob", "cat", "ann"], ["bob", "cat", "ann"])
    assert await world.administration.tails_needed_of("ann") == 0
    await world.leave("cat")  # one that is gone keeps nothing; bob is the only other one left
    assert await world.administration.tails_needed_of("ann") == 0
    await world.open(topic, 0, ["bob", "cat", "ann"], ["ann"])
    assert await world.administration.tails_needed_of("ann") == 1


async def test_a_reassignment_is_under_way_until_leader_and_set_are_those_assigned(world: World) -> None:
    await world.join("ann", "bob", "cat")
    topic = await world.topics.create("orders", 1, {"durability": "quorum", "replication_factor": 2})
    await world.lead("ann", 0)
    await world.open(topic, 0, ["ann", "bob"], ["ann", "bob"])
    await world.administration.assign("orders", {0: ("ann", "cat")})
    (moving,) = await world.administration.reassignments()
    assert (moving.leader, moving.replicas, moving.assigned) == ("ann", ("ann", "bob"), ("ann", "cat"))
    await world.open(topic, 0, ["ann", "cat"], ["ann"])
    assert await world.administration.reassignments() == []
    await world.open(topic, 0, ["ann", "bob", "cat"], ["ann"])  # the factor was lowered a moment ago
    assert len(await world.administration.reassignments()) == 1


async def test_the_preferred_leader_is_the_assigned_one_or_else_the_planned_one(world: World) -> None:
    await world.join("ann", "bob")
    await world.topics.create("orders", 1)
    await world.lead("ann", 0, "bob", "ann")
    which = TopicPartition("orders", 0)
    assert await world.administration.preferred_leaders(["orders"]) == {which: "bob"}
    await world.administration.assign("orders", {0: ("ann",)})
    assert await world.administration.preferred_leaders(["orders"]) == {which: "ann"}
    assert await world.administration.preferred_leaders(["others"]) == {}


def test_agents_that_are_gone_are_not_waited_for() -> None:
    assert target_agents(("ann", "bob", "cat"), {"bob", "cat"}, 2) == ("bob", "cat")
    under_way = partial(is_under_way, factor=2)
    assert not under_way((), leader=None, replicas=())
    assert under_way(("bob", "cat"), leader="cat", replicas=("bob", "cat"))
    assert under_way(("bob", "cat"), leader="bob", replicas=("bob", "ann"))
    assert not under_way(("bob", "cat"), leader="bob", replicas=("cat", "bob"))
    assert not under_way(("bob",), leader="bob", replicas=("bob", "ann"))  # the second is the planner's choice
    assert under_way(("bob",), leader="bob", replicas=("bob", "ann", "cat"))
