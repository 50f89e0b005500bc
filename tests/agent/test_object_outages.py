"""Object storage does not answer: who leads, who moves and who restarts, and what producers notice of it."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.support.cluster import LocalCluster, Node, fast_settings
from tests.support.partitions import batch, records
from tests.support.waiting import async_until

from holdfast.contracts.store import Store
from holdfast.kernel.objects_owner import ObjectsOwner, claim_objects
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

PARTITIONS = 4
NEVER_MS = 3_600_000  # no test waits so long


def fall_silent(node: Node) -> None:
    """Requests wait for a while, and fail then, as they do when nobody answers."""
    node.objects.reachable, node.objects.delay_ms = False, 300


def answer_again(node: Node) -> None:
    node.objects.reachable, node.objects.delay_ms = True, 0


@pytest.mark.slow
async def test_a_rebalance_during_an_object_outage_refuses_no_write(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", PARTITIONS)
    await async_until(lambda: len(ann.leads()) == PARTITIONS)
    for partition in range(PARTITIONS):
        await ann.service.produce("orders", partition, batch("before"))
    fall_silent(ann)
    bob = await cluster.node("bob")
    await async_until(lambda: ann.objects.calls.get("put", 0) >= 1)  # it has begun to drain
    refused: list[UnavailableError] = []
    written = dict.fromkeys(range(PARTITIONS), 1)
    until_ms = cluster.clock.boot_ms() + 600
    while cluster.clock.boot_ms() < until_ms:
        for partition in range(PARTITIONS):
            try:
                await ann.service.produce("orders", partition, batch("during"))
                written[partition] += 1
            except UnavailableError as error:
                refused.append(error)
        await cluster.clock.sleep_ms(5)
    assert refused == []
    answer_again(ann)
    await async_until(lambda: len(bob.leads()) == len(ann.leads()) == PARTITIONS // 2)
    for partition, count in written.items():
        assert len(await cluster.read("orders", partition)) == count


async def test_a_stop_uploads_many_partitions_together(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 60)
    await async_until(lambda: len(ann.leads()) == 60)
    for partition in range(60):
        await ann.service.produce("orders", partition, batch("a"))
    puts, commits = ann.objects.calls.get("put", 0), ann.store.calls["commit"]
    await ann.stop()
    assert ann.objects.calls["put"] - puts <= 2
    assert ann.store.calls["commit"] - commits <= 30
    await cluster.node("bob")
    for partition in range(60):
        assert await cluster.read("orders", partition) == [(0, "a")]


async def test_a_stop_ends_in_time_when_object_storage_does_not_answer_and_nothing_is_lost(
    cluster: LocalCluster,
) -> None:
    ann = await cluster.node("ann", drain_ms=300)
    await ann.service.create_topic("orders", PARTITIONS)
    await async_until(lambda: len(ann.leads()) == PARTITIONS)
    for partition in range(PARTITIONS):
        await ann.service.produce("orders", partition, batch("a"))
    ann.objects.delay_ms = NEVER_MS
    await ann.stop()
    await cluster.node("ann")
    for partition in range(PARTITIONS):
        assert await cluster.read("orders", partition) == [(0, "a")]


async def test_a_restart_during_an_object_outage_opens_partitions_from_what_is_local(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object storage is asked once, for the mark of its owner (docs/safety.md, rule 20), and does not answer from then on."""

    async def claim(store: Store, objects: FaultyObjects, *, clock: Clock, random: Random) -> ObjectsOwner:
        owner = await claim_objects(store, objects, clock=clock, random=random)
        objects.delay_ms = delay_ms
        return owner

    delay_ms = 0
    monkeypatch.setattr("holdfast.agent.agent.claim_objects", claim)
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", PARTITIONS)
    await async_until(lambda: len(ann.leads()) == PARTITIONS)
    for partition in range(PARTITIONS):
        await ann.service.produce("orders", partition, batch("published", producer=7, sequence=0))
        await ann.service.flush("orders", partition)
        await ann.service.produce("orders", partition, batch("local", producer=7, sequence=1))
    await ann.drop()
    delay_ms = NEVER_MS
    again = await cluster.node("ann")
    await async_until(lambda: len(again.leads()) == PARTITIONS)
    for partition in range(PARTITIONS):
        fetched = await again.service.fetch("orders", partition, 1)
        assert records(fetched.batches) == [(1, "local")]
        assert (await again.service.produce("orders", partition, batch("plain"))).base_offset == 2
    # What an idempotent producer sent before is in object storage: only its appends wait.
    repeated = asyncio.ensure_future(again.service.produce("orders", 0, batch("published", producer=7, sequence=0)))
    following = asyncio.ensure_future(again.service.produce("orders", 0, batch("after", producer=7, sequence=2)))
    assert (await again.service.produce("orders", 0, batch("plain"))).base_offset == 3
    assert not repeated.done()
    again.objects.delay_ms = 0
    restarted = asyncio.ensure_future(again.service.produce("orders", 1, batch("local", producer=7, sequence=1)))
    assert (await restarted).base_offset == 1
    repeated.cancel(), following.cancel()


async def test_idempotent_appends_wait_for_object_storage_in_their_order(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1)
    await async_until(lambda: ann.leads())
    await ann.service.produce("orders", 0, batch("0", producer=7, sequence=0))
    await ann.service.flush("orders", 0)
    await ann.drop()
    again = await cluster.node("ann")
    await async_until(lambda: again.leads())
    again.objects.delay_ms = 200
    sent = [
        asyncio.ensure_future(again.service.produce("orders", 0, batch(str(number), producer=7, sequence=number)))
        for number in range(5)
    ]
    await async_until(lambda: again.objects.calls.get("get_tail", 0) + again.objects.calls.get("get", 0) > 0)
    again.objects.delay_ms = 0
    assert [(await each).base_offset for each in sent] == [0, 1, 2, 3, 4]
    assert [value for _, value in await cluster.read("orders", 0)] == ["0", "1", "2", "3", "4"]


async def test_an_idempotent_append_is_refused_as_retriable_while_what_came_before_cannot_be_read(
    cluster: LocalCluster,
) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1)
    await async_until(lambda: ann.leads())
    await ann.service.produce("orders", 0, batch("0", producer=7, sequence=0))
    await ann.service.flush("orders", 0)
    await ann.drop()
    log = replace(fast_settings("ann").log, room_wait_ms=50)
    again = await cluster.node("ann", log=log)
    await async_until(lambda: again.leads())
    again.objects.delay_ms = NEVER_MS
    with pytest.raises(UnavailableError, match="not read within 50 ms"):
        await again.service.produce("orders", 0, batch("1", producer=7, sequence=1))
    again.objects.delay_ms = 0

    async def accepted() -> bool:
        with suppress(UnavailableError):  # object storage answers, but not always within 50 ms
            return (await again.service.produce("orders", 0, batch("1", producer=7, sequence=1))).base_offset == 1
        return False

    await async_until(accepted)
    assert await cluster.read("orders", 0) == [(0, "0"), (1, "1")]
