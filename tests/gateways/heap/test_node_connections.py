"""Forwards to a node that cannot be reached: nobody queues up for it."""

import asyncio
from typing import Any, cast

import pytest
from tests.support.waiting import async_until

from holdfast.agent.cluster import Cluster
from holdfast.client.addresses import BrokerAddress
from holdfast.client.heap_connection import HeapConnection
from holdfast.gateways.heap import node_connections
from holdfast.gateways.heap.node_connections import HeapNodeConnections
from holdfast.heap.wire import HeapRequest, PopRequest, StatsRequest
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.types import Member

STATS = StatsRequest(topic="jobs", partition=0)
POP = PopRequest(topic="jobs", partition=0, consumer="c")


class Hole:
    """A cluster of one other node, which swallows SYNs until its host is known to be gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried, self.is_gone = 0, asyncio.Event()
        monkeypatch.setattr(node_connections, "open_heap_connection", self.open)
        self.connections = HeapNodeConnections(cast(Cluster, self), None, RealClock())

    def reachable_member(self, agent: str) -> Member:
        return Member(id=agent, session="s1", address="10.0.0.9:9092")

    async def open(self, address: BrokerAddress, **_: Any) -> HeapConnection:
        self.tried += 1
        await self.is_gone.wait()
        raise UnavailableError(f"node {address}", "not reached within 5 s")

    def forward(self, request: HeapRequest) -> "asyncio.Task[HeapConnection | None]":
        return asyncio.create_task(self.connections.to("bob", request))


@pytest.mark.parametrize("request_", [STATS, POP], ids=["stats", "pop"])
async def test_requests_that_wait_for_a_connection_fail_with_it(
    monkeypatch: pytest.MonkeyPatch, request_: HeapRequest
) -> None:
    hole = Hole(monkeypatch)
    forwards = [hole.forward(request_) for _ in range(12)]
    await async_until(lambda: hole.tried > 0)
    hole.is_gone.set()
    found = await asyncio.gather(*forwards, return_exceptions=True)
    assert [type(each) for each in found] == [UnavailableError] * 12
    with pytest.raises(UnavailableError, match="a moment ago"):  # nor is it tried again at once
        await hole.forward(STATS if request_ is POP else POP)
    assert hole.tried == 1


async def test_a_node_that_could_not_be_reached_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connections, "_SHUNNED_MS", 0)
    hole = Hole(monkeypatch)
    hole.is_gone.set()
    for _ in range(2):
        with pytest.raises(UnavailableError, match="within 5 s"):
            await hole.forward(STATS)
    assert hole.tried == 2


async def test_nobody_waits_long_behind_a_request_that_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connections, "_PATIENCE_MS", 1)
    hole = Hole(monkeypatch)
    first = hole.forward(STATS)
    await async_until(lambda: hole.tried > 0)
    with pytest.raises(UnavailableError, match="still being opened"):
        await hole.forward(STATS)
    assert not first.done()
    first.cancel()
    await asyncio.wait({first})
    hole.is_gone.set()
    with pytest.raises(UnavailableError, match="within 5 s"):  # the next one has its turn
        await hole.forward(STATS)


class Frozen(Hole):
    """A cluster of one other node, which takes connections and answers nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.clock, self.session, self.host, self.opened = FakeClock(), "s1", "bob", list[HeapConnection]()
        self.connections = HeapNodeConnections(cast(Cluster, self), None, self.clock)

    def member(self, agent: str) -> Member | None:
        return Member(id=agent, session=self.session, address=f"{self.host}:1") if self.session else None

    def reachable_member(self, agent: str) -> Member:
        member = self.member(agent)
        assert member is not None
        return member

    async def open(self, address: BrokerAddress, **_: Any) -> HeapConnection:
        self.opened.append(HeapConnection(address))
        return self.opened[-1]


@pytest.mark.parametrize("session", ["", "s2"], ids=["gone", "another"])
async def test_what_waits_at_an_agent_ends_soon_after_its_session(
    monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    """Another agent leads by then, which whoever asks again finds."""
    frozen = Frozen(monkeypatch)
    connection = await frozen.forward(STATS)
    assert connection is not None
    asking = asyncio.ensure_future(connection.call(STATS))
    await frozen.clock.run_for_ms(30_000)
    assert not asking.done()
    frozen.session = session
    await frozen.clock.run_for_ms(500)
    assert not asking.done()  # it may be about to answer: it has left, and is not frozen
    await frozen.clock.run_for_ms(2_000)
    with pytest.raises(OutcomeUnknownError):
        await asking
    frozen.session = "s2"
    after = await frozen.forward(STATS)
    assert after is not None
    await frozen.clock.run_for_ms(10_000)
    assert (connection.lost is None, after.lost) == (False, None)
    frozen.connections.close()


async def test_nothing_is_kept_of_agents_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = Frozen(monkeypatch)
    for at in range(20):
        frozen.session, frozen.host = f"s{at}", f"host-{at}"
        await frozen.forward(STATS)
        await frozen.forward(POP)
        await frozen.clock.run_for_ms(3_000)
    assert (len(frozen.connections._open), len(frozen.connections._opening)) == (2, 2)
    assert sum(each.lost is None for each in frozen.opened) == 2
    frozen.connections.close()
