"""Messages: what was sent may land, late or unheard; what was settled may not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from holdfast.contracts.store import Changed, Committed, NotCommitted, Put, Resync
from holdfast.sim.history import History
from holdfast.sim.loop import SimLoop
from holdfast.sim.network import NetworkConditions, NetworkLink, SimStoreClient
from holdfast.sim.process import SimClock, SimProcess
from holdfast.sim.store_server import SimStore, SimStoreServer, run_immediately
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SeededRandom

PUT = (Put("k", b"1"),)


@dataclass
class Net:
    loop: SimLoop
    server: SimStoreServer
    process: SimProcess
    link: NetworkLink
    conditions: NetworkConditions
    port: SimStoreClient
    clock: SimClock
    history: History


def with_net(test: Callable[[Net], Awaitable[None]]) -> Net:
    loop = SimLoop()
    history = History(loop, tracing=True)
    random = SeededRandom(1)
    clock = SimClock(loop, SimProcess("store", loop))
    server = SimStoreServer(SimStore, clock=clock, random=random, history=history)
    process, link = SimProcess("ann", loop), NetworkLink()
    conditions = NetworkConditions(delay_ms=10, slow_ms=0, timeout_ms=100)
    port = SimStoreClient(
        server, loop=loop, process=process, link=link, conditions=conditions, random=random, history=history
    )
    net = Net(loop, server, process, link, conditions, port, clock, history)
    try:
        loop.run_until_complete(asyncio.ensure_future(test(net), loop=loop))
    finally:
        loop.close()
    assert not loop.errors
    return net


def test_a_commit_stuck_on_the_way_lands_after_its_sender_gave_up() -> None:
    async def test(net: Net) -> None:
        net.port.delay_next(500)
        with pytest.raises(OutcomeUnknownError):
            await net.port.commit(apply=PUT)
        assert net.loop.now_ms == 100
        assert await net.port.get("k") is None
        await net.clock.sleep_ms(500)
        assert await net.port.get("k") is not None

    with_net(test)


def test_a_commit_that_arrives_after_it_was_resolved_is_refused() -> None:
    async def test(net: Net) -> None:
        net.port.delay_next(500)
        with pytest.raises(OutcomeUnknownError) as lost:
            await net.port.commit(apply=PUT)
        assert await net.port.resolve(lost.value.commit_id) == NotCommitted()
        await net.clock.sleep_ms(500)
        assert await net.port.get("k") is None
        assert await net.port.resolve(lost.value.commit_id) == NotCommitted()

    net = with_net(test)
    assert net.history.counts["late commits refused"] == 1


def test_a_lost_answer_resolves_to_what_happened() -> None:
    async def test(net: Net) -> None:
        net.conditions.lost_share = 0.5  # one half of all requests, and all answers of the others
        outcomes = []
        for number in range(20):
            with pytest.raises(OutcomeUnknownError) as lost:
                await net.port.commit(apply=(Put(f"k{number}", b"1"),))
            outcomes.append(at_once_resolve(net, lost.value.commit_id))
        for number, outcome in enumerate(outcomes):
            entry = run_immediately(net.server.store.get(f"k{number}"))
            assert outcome == (NotCommitted() if entry is None else Committed(entry.version))
        assert {type(outcome) for outcome in outcomes} == {Committed, NotCommitted}

    with_net(test)


def at_once_resolve(net: Net, commit_id: str) -> Committed | NotCommitted:
    return net.server.resolve(commit_id)


def test_a_request_goes_on_when_its_sender_dies() -> None:
    async def test(net: Net) -> None:
        task = asyncio.ensure_future(net.port.commit(apply=PUT))
        net.port.delay_next(50)
        net.loop.post_at(20, net.process.die)
        with pytest.raises(asyncio.CancelledError):
            await task
        await net.clock.sleep_ms(100)
        assert run_immediately(net.server.store.get("k")) is not None

    with_net(test)


def test_an_answer_waits_while_its_reader_stands_still() -> None:
    async def test(net: Net) -> None:
        net.process.pause()
        net.loop.post_at(1000, net.process.resume, lambda held: None)
        assert isinstance(await net.port.commit(apply=PUT), Committed)
        assert net.loop.now_ms == 1000

    with_net(test)


def test_a_link_that_is_down_refuses_or_swallows() -> None:
    async def test(net: Net) -> None:
        net.link.up = False
        with pytest.raises(UnavailableError, match="refused"):
            await net.port.commit(apply=PUT)
        net.link.refuses = False
        with pytest.raises(OutcomeUnknownError):
            await net.port.commit(apply=PUT)
        with pytest.raises(UnavailableError, match="no answer"):
            await net.port.get("k")
        net.link.up = True
        assert await net.port.get("k") is None

    with_net(test)


def test_a_store_that_is_down_misses_what_arrives_and_keeps_what_it_had() -> None:
    async def test(net: Net) -> None:
        await net.port.commit(apply=PUT)
        net.port.delay_next(500)
        late = asyncio.ensure_future(net.port.commit(apply=(Put("late", b"1"),)))
        net.loop.post_at(50, net.server.crash)
        net.loop.post_at(1000, net.server.restart)
        with pytest.raises(OutcomeUnknownError):
            await late
        with pytest.raises(UnavailableError):
            await net.port.get("k")
        await net.clock.sleep_ms(1000)
        assert await net.port.get("k") is not None
        assert await net.port.get("late") is None

    with_net(test)


def test_what_the_store_refuses_comes_back_as_its_error() -> None:
    async def test(net: Net) -> None:
        with pytest.raises(InvalidError, match="JSON"):
            await net.port.commit(apply=(Put("k", b"not json"),))
        net.port.delay_next(500)
        with pytest.raises(OutcomeUnknownError):  # nobody hears the refusal
            await net.port.commit(apply=(Put("k", b"not json"),))
        await net.clock.sleep_ms(500)

    with_net(test)


def test_a_watch_sees_every_commit_in_order_also_after_a_cut() -> None:
    async def test(net: Net) -> None:
        await net.port.commit(apply=PUT)
        async with net.port.watch("k", from_version=0) as commits:
            seen = [await anext(commits)]
            net.link.up = False
            for value in (b"2", b"3"):
                run_immediately(net.server.store.commit(apply=(Put("k", value), Put("other", value))))
            run_immediately(net.server.store.commit(apply=(Put("other", b"4"),)))
            net.loop.post_at(1000, setattr, net.link, "up", True)
            seen += [await anext(commits), await anext(commits)]
            assert net.loop.now_ms > 1000
        assert [commit.version for commit in seen] == [1, 2, 3]
        assert [[change.key for change in commit.changes] for commit in seen if isinstance(commit, Changed)] == [
            ["k"]
        ] * 3
        assert not net.server.watched

    with_net(test)


def test_a_watch_may_be_told_that_history_is_gone() -> None:
    async def test(net: Net) -> None:
        await net.port.commit(apply=PUT)
        net.conditions.resync_share = 1.0
        async with net.port.watch("k", from_version=0) as commits:
            assert await anext(commits) == Resync(1)

    with_net(test)
