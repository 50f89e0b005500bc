"""Groups in running agents: shards are placed, move and fail over like partitions, and groups do not notice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.group import join_request
from tests.support.waiting import async_until

from holdfast.groups.errors import NotCoordinatorError, ShardLoadingError
from holdfast.groups.keys import shard_resource
from holdfast.groups.model import CommittedOffset, GroupState, JoinResult, SyncRequest
from holdfast.groups.service import GroupService
from holdfast.groups.settings import GroupSettings
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.types import TopicPartition

pytestmark = pytest.mark.slow

T = TypeVar("T")

SHARDS = 4
QUICK = GroupSettings(shards=SHARDS, initial_delay_ms=10, session_min_ms=50)
GROUP_IDS = [f"g{number}" for number in range(12)]  # in all shards
RETRIED = (NotCoordinatorError, ShardLoadingError, UnavailableError, FencedError, OutcomeUnknownError)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    yield made
    await made.end()


async def node(cluster: LocalCluster, name: str, **changes: object) -> Node:
    return await cluster.node(name, groups=QUICK, **changes)


def shards(*nodes: Node) -> list[int]:
    """How many shards each serves."""
    return [len(each.agent.groups.leading.shards()) if each.agent.groups.leading else 0 for each in nodes]


class Consumers:
    """Clients that ask every live node until one answers, as clients do that look for their coordinator."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.members: dict[str, JoinResult] = {}
        self.acknowledged: dict[str, int] = {}

    async def ask(self, call: Callable[[GroupService], Awaitable[T]]) -> T:
        while True:
            for each in self.cluster.nodes:
                if not each.task.done():
                    try:
                        return await call(each.agent.groups)
                    except RETRIED:
                        continue
            await self.cluster.clock.sleep_ms(5)

    async def join_all(self) -> None:
        for group_id in GROUP_IDS:
            joined = await self.ask(lambda groups: groups.join(group_id, join_request(session_timeout_ms=20_000)))  # noqa: B023
            ask = SyncRequest(
                member_id=joined.member_id, generation=joined.generation, assignments={joined.member_id: b"all"}
            )
            await self.ask(lambda groups: groups.sync(group_id, ask))  # noqa: B023
            self.members[group_id] = joined

    async def commit(self, group_id: str, offset: int) -> None:
        member = self.members[group_id]

        async def commit(groups: GroupService) -> None:
            results = await groups.commit_offsets(
                group_id,
                {TopicPartition("orders", 0): CommittedOffset(offset=offset)},
                member_id=member.member_id,
                generation=member.generation,
            )
            for error in results.values():
                if error is not None:
                    raise error

        await self.ask(commit)
        self.acknowledged[group_id] = offset

    async def check(self) -> None:
        """Every group is in its first generation still, and what was acknowledged is there."""
        for group_id, member in self.members.items():
            await self.ask(
                lambda groups: groups.heartbeat(group_id, member_id=member.member_id, generation=member.generation)  # noqa: B023
            )
            described: Any = await self.ask(lambda groups: groups.describe(group_id))  # noqa: B023
            assert (described.state, described.generation) == (GroupState.STABLE, 1)
            found: Any = await self.ask(lambda groups: groups.fetch_offsets(group_id))  # noqa: B023
            assert {each.offset for each in found.values()} == {self.acknowledged[group_id]}


async def committing(consumers: Consumers, group_id: str, running: asyncio.Event) -> None:
    while running.is_set():
        await consumers.commit(group_id, consumers.acknowledged.get(group_id, 0) + 1)


async def test_shards_are_spread_and_are_not_a_topic(cluster: LocalCluster) -> None:
    ann, bob = await node(cluster, "ann"), await node(cluster, "bob")
    await async_until(lambda: shards(ann, bob) == [2, 2])
    await ann.service.create_topic("orders", 1)
    await async_until(lambda: ann.agent.topic("orders") and bob.agent.topic("orders"))
    assert [topic.name for topic in bob.agent.cluster.topics] == ["orders"]
    await async_until(lambda: all(bob.agent.cluster.holder(shard_resource(number)) for number in range(SHARDS)))
    held = [bob.agent.cluster.holder(shard_resource(number)) for number in range(SHARDS)]
    assert sorted(each.holder for each in held if each is not None) == ["ann", "ann", "bob", "bob"]
    assert all(partition.topic == "orders" for each in (ann, bob) for partition in each.agent.leading)


async def test_an_agent_of_any_group_coordinates(cluster: LocalCluster) -> None:
    ann = await node(cluster, "ann", group="blue")
    await async_until(lambda: shards(ann) == [SHARDS])
    bob = await node(cluster, "bob", group="green")
    await async_until(lambda: shards(ann, bob) == [2, 2])
    await ann.stop()
    await async_until(lambda: shards(bob) == [SHARDS])


@pytest.mark.parametrize("crash", [False, True])
async def test_groups_outlive_an_agent_while_their_members_commit(cluster: LocalCluster, crash: bool) -> None:
    ann, bob = await node(cluster, "ann"), await node(cluster, "bob")
    await async_until(lambda: shards(ann, bob) == [2, 2])
    consumers = Consumers(cluster)
    await consumers.join_all()
    running = asyncio.Event()
    running.set()
    tasks = [asyncio.ensure_future(committing(consumers, group_id, running)) for group_id in GROUP_IDS]
    await async_until(lambda: min(consumers.acknowledged.get(each, 0) for each in GROUP_IDS) > 3)
    await (ann.drop() if crash else ann.stop())
    before = dict(consumers.acknowledged)
    await async_until(lambda: all(consumers.acknowledged[each] > before[each] + 3 for each in GROUP_IDS))
    running.clear()
    await asyncio.gather(*tasks)
    assert shards(bob) == [SHARDS]
    await consumers.check()
    if not crash:
        assert ann.agent.counters.sessions_lost == bob.agent.counters.sessions_lost == 0


async def test_groups_outlive_a_restart_of_the_only_agent(cluster: LocalCluster) -> None:
    ann = await node(cluster, "ann")
    consumers = Consumers(cluster)
    await consumers.join_all()
    for group_id in GROUP_IDS:
        await consumers.commit(group_id, 1)
    await ann.stop()
    await node(cluster, "ann")
    await consumers.check()


async def test_an_agent_that_loses_its_session_coordinates_nothing_until_it_has_a_new_one(
    cluster: LocalCluster,
) -> None:
    ann = await node(cluster, "ann")
    consumers = Consumers(cluster)
    await consumers.join_all()
    for group_id in GROUP_IDS:
        await consumers.commit(group_id, 7)
    await ann.lose_session()
    with pytest.raises(NotCoordinatorError):
        await ann.agent.groups.describe("g1")
    ann.store.reachable = True
    await async_until(lambda: shards(ann) == [SHARDS])
    await consumers.check()


@pytest.mark.slow
async def test_an_agent_that_joins_takes_shards_over_while_members_commit(cluster: LocalCluster) -> None:
    await node(cluster, "ann")
    consumers = Consumers(cluster)
    await consumers.join_all()
    running = asyncio.Event()
    running.set()
    tasks = [asyncio.ensure_future(committing(consumers, group_id, running)) for group_id in GROUP_IDS]
    await async_until(lambda: min(consumers.acknowledged.get(each, 0) for each in GROUP_IDS) > 3)
    bob = await node(cluster, "bob")
    await async_until(lambda: shards(bob) == [2])
    before = dict(consumers.acknowledged)
    await async_until(lambda: all(consumers.acknowledged[each] > before[each] + 3 for each in GROUP_IDS))
    running.clear()
    await asyncio.gather(*tasks)
    await consumers.check()
