"""What ends with a session, and what does not: an outage ends nothing, a cancellation and a failed WAL end everything."""

import asyncio

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.failpoints import fail_at
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.kernel.session import SessionSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import CorruptError, HoldfastError

LASTING = SessionSettings(ttl_ms=30_000, renew_ms=1_000, margin_ms=3_000, stall_ms=20_000, retry_ms=50)


async def leading(cluster: LocalCluster, **changes: object) -> Node:
    ann = await cluster.node("ann", **changes)
    await ann.service.create_topic("orders", 2, {"roll_ms": 100})
    await async_until(lambda: len(ann.agent.leading) == 2)
    return ann


def epochs(node: Node) -> dict[int, int]:
    return {which.number: led.lease.epoch for which, led in node.agent.log.leading.items()}


@pytest.mark.slow
async def test_an_agent_whose_watches_resync_during_an_outage_goes_on_with_all_that_stands_on_it(
    cluster: LocalCluster,
) -> None:
    ann = await leading(cluster)
    ann.store.reachable = False
    ann.store.resync_watches()
    await ann.lose_session()
    await cluster.clock.sleep_ms(2_500)  # longer than anybody tries to open a mirror
    ann.store.reachable = True
    await async_until(lambda: len(ann.agent.leading) == 2 or not ann.serving)
    assert ann.serving
    assert await cluster.produce("orders", 0, "after") == 0
    await ann.service.create_topic("later", 1)
    await async_until(lambda: ann.agent.topic("later") is not None)


async def test_an_agent_that_is_told_to_end_while_its_session_ends_does_not_rejoin(cluster: LocalCluster) -> None:
    ann = await leading(cluster)
    session = ann.agent.sessions.session
    assert session is not None
    session.deadline_ms = 0
    ann.agent.log._dirty_partitions.notify()  # the publisher sees the end of the session in this very turn
    ann.task.cancel()
    await async_until(ann.task.done)
    assert ann.task.cancelled()
    assert ann.agent.counters.sessions == 1


async def test_an_agent_that_stops_says_what_it_waits_for(cluster: LocalCluster) -> None:
    ann = await leading(cluster, session=LASTING)
    bob = await cluster.node("bob", session=LASTING)
    await ann.service.produce("orders", 0, batch("unpublished"))
    ann.store.reachable = False
    stopping = asyncio.ensure_future(ann.stop())
    await async_until(lambda: ann.agent.sessions.waits_for == "the store, to leave the cluster")
    ann.objects.reachable = False
    ann.store.reachable = True
    await async_until(lambda: "other agents, to take over" in ann.agent.sessions.waits_for)
    await bob.drop()
    await async_until(lambda: "object storage and the store, to publish and release" in ann.agent.sessions.waits_for)
    ann.objects.reachable = True
    await stopping


@pytest.mark.slow
async def test_an_agent_that_stops_while_the_store_is_away_does_not_say_that_it_rejoins(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await leading(cluster)
    await cluster.produce("orders", 0, "a")
    ann.store.reachable = False
    stopping = asyncio.ensure_future(ann.stop())
    await async_until(lambda: ann.agent.sessions.waits_for)
    await ann.lose_session()
    await stopping
    told = [each for each in caplog.messages if "session" in each and "joined" not in each]
    assert not [each for each in told if "rejoining" in each], told
    assert "what it had not published stays in its WAL" in "".join(told)


@pytest.mark.parametrize("session_ends", [True, False])
async def test_a_wal_that_fails_ends_the_agent_also_together_with_its_session(
    cluster: LocalCluster, session_ends: bool
) -> None:
    ann = await leading(cluster)
    session = ann.agent.sessions.session
    assert session is not None

    def end_session(_: object) -> None:
        if session_ends:
            session.deadline_ms = 0
            ann.agent.log._dirty_partitions.notify()

    ann.agent.wal.failed.add_done_callback(end_session)
    with failpoints.installed(fail_at("wal.group-synced")), pytest.raises(HoldfastError):
        await ann.service.produce("orders", 0, batch("a"))
    await async_until(ann.task.done, what="it ends with its WAL")
    with pytest.raises(CorruptError, match="the process must stop"):
        ann.task.result()


@pytest.mark.long
@pytest.mark.parametrize("how", ["reachable", "answering"])
async def test_an_outage_that_the_session_survives_costs_no_leadership_and_no_epoch(
    cluster: LocalCluster, how: str
) -> None:
    ann = await leading(cluster, session=LASTING)
    session, before = ann.agent.sessions.session, epochs(ann)
    await ann.service.produce("orders", 0, batch("a"))
    setattr(ann.store, how, False)
    ann.store.resync_watches()
    await ann.service.produce("orders", 0, batch("b"))  # the offsets are reserved, the WAL is here
    await cluster.clock.sleep_ms(14_000)  # longer than a commit is tried
    setattr(ann.store, how, True)
    assert ann.agent.sessions.session is session
    assert epochs(ann) == before
    assert await ann.service.flush("orders", 0) == 2
    assert await cluster.read("orders", 0) == [(0, "a"), (1, "b")]
    assert ann.serving
