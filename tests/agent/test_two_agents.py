"""Two agents share a topic: one is stopped politely, one is cut off, one crashes."""

import asyncio

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.log.errors import NotLeaderError
from holdfast.vocabulary.types import TopicPartition

PARTITIONS = 4


async def pair(cluster: LocalCluster, **config: object) -> tuple[Node, Node]:
    ann = await cluster.node("ann")
    bob = await cluster.node("bob")
    await ann.service.create_topic("orders", PARTITIONS, config)
    await async_until(lambda: len(ann.leads()) == len(bob.leads()) == PARTITIONS // 2)
    return ann, bob


async def check(cluster: LocalCluster, sent: dict[int, list[str]]) -> None:
    """Every record that was acknowledged is read once, in order; what was not may be there or not."""
    for partition, values in sent.items():
        found = await cluster.read("orders", partition)
        assert [value for _, value in found] == values
        assert len({offset for offset, _ in found}) == len(found)


async def test_a_topic_is_shared_and_requests_are_redirected_to_the_leader(cluster: LocalCluster) -> None:
    ann, bob = await pair(cluster)
    assert ann.leads() | bob.leads() == set(range(PARTITIONS))
    anns = min(ann.leads())
    await async_until(lambda: bob.agent.cluster.leader("orders", anns))
    with pytest.raises(NotLeaderError) as error:
        await bob.service.produce("orders", anns, batch("x"))
    assert error.value.leader == "ann"
    assert [member.id for member in bob.agent.cluster.members] == ["ann", "bob"]


async def test_an_agent_that_hands_over_is_a_member_and_answers_until_it_is_stopped(cluster: LocalCluster) -> None:
    ann, bob = await pair(cluster)
    await cluster.produce("orders", min(ann.leads()), "a")
    anns = min(ann.leads())
    await ann.agent.sessions.hand_over()
    assert ann.leads() == set()
    assert ann.agent.member is not None
    await async_until(lambda: bob.leads() == set(range(PARTITIONS)))
    await async_until(lambda: (held := ann.agent.cluster.leader("orders", anns)) and held.holder == "bob")
    with pytest.raises(NotLeaderError) as error:
        await ann.service.produce("orders", anns, batch("b"))
    assert error.value.leader == "bob"
    await ann.stop()
    assert [value for _, value in await cluster.read("orders", anns)] == ["a"]


async def test_the_last_agent_hands_over_to_nobody_and_serves_until_it_is_stopped(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1, {})
    await cluster.produce("orders", 0, "a")
    await ann.agent.sessions.hand_over()
    await cluster.produce("orders", 0, "b")
    assert ann.leads() == {0}


@pytest.mark.slow
@pytest.mark.parametrize("level", ["local", "object"])
async def test_a_graceful_stop_moves_partitions_while_producers_write(cluster: LocalCluster, level: str) -> None:
    ann, bob = await pair(cluster, durability=level)
    sent: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    running = True

    async def write(partition: int) -> None:
        while running:
            value = f"{partition}/{len(sent[partition])}"
            await cluster.produce("orders", partition, value)
            sent[partition].append(value)

    writers = [asyncio.ensure_future(write(partition)) for partition in range(PARTITIONS)]
    await async_until(lambda: all(len(values) > 3 for values in sent.values()))
    await ann.stop()
    before = {partition: len(values) for partition, values in sent.items()}
    await async_until(lambda: all(len(sent[partition]) > count + 3 for partition, count in before.items()))
    running = False
    await asyncio.gather(*writers)
    assert bob.leads() == set(range(PARTITIONS))
    assert bob.agent.offline == {}
    await check(cluster, sent)
    # Leases moved by transfer, not by expiry: nobody lost a session.
    assert bob.agent.counters.sessions_lost == ann.agent.counters.sessions_lost == 0
    assert ann.agent.counters.drained >= PARTITIONS // 2


@pytest.mark.slow
async def test_an_agent_that_joins_takes_its_share_while_producers_write(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", PARTITIONS)
    sent: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    running = True

    async def write(partition: int) -> None:
        while running:
            value = f"{partition}/{len(sent[partition])}"
            await cluster.produce("orders", partition, value)
            sent[partition].append(value)

    writers = [asyncio.ensure_future(write(partition)) for partition in range(PARTITIONS)]
    await async_until(lambda: all(len(values) > 3 for values in sent.values()))
    bob = await cluster.node("bob")
    await async_until(lambda: len(bob.leads()) == len(ann.leads()) == PARTITIONS // 2)
    before = {partition: len(values) for partition, values in sent.items()}
    await async_until(lambda: all(len(sent[partition]) > count + 3 for partition, count in before.items()))
    running = False
    await asyncio.gather(*writers)
    await check(cluster, sent)


@pytest.mark.slow
async def test_partitions_of_an_agent_that_is_cut_off_are_offline_until_it_is_back(cluster: LocalCluster) -> None:
    ann, bob = await pair(cluster)
    sent: dict[int, list[str]] = {partition: [f"first of {partition}"] for partition in range(PARTITIONS)}
    for partition, values in sent.items():
        await cluster.produce("orders", partition, *values)
    anns = ann.leads()
    await ann.lose_session()
    assert ann.leads() == set()
    await async_until(lambda: len(bob.agent.offline) == len(anns))
    assert {partition.number for partition in bob.agent.offline} == anns
    for partition in anns:
        with pytest.raises(NotLeaderError, match="may be in WAL"):
            await bob.service.produce("orders", partition, batch("refused"))
    ann.store.reachable = True
    await async_until(lambda: ann.leads() | bob.leads() == set(range(PARTITIONS)))
    for partition, values in sent.items():
        values.append(f"second of {partition}")
        await cluster.produce("orders", partition, values[-1])
    await check(cluster, sent)


async def test_clean_partitions_of_a_crashed_agent_move_at_once(cluster: LocalCluster) -> None:
    ann, bob = await pair(cluster)
    quiet, written = sorted(ann.leads())
    await ann.service.produce("orders", written, batch("only here"))
    await ann.drop()
    await async_until(lambda: quiet in bob.leads() and bob.agent.offline)
    assert bob.agent.offline.keys() == {TopicPartition("orders", written)}
    assert await cluster.produce("orders", quiet, "a") == 0


async def test_at_object_level_a_crash_moves_everything_at_once_and_loses_nothing_acknowledged(
    cluster: LocalCluster,
) -> None:
    ann, bob = await pair(cluster, durability="object")
    sent: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    for partition, values in sent.items():
        for number in range(3):
            values.append(f"{partition}/{number}")
            await cluster.produce("orders", partition, values[-1])
    await ann.drop()
    await async_until(lambda: bob.leads() == set(range(PARTITIONS)))
    assert bob.agent.offline == {}
    for partition, values in sent.items():
        values.append("after")
        await cluster.produce("orders", partition, values[-1])
    await check(cluster, sent)


async def test_agents_that_stop_together_do_not_wait_for_each_other(cluster: LocalCluster) -> None:
    nodes = [await cluster.node(name, hand_over_ms=3_600_000) for name in ("ann", "bob", "carl")]
    await nodes[0].service.create_topic("orders", 6)
    await async_until(lambda: all(len(node.leads()) == 2 for node in nodes))
    await asyncio.gather(*(node.stop() for node in nodes))
