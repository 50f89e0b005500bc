"""Sessions when things go wrong: releases and waits that are cut short, lost sessions, errors of the body, wrong input."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until_in_fake_time

import holdfast
from holdfast.contracts.store import Delete
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.random import SeededRandom

CLOCK = RealClock()


class MineError(Exception):
    """Of the user's own."""


class StallingStore:
    """A store whose commits that delete something hang until they are let go."""

    def __init__(self, store: holdfast.Store) -> None:
        self._store, self.stalled = store, True

    async def commit(self, *, require: Any = (), apply: Any = ()) -> Any:
        if self.stalled and any(isinstance(operation, Delete) for operation in apply):
            await asyncio.Event().wait()
        return await self._store.commit(require=require, apply=apply)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def leased(session: holdfast.Session, resource: str = "report") -> holdfast.Lease:
    lease = await session.acquire(resource)
    assert isinstance(lease, holdfast.Lease), lease
    return lease


async def test_a_release_that_was_cut_short_can_be_repeated(hf: holdfast.Holdfast) -> None:
    stalling = StallingStore(hf.store)
    async with holdfast.connect(stalling) as cut, cut.session("ann") as ann, hf.session("bob") as bob:
        lease = await leased(ann)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await lease.release()
        with pytest.raises(holdfast.ClosedError):
            await lease.commit(holdfast.Put("k", b"1"))
        assert not await bob.acquire("report")
        stalling.stalled = False
        assert await lease.release()
        assert not await lease.release()
        assert await bob.acquire("report")


async def test_the_next_acquire_finishes_a_release_that_was_cut_short(hf: holdfast.Holdfast) -> None:
    stalling = StallingStore(hf.store)
    async with holdfast.connect(stalling) as cut, cut.session("ann") as ann:
        first = await leased(ann)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await first.release()
        stalling.stalled = False
        assert (await leased(ann)).epoch == 2


async def test_a_wait_that_is_cancelled_as_it_wins_loses_no_lease() -> None:
    for turns in range(40):
        async with holdfast.connect("memory:") as hf, hf.session("ann") as ann, hf.session("bob") as bob:
            lease = await leased(ann)
            waiting = asyncio.ensure_future(bob.acquire("report", wait=True))
            await asyncio.sleep(0.001)  # noqa: TID251 (turns of the loop are what is swept here)
            await lease.release()
            for _ in range(turns):
                await asyncio.sleep(0)  # noqa: TID251
            waiting.cancel()
            try:
                await waiting
            except asyncio.CancelledError:
                async with asyncio.timeout(10):
                    assert await bob.acquire("report", wait=True)


async def test_a_waiter_is_told_when_its_session_ends(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as ann:
        await leased(ann)
        async with hf.session("bob") as bob:
            waiting = asyncio.ensure_future(bob.acquire("report", wait=True))
            await CLOCK.sleep_ms(50)
        with pytest.raises(holdfast.ClosedError):
            await asyncio.wait_for(waiting, 10)


async def test_waiting_for_a_lease_is_no_stall() -> None:
    clock, random = FakeClock(), SeededRandom(1)
    async with (
        MemoryStore.open(clock=clock, random=random) as store,
        holdfast.connect(store, runtime=holdfast.Runtime(clock=clock, random=random)) as hf,
        hf.session("ann") as ann,
        hf.session("bob", ttl_ms=3_000, stall_ms=2_000) as standby,
    ):
        lease = await leased(ann)
        waiting = asyncio.ensure_future(standby.acquire("report", wait=True))
        await clock.run_for_ms(20_000)
        assert standby.alive
        await lease.release()
        await until_in_fake_time(clock, waiting.done)
        assert await waiting


async def test_a_session_of_many_short_leases_does_not_grow(hf: holdfast.Holdfast) -> None:
    async with hf.session() as session:
        for n in range(50):
            async with session.hold(f"job-{n}") as lease:
                assert lease
        assert not session._leases
        assert not session._versions


async def test_an_error_of_the_body_leaves_the_session_as_it_was_raised(hf: holdfast.Holdfast) -> None:
    with pytest.raises(MineError) as caught:
        async with hf.session():
            raise MineError from ZeroDivisionError()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ExceptionGroup) as group:
        async with hf.session():
            raise ExceptionGroup("mine", [MineError()])
    assert group.value.message == "mine"


async def commits_on_its_way_out(hf: holdfast.Holdfast) -> None:
    async with hf.session(ttl_ms=3_000) as session:
        lease = await leased(session)
        try:
            await hf.store.close_session(session.id)
            await asyncio.Event().wait()
        finally:
            await lease.commit(holdfast.Put("k", b"1"))


async def test_a_lost_session_is_one_error_even_if_the_body_commits_on_its_way_out(hf: holdfast.Holdfast) -> None:
    with pytest.raises(holdfast.ExpiredError):
        await asyncio.wait_for(commits_on_its_way_out(hf), 20)


@pytest.mark.parametrize("name", [5, b"ann", "a\nb"])
async def test_a_session_has_a_printable_name(hf: holdfast.Holdfast, name: Any) -> None:
    with pytest.raises(holdfast.InvalidError, match="session name"):
        async with hf.session(name):
            pass


@pytest.mark.parametrize("store", [None, b"memory:", Path("x.db"), "postgresql://u:geheim@[bad/db"])
async def test_what_is_no_store_is_refused_when_it_is_given(store: Any) -> None:
    with pytest.raises(holdfast.InvalidError) as refused:
        async with holdfast.connect(store):
            pass
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("value", ['{"a": 1}', bytearray(b"1"), memoryview(b"1"), {"a": 1}])
async def test_a_value_is_bytes_on_every_engine(hf: holdfast.Holdfast, value: Any) -> None:
    async with hf.session() as session:
        lease = await leased(session)
        with pytest.raises(holdfast.InvalidError, match="value of k"):
            await lease.commit(holdfast.Put("k", value))


async def test_a_commit_cannot_write_the_leases_themselves(hf: holdfast.Holdfast) -> None:
    async with hf.session() as session:
        lease = await leased(session)
        with pytest.raises(holdfast.InvalidError, match="outside lease/"):
            await lease.commit(holdfast.Put("lease/epoch/report", b'{"epoch":0}'))
