"""An agent whose disk is full: others lead what they can, until it has space again."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.cluster import LocalCluster, Node, wal_bytes
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.agent import full_disk
from holdfast.agent.full_disk import FullDiskWatch
from holdfast.contracts.store import Store
from holdfast.kernel.placement_requests import drain_agent, drain_until_session_ends, drained_agents, withdraw_drain
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError
from holdfast.vocabulary.settings import KIB
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
    await async_until(lambda: drained(cluster))
    assert await drained(cluster) == {victim.name}
    await async_until(lambda: not victim.leads())
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


async def test_what_a_full_disk_did_not_take_is_not_waited_for_to_be_published(cluster: LocalCluster) -> None:
    """An append has offsets until its write has failed: a drain that began meanwhile ends all the same."""
    nodes = await started(cluster, "ann", "bob", "carol", durability="object")
    victim = next(node for node in nodes if 0 in node.leads())
    await cluster.produce("orders", 0, "before")
    led = victim.agent.log.leading[next(each for each in victim.agent.leading if each.number == 0)]
    end = led.next_offset
    victim.disk.full = True
    appending = asyncio.ensure_future(victim.service.produce("orders", 0, batch("x")))
    while led.next_offset == end and not appending.done():
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)
    assert led.next_offset > end
    async with asyncio.timeout(10):
        await led.wait_published()
    with pytest.raises(HoldfastError):
        await appending
    assert (led.next_offset, led.record.published) == (end, end)


def watching(
    cluster: LocalCluster, store: Store, is_full: Callable[[], bool], is_leaving: Callable[[], bool] = lambda: False
) -> FullDiskWatch:
    return FullDiskWatch(
        "ann",
        is_full=is_full,
        is_leaving=is_leaving,
        wait_ms=20,
        store=store,
        clock=cluster.clock,
        random=cluster.random,
    )


async def test_it_withdraws_only_what_it_has_asked_for_itself_and_not_while_it_leaves(cluster: LocalCluster) -> None:
    full, leaving, store = True, False, cluster.store
    session = await store.open_session(60_000)
    async with background_tasks(watching(cluster, store, lambda: full, lambda: leaving).run(session.id)):
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


async def test_what_an_operator_asks_for_lasts_although_the_agent_has_asked_before(cluster: LocalCluster) -> None:
    full, store = True, cluster.store
    session = await store.open_session(60_000)
    async with background_tasks(watching(cluster, store, lambda: full).run(session.id)):
        await async_until(lambda: drained(cluster))
        await drain_agent(store, "ann", clock=cluster.clock, random=cluster.random)
        full = False
        await cluster.clock.sleep_ms(200)
        assert await drained(cluster) == {"ann"}
    await store.close_session(session.id)
    assert await drained(cluster) == {"ann"}


async def test_what_was_asked_for_with_an_unknown_outcome_is_withdrawn_too(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, store = True, cluster.store
    session = await store.open_session(60_000)

    async def asked_in_vain(*args: object, **options: object) -> int | None:
        nonlocal full
        await drain_until_session_ends(*args, **options)  # type: ignore[arg-type]
        full = False  # before it is asked for again
        raise OutcomeUnknownError("drain", "no answer")

    monkeypatch.setattr(full_disk, "drain_until_session_ends", asked_in_vain)
    async with background_tasks(watching(cluster, store, lambda: full).run(session.id)):
        await async_until(lambda: not full)
        await async_until(lambda: is_drained_by_nobody(cluster))


async def test_a_withdrawal_under_way_does_not_take_away_what_a_stop_asks_for(cluster: LocalCluster) -> None:
    store, session = cluster.store, await cluster.store.open_session(60_000)
    options: dict[str, Any] = {"clock": cluster.clock, "random": cluster.random}
    asked = await drain_until_session_ends(store, "ann", session=session.id, **options)
    assert asked is not None
    assert await drain_until_session_ends(store, "ann", session=session.id, **options) != asked  # the stop
    await withdraw_drain(store, "ann", asked, **options)
    assert await drained(cluster) == {"ann"}


async def test_a_disk_whose_wal_has_spare_files_is_not_full(cluster: LocalCluster) -> None:
    """It filled during an outage of object storage; then everything is published, and the files are spares, not free space."""
    cluster.streams = True
    nodes = [await cluster.node(name, full_disk_ms=FULL_DISK_MS) for name in ("ann", "bob")]
    ann = nodes[0]
    await ann.service.create_topic("orders", 4, {"durability": "local"})
    await async_until(lambda: all(node.leads() for node in nodes) and sum(len(node.leads()) for node in nodes) == 4)
    for node in nodes:
        node.objects.reachable = False
    files = cluster.directory / "ann"
    ann.disk.limit_bytes = 6 * 256 * KIB
    number = min(ann.leads())

    async def fill() -> None:
        while True:
            await ann.service.produce("orders", number, batch("v" * 50_000))

    with pytest.raises(HoldfastError):
        await fill()
    await async_until(lambda: drained(cluster))
    for node in nodes:
        node.objects.reachable = True
    await async_until(lambda: not ann.leads())
    await async_until(lambda: wal_bytes(files) > 5 * 256 * KIB)
    await async_until(lambda: is_drained_by_nobody(cluster))
    await async_until(lambda: bool(ann.leads()))


async def is_drained_by_nobody(cluster: LocalCluster) -> bool:
    return not await drained(cluster)


async def test_an_agent_alone_keeps_what_it_leads(cluster: LocalCluster) -> None:
    (ann,) = await started(cluster, "ann", durability="local")
    await cluster.produce("orders", 0, "before")
    ann.disk.full = True
    with pytest.raises(HoldfastError):
        await ann.service.produce("orders", 0, batch("refused"))
    await async_until(lambda: drained(cluster))
    await cluster.clock.sleep_ms(2 * FULL_DISK_MS)
    assert ann.leads() == {0, 1, 2}
    ann.disk.full = False
    await cluster.produce("orders", 0, "after")
    assert [value for _, value in await cluster.read("orders", 0)] == ["before", "after"]
