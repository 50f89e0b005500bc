"""Topics at quorum on three agents of one process, over real streams: deaths, restarts, joins, changes of level while writing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.kernel.placement_requests import assign_partitions
from holdfast.log.errors import NotEnoughReplicasError
from holdfast.log.keys import state_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.types import TopicPartition

pytestmark = pytest.mark.slow

PARTITIONS = 3


class Writers:
    """One producer per partition that retries until its record is acknowledged. A retry may append a record again."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.sent: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}

    async def write(self, partition: int) -> None:
        while True:
            value = f"{partition}/{len(self.sent[partition])}"
            try:
                await self._cluster.produce("orders", partition, value)
            except HoldfastError:
                continue  # its outcome is unknown
            self.sent[partition].append(value)

    async def more(self, count: int = 5) -> None:
        """Wait until every partition has taken so many more."""
        before = {partition: len(values) for partition, values in self.sent.items()}
        await async_until(lambda: all(len(self.sent[each]) >= before[each] + count for each in before))

    async def check(self) -> None:
        """Every acknowledged record is read, in order; offsets are not given twice."""
        for partition, values in self.sent.items():
            found = await self._cluster.read("orders", partition)
            assert len({offset for offset, _ in found}) == len(found)
            assert list(dict.fromkeys(value for _, value in found))[: len(values)] == values


@asynccontextmanager
async def writing(cluster: LocalCluster) -> AsyncIterator[Writers]:
    writers = Writers(cluster)
    tasks = [asyncio.ensure_future(writers.write(partition)) for partition in range(PARTITIONS)]
    try:
        yield writers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await writers.check()


async def started(cluster: LocalCluster, *names: str, **settings: object) -> list[Node]:
    cluster.streams = True
    return [await cluster.node(name, **settings) for name in names]


async def with_topic(cluster: LocalCluster, *names: str, **config: object) -> list[Node]:
    nodes = await started(cluster, *names)
    await nodes[0].service.create_topic("orders", PARTITIONS, config or QUORUM)
    await async_until(
        lambda: all(node.leads() for node in nodes) and all(cluster.leader(each) for each in range(PARTITIONS))
    )
    return nodes


QUORUM = {"durability": "quorum", "replication_factor": 3}


def led(cluster: LocalCluster, partition: int) -> object:
    node = cluster.leader(partition)
    return None if node is None else node.agent.log.leading.get(TopicPartition("orders", partition))


def sets(cluster: LocalCluster) -> list[int]:
    """How many members each partition has; 0: none leads it at quorum."""
    found = [led(cluster, partition) for partition in range(PARTITIONS)]
    return [len(each.members) if isinstance(each, ReplicatedPartition) else 0 for each in found]


def in_sync(cluster: LocalCluster) -> list[int]:
    """How many members of each partition keep up."""
    found = [led(cluster, partition) for partition in range(PARTITIONS)]
    return [len(each.in_sync) if isinstance(each, ReplicatedPartition) else 0 for each in found]


async def record(cluster: LocalCluster, partition: int) -> PartitionRecord:
    topic = cluster.nodes[-1].agent.topic("orders")
    assert topic is not None
    entry = await cluster.store.get(state_key(topic.id, partition))
    assert entry is not None
    return msgspec.json.decode(entry.value, type=PartitionRecord)


async def test_a_leader_hands_over_its_tail_to_replicas_without_object_storage(cluster: LocalCluster) -> None:
    nodes = await with_topic(cluster, "ann", "bob", "carol")
    await async_until(lambda: in_sync(cluster) == [3, 3, 3])
    for node in nodes:
        node.objects.reachable = False
    async with writing(cluster) as writers:
        await writers.more()
        leaving = cluster.leader(0)
        assert leaving is not None
        await leaving.agent.sessions.hand_over()
        assert leaving.leads() == set()
        assert (await record(cluster, 0)).published == 0
        await writers.more()
        await leaving.stop()  # the others have everything: its disk is not needed
        await writers.more()
        for node in nodes:
            node.objects.reachable = True


async def test_a_leader_dies_while_producers_write_and_nothing_acknowledged_is_lost(cluster: LocalCluster) -> None:
    await with_topic(cluster, "ann", "bob", "carol")
    await async_until(lambda: sets(cluster) == [3, 3, 3])
    async with writing(cluster) as writers:
        await writers.more()
        victim = cluster.leader(0)
        assert victim is not None
        await victim.drop()
        await writers.more()
        # A set with a dead member has the same quorum.
        await async_until(lambda: sets(cluster) == [2, 2, 2] or max(sets(cluster)) == 3)
        again = await cluster.node(victim.name)
        await async_until(lambda: sets(cluster) == [3, 3, 3])
        await writers.more()
        await async_until(lambda: again.agent.offline == {})


async def test_all_agents_stop_at_once_and_start_again(cluster: LocalCluster) -> None:
    nodes = await with_topic(cluster, "ann", "bob", "carol")
    async with writing(cluster) as writers:
        await writers.more()
    for node in nodes:
        await node.drop()
    await started(cluster, "ann", "bob", "carol")
    await async_until(lambda: all(cluster.leader(partition) is not None for partition in range(PARTITIONS)))
    await writers.check()
    async with writing(cluster) as writers:
        await writers.more()


async def test_an_agent_that_joins_becomes_a_replica_while_producers_write(cluster: LocalCluster) -> None:
    await with_topic(cluster, "ann", "bob")
    await async_until(lambda: sets(cluster) == [2, 2, 2])
    async with writing(cluster) as writers:
        await writers.more()
        await cluster.node("carol")
        await async_until(lambda: sets(cluster) == [3, 3, 3])
        await writers.more()


async def test_an_agent_is_no_member_before_it_has_the_log_and_nobody_waits_for_one_that_cannot_write(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = await with_topic(cluster, "ann", "bob")
    await async_until(lambda: sets(cluster) == [2, 2, 2])
    writable, full, handle = {node.agent.replica_network.wal_id for node in nodes}, True, ReplicaHost.handle

    def answer(self: ReplicaHost, message: Any, sender: str, on_answer: Any) -> None:
        """Carol answers herself alone: she may lead."""
        refused = full and self.wal_id not in writable and sender != self.wal_id
        handle(self, message, sender, (lambda _: on_answer(None)) if refused else on_answer)

    def joined() -> list[bool]:
        """Of partitions that ann and bob lead: whether carol is a member."""
        found = [led(cluster, partition) for partition in range(PARTITIONS) if cluster.leader(partition) in nodes]
        return [len(each.members) == 3 for each in found if isinstance(each, ReplicatedPartition)]

    monkeypatch.setattr(ReplicaHost, "handle", answer)
    async with writing(cluster) as writers:
        await writers.more()
        await cluster.node("carol")
        for _ in range(10):
            await writers.more(20)
            assert not any(joined())
        full = False
        await async_until(lambda: sets(cluster) == [3, 3, 3])
        await writers.more()


async def test_a_dead_member_is_replaced_although_its_successor_does_not_keep_up_with_the_rate(
    cluster: LocalCluster,
) -> None:
    """The rate is for reassignments: where a copy is missing, nobody is limited."""

    def in_sync_of_first() -> int:
        partition = led(cluster, 0)
        return len(partition.in_sync) if isinstance(partition, ReplicatedPartition) else 0

    cluster.streams = True
    slow = ReplicaSettings(catch_up_bytes_per_s=MIB)
    nodes = [await cluster.node(name, replica=slow) for name in ("ann", "bob", "carol")]
    await nodes[0].service.create_topic("orders", 1, QUORUM)
    await async_until(lambda: in_sync_of_first() == 3)
    for node in nodes:
        node.objects.reachable = False  # nothing is published: the log grows
    value = "v" * 900_000
    await cluster.node("dave", replica=slow)
    await next(node for node in nodes if node is not cluster.leader(0)).drop()

    async def write() -> None:
        while True:
            await cluster.produce("orders", 0, value)

    writing = asyncio.ensure_future(write())
    try:
        await async_until(lambda: in_sync_of_first() == 3)
    finally:
        writing.cancel()
    for node in nodes:
        node.objects.reachable = True


async def test_a_learner_that_cannot_write_keeps_no_other_one_out(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.streams = True
    nodes = {name: await cluster.node(name) for name in ("ann", "bob", "carol", "dave", "eve")}
    wals = {node.agent.replica_network.wal_id: name for name, node in nodes.items()}

    def members() -> set[str]:
        partition = led(cluster, 0)
        return {wals[each] for each in partition.members} if isinstance(partition, ReplicatedPartition) else set()

    async def assign(*names: str) -> None:
        await assign_partitions(cluster.store, "orders", {0: names}, clock=cluster.clock, random=cluster.random)

    await nodes["ann"].service.create_topic("orders", 1, QUORUM)
    await assign("ann", "bob", "carol")
    await async_until(lambda: members() == {"ann", "bob", "carol"} and cluster.leader(0) is nodes["ann"])
    handle = ReplicaHost.handle

    def answer(self: ReplicaHost, message: Any, sender: str, on_answer: Any) -> None:
        refused = wals.get(self.wal_id) == "dave" and sender != self.wal_id
        handle(self, message, sender, (lambda _: on_answer(None)) if refused else on_answer)

    monkeypatch.setattr(ReplicaHost, "handle", answer)
    await nodes["bob"].drop()
    await assign("ann", "dave", "eve")
    await async_until(lambda: "eve" in members())


async def test_a_topic_becomes_replicated_and_local_again_while_producers_write(cluster: LocalCluster) -> None:
    nodes = await with_topic(cluster, "ann", "bob", "carol", durability="local")
    async with writing(cluster) as writers:
        await writers.more()
        await nodes[0].service.topics.alter("orders", {**QUORUM})
        await async_until(lambda: sets(cluster) == [3, 3, 3])
        await writers.more()
        await nodes[0].service.topics.alter("orders", {"replication_factor": 2})
        await async_until(lambda: sets(cluster) == [2, 2, 2])
        await writers.more()
        await nodes[0].service.topics.alter("orders", {"durability": "local", "replication_factor": 1})
        await async_until(lambda: sets(cluster) == [0, 0, 0] and all(led(cluster, each) for each in range(PARTITIONS)))
        await writers.more()
    for partition in range(PARTITIONS):
        assert (await record(cluster, partition)).opened_replicas == ()


async def test_a_graceful_stop_hands_replicated_partitions_over(cluster: LocalCluster) -> None:
    nodes = await with_topic(cluster, "ann", "bob", "carol")
    async with writing(cluster) as writers:
        await writers.more()
        await nodes[0].stop()
        await writers.more()
        assert all(node.agent.counters.sessions_lost == 0 for node in nodes)


async def test_one_agent_alone_serves_reads_and_refuses_appends(cluster: LocalCluster) -> None:
    ann, bob = await with_topic(cluster, "ann", "bob", durability="quorum", replication_factor=2)
    async with writing(cluster) as writers:
        await writers.more()
    await bob.drop()
    await async_until(lambda: ann.leads() == set(range(PARTITIONS)) and ann.agent.offline == {})
    await writers.check()
    taken = next(each for each in range(PARTITIONS) if len(getattr(led(cluster, each), "members", ())) == 1)
    with pytest.raises(NotEnoughReplicasError):
        await ann.service.produce("orders", taken, batch("refused"))
    await cluster.node("bob")
    await async_until(lambda: sets(cluster) == [2, 2, 2])
    async with writing(cluster) as writers:
        await writers.more()


async def test_a_leader_whose_disk_is_full_is_opened_under_a_new_epoch_when_it_has_space(cluster: LocalCluster) -> None:
    await with_topic(cluster, "ann", "bob", "carol")
    node = cluster.leader(0)
    assert node is not None
    partition = led(cluster, 0)
    assert isinstance(partition, ReplicatedPartition)
    await cluster.produce("orders", 0, "a")
    before = node.agent.log.leading[TopicPartition("orders", 0)].epoch
    partition._streams._lose(node.agent.replica_network.wal_id)  # as a refused write does
    assert partition.ended is not None
    await async_until(lambda: led(cluster, 0) not in (None, partition))
    assert node.agent.log.leading[TopicPartition("orders", 0)].epoch == before + 1
    await cluster.produce("orders", 0, "b")
    assert [value for _, value in await cluster.read("orders", 0)] == ["a", "b"]


async def test_a_partition_whose_replicas_do_not_answer_is_offline_and_opens_when_one_is_back(
    cluster: LocalCluster,
) -> None:
    ann, bob, carol = await with_topic(cluster, "ann", "bob", "carol")
    await async_until(lambda: sets(cluster) == [3, 3, 3])
    async with writing(cluster) as writers:
        await writers.more()
    wals = {node.name: node.agent.replica_network.wal_id for node in (ann, bob, carol)}
    others = bob.leads() | carol.leads()
    bob.objects.reachable = carol.objects.reachable = False
    await asyncio.gather(bob.drop(), carol.drop())
    await async_until(lambda: {each.number for each in ann.agent.offline} == others)
    for reason in ann.agent.offline.values():
        assert "2 of 3 replicas must answer (to seal)" in reason
        assert f"WALs that do: {wals['ann']}" in reason
        assert wals["bob"] in reason.partition("that do not")[2]
    await ann.service.create_topic("local", 1)
    await async_until(lambda: TopicPartition("local", 0) in ann.agent.leading)  # nobody else is held up
    await cluster.node("bob")
    await async_until(lambda: all(cluster.leader(each) for each in range(PARTITIONS)) and ann.agent.offline == {})
    await writers.check()


async def test_a_leader_that_lives_goes_on_with_new_replicas_when_the_others_are_gone_with_their_disks(
    cluster: LocalCluster,
) -> None:
    ann, bob, carol = await with_topic(cluster, "ann", "bob", "carol")
    await async_until(lambda: sets(cluster) == [3, 3, 3])
    kept = min(ann.leads())
    async with writing(cluster) as writers:
        await writers.more()
    for node in (bob, carol):
        node.objects.reachable = False
    ann.objects.reachable = False  # what is not published is on ann's disk alone
    await asyncio.gather(bob.drop(), carol.drop())
    waiting = asyncio.ensure_future(ann.service.produce("orders", kept, batch("of unknown outcome")))
    for name in ("dave", "erin"):
        await cluster.node(name)
    await async_until(lambda: cluster.leader(kept) is not None and len(getattr(led(cluster, kept), "members", ())) == 3)
    await asyncio.gather(waiting, return_exceptions=True)
    ann.objects.reachable = True
    await cluster.produce("orders", kept, "after")
    found = [value for _, value in await cluster.read("orders", kept)]
    assert list(dict.fromkeys(found))[: len(writers.sent[kept])] == writers.sent[kept]
    assert found[-1] == "after"


async def test_an_agent_becomes_a_replica_and_leads_again_although_nothing_can_be_published(
    cluster: LocalCluster,
) -> None:
    brisk = {"drain_publish_ms": 500}
    nodes = await started(cluster, "ann", "bob", "carol", **brisk)
    await nodes[0].service.create_topic("orders", PARTITIONS, QUORUM)
    await async_until(lambda: all(node.leads() for node in nodes) and sets(cluster) == [3, 3, 3])
    for node in nodes:
        node.objects.reachable = False
    async with writing(cluster) as writers:
        await nodes[2].drop()
        await async_until(lambda: nodes[0].leads() | nodes[1].leads() == set(range(PARTITIONS)))
        await async_until(lambda: min(sets(cluster)) == 2)
        await writers.more()
        carol = await cluster.node("carol", **brisk)
        carol.objects.reachable = False
        await async_until(lambda: sets(cluster) == [3, 3, 3] and bool(carol.leads()))
        await writers.more()
    for node in cluster.nodes:
        node.objects.reachable = True


async def test_who_keeps_up_is_in_the_record(cluster: LocalCluster) -> None:
    nodes = await started(cluster, "ann", "bob", "carol", replica=ReplicaSettings(lag_ms=500))
    await nodes[0].service.create_topic("orders", PARTITIONS, QUORUM)
    await async_until(lambda: sets(cluster) == [3, 3, 3])
    leader = cluster.leader(0)
    assert leader is not None
    follower = next(node for node in nodes if node is not leader)
    gone = follower.agent.replica_network.wal_id
    while len((await record(cluster, 0)).in_sync) < 3:
        await cluster.produce("orders", 0, "a")
    await follower.drop()
    while gone in (await record(cluster, 0)).in_sync:
        await cluster.produce("orders", 0, "b")
    await cluster.node(follower.name, replica=ReplicaSettings(lag_ms=500))
    while gone not in (await record(cluster, 0)).in_sync:
        await cluster.produce("orders", 0, "c")


async def test_a_reopening_that_fails_once_does_not_give_the_only_log_away(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry = {"open_retry_ms": 2_000}  # longer than a transfer takes, as by default
    ann, bob, carol = await started(cluster, "ann", "bob", "carol", **retry)
    await ann.service.create_topic("orders", 9, QUORUM)
    await async_until(lambda: all(len(getattr(led(cluster, n), "members", ())) == 3 for n in range(9)))
    kept = sorted(ann.leads())
    for n in kept:
        await cluster.produce("orders", n, f"acknowledged {n}")
    ann.objects.reachable = False
    for n in kept:
        await cluster.produce("orders", n, f"acknowledged too {n}")
    own = ann.agent.replica_network.wal_id
    muted = True  # those that join answer nobody at first
    handle = ReplicaHost.handle

    def muting(self: ReplicaHost, message: Any, sender: str, on_answer: Any) -> None:
        if muted and self.wal_id != own:
            asyncio.get_running_loop().call_soon(on_answer, None)
        else:
            handle(self, message, sender, on_answer)

    await asyncio.gather(bob.drop(), carol.drop())
    waiting = [asyncio.ensure_future(ann.service.produce("orders", n, batch("unknown outcome"))) for n in kept]
    monkeypatch.setattr(ReplicaHost, "handle", muting)
    for name in ("dave", "erin"):
        await cluster.node(name, **retry)
    await async_until(lambda: all(n not in ann.leads() for n in kept), within_s=20)
    await cluster.clock.sleep_ms(2_000)  # in which the planner moves what it may: nothing says that it wants to no more
    muted = False
    ann.objects.reachable = True
    await asyncio.gather(*waiting, return_exceptions=True)
    await async_until(lambda: all(cluster.leader(n) is not None for n in kept))
    for n in kept:
        found = [value for _, value in await cluster.read("orders", n)]
        assert found[:2] == [f"acknowledged {n}", f"acknowledged too {n}"]


async def test_a_level_that_is_lowered_while_an_append_waits_for_lost_replicas_does_not_hang(
    cluster: LocalCluster,
) -> None:
    ann, bob, carol = await started(cluster, "ann", "bob", "carol")
    await ann.service.create_topic("orders", 1, QUORUM)
    await async_until(lambda: len(getattr(led(cluster, 0), "members", ())) == 3)
    leader = cluster.leader(0)
    assert leader is not None
    await cluster.produce("orders", 0, "acknowledged")
    others = [node for node in (ann, bob, carol) if node is not leader]
    await asyncio.gather(*(node.drop() for node in others))  # with their disks
    waiting = asyncio.ensure_future(leader.service.produce("orders", 0, batch("unknown outcome")))
    await async_until(lambda: getattr(led(cluster, 0), "next_offset", 0) == 2)
    await leader.service.topics.alter("orders", {"durability": "local", "replication_factor": 1})
    for name in ("dave", "erin"):
        await cluster.node(name)
    async with asyncio.timeout(30):
        await cluster.produce("orders", 0, "after")
    waiting.cancel()
    found = [value for _, value in await cluster.read("orders", 0)]
    assert (found[0], found[-1]) == ("acknowledged", "after")
