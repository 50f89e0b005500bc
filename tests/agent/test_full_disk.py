"""An agent whose disk is full: others lead what they can, until it has space again."""

import logging

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.waiting import async_until

from holdfast.agent.full_disk import FullDiskWatch
from holdfast.kernel.placement_requests import drain_agent, drained_agents
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import background_tasks

pytestmark = pytest.mark.slow

FULL_DISK_MS = 200
PARTITIONS = 3


async def started(cluster: LocalCluster, *names: str, **config: object) -> list[Node]:
    cluster.streams = True
    nodes = [await cluster.node(name, full_disk_ms=FULL_DISK_MS) for name in names]
    await nodes[0].service.create_topic("orders", PARTITIONS, config)
    await async_until(lambda: sum(len(node.leads()) for node in nodes) == PARTITIONS)
    await async_until(lambda: all(node.leads() for node in nodes))
    return nodes


async def drained(cluster: LocalCluster) -> set[str]:
    return set(await drained_agents(cluster.store, clock=cluster.clock, random=cluster.random))


@pytest.mark.parametrize("durability", ["local", "object", "quorum"])
async def test_others_lead_what_an_agent_with_a_full_disk_led_and_it_gets_work_again_when_it_has_space(
    cluster: LocalCluster, durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.agent.full_disk")
    config = {"durability": durability} | ({"replication_factor": 3} if durability == "quorum" else {})
    nodes = await started(cluster, "ann", "bob", "carol", **config)
    for number in range(PARTITIONS):
        await cluster.produce("orders", number, "before")
    victim = next(node for node in nodes if 0 in node.leads())
    victim.disk.full = True
    for number in range(PARTITIONS):
        await cluster.produce("orders", number, "while it is full")
    await async_until(lambda: not victim.leads())
    assert await drained(cluster) == {victim.name}
    for number in range(PARTITIONS):
        await cluster.produce("orders", number, "elsewhere")
    victim.disk.full = False
    await async_until(lambda: bool(victim.leads()))
    assert await drained(cluster) == set()
    for number in range(PARTITIONS):
        await cluster.produce("orders", number, "after")
        found = [value for _, value in await cluster.read("orders", number)]
        assert list(dict.fromkeys(found)) == ["before", "while it is full", "elsewhere", "after"]
    assert [record.getMessage() for record in caplog.records if record.name == "holdfast.agent.full_disk"] == [
        f"agent {victim.name} asks to be drained: its disk has been full for {FULL_DISK_MS} ms",
        f"agent {victim.name} takes work again: its disk has space",
    ]


async def test_it_withdraws_only_what_it_has_asked_for_itself_and_not_while_it_leaves(cluster: LocalCluster) -> None:
    full, leaving, store = True, False, cluster.store
    session = await store.open_session(60_000)
    watch = FullDiskWatch(
        "ann",
        is_full=lambda: full,
        is_leaving=lambda: leaving,
        wait_ms=20,
        store=store,
        clock=cluster.clock,
        random=cluster.random,
    )
    async with background_tasks(watch.run(session.id)):
        await async_until(lambda: drained(cluster))
        leaving, full = True, False
        await cluster.clock.sleep_ms(200)
        assert await drained(cluster) == {"ann"}
        leaving = False
        await async_until(lambda: is_drained_by_nobody(cluster))
        await drain_agent(store, "ann", clock=cluster.clock, random=cluster.random)  # an operator
        full = True
        await cluster.clock.sleep_ms(200)
        full = False
        await cluster.clock.sleep_ms(200)
        assert await drained(cluster) == {"ann"}


async def is_drained_by_nobody(cluster: LocalCluster) -> bool:
    return not await drained(cluster)


async def test_an_agent_alone_keeps_what_it_leads(cluster: LocalCluster) -> None:
    (ann,) = await started(cluster, "ann", durability="local")
    await cluster.produce("orders", 0, "before")
    ann.disk.full = True
    with pytest.raises(HoldfastError):
        await ann.service.produce("orders", 0, b"")
    await cluster.clock.sleep_ms(3 * FULL_DISK_MS)
    assert ann.leads() == {0, 1, 2}
    ann.disk.full = False
    await cluster.produce("orders", 0, "after")
    assert [value for _, value in await cluster.read("orders", 0)] == ["before", "after"]
