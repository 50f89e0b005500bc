"""Sessions and leases as a user has them: one holder, refused commits, lost sessions, lost answers."""

import asyncio
from pathlib import Path

import pytest

import holdfast
from holdfast.kernel.keys import holder_key
from holdfast.kernel.lease import acquire as kernel_acquire
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.random import SeededRandom

CLOCK = RealClock()
DONE = holdfast.Put("report/done", b"true")


async def leased(session: holdfast.Session, resource: str = "report") -> holdfast.Lease:
    lease = await session.acquire(resource)
    assert isinstance(lease, holdfast.Lease)
    return lease


async def test_the_second_session_learns_who_holds_the_lease(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as ann, hf.session("bob") as bob:
        lease = await leased(ann)
        held = await bob.acquire("report")
        assert held == holdfast.Held(resource="report", holder="ann", epoch=1)
        assert (lease.resource, lease.holder, lease.epoch) == ("report", "ann", 1)
        assert lease
        assert not held


async def test_a_commit_without_a_lease_is_refused(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as ann, hf.session("bob") as bob:
        await leased(ann)
        held = await bob.acquire("report")
        with pytest.raises(holdfast.FencedError):
            await held.commit(DONE)
        assert not await held.release()
    assert await hf.get("report/done") is None


async def test_a_commit_after_a_takeover_is_fenced(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as ann, hf.session("bob") as bob:
        late = await leased(ann)
        await hf.store.close_session(ann.id)  # as the store does when ann's process is paused for longer than its TTL
        assert (await leased(bob)).epoch == 2
        with pytest.raises(holdfast.FencedError) as fenced:
            await late.commit(DONE)
        assert (fenced.value.epoch, fenced.value.current) == (1, 2)
    assert await hf.get("report/done") is None


async def test_a_commit_after_the_end_of_the_session_is_refused_even_if_nobody_took_over(hf: holdfast.Holdfast) -> None:
    async with hf.session() as session:
        late = await leased(session)
        await hf.store.close_session(session.id)
        with pytest.raises(holdfast.ExpiredError, match="lease on report has ended"):
            await late.commit(DONE)
        with pytest.raises(holdfast.ExpiredError):
            await session.acquire("other")
    assert await hf.get("report/done") is None


async def test_a_lost_session_cancels_the_body_and_says_so(hf: holdfast.Holdfast) -> None:
    leases = []

    async def work() -> None:
        async with asyncio.timeout(20), hf.session("ann", ttl_ms=3_000) as session:
            leases.append(await leased(session))
            await hf.store.close_session(session.id)
            await asyncio.Event().wait()

    with pytest.raises(holdfast.ExpiredError):
        await work()
    (late,) = leases
    async with hf.session("bob") as bob:
        await leased(bob)
        with pytest.raises(holdfast.FencedError):
            await late.commit(DONE)


async def test_a_released_lease_is_free_at_once_and_of_no_more_use(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as ann, hf.session("bob") as bob:
        lease = await leased(ann)
        assert await lease.release()
        assert not await lease.release()
        with pytest.raises(holdfast.ClosedError, match="lease on report is closed"):
            await lease.commit(DONE)
        assert (await leased(bob)).epoch == 2


async def test_two_tasks_of_one_session_exclude_each_other(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as session:
        answers = await asyncio.gather(*(session.acquire("report") for _ in range(5)))
        assert [type(answer) for answer in answers].count(holdfast.Lease) == 1
        first = next(answer for answer in answers if isinstance(answer, holdfast.Lease))
        assert await first.release()
        assert (await leased(session)).epoch == 2


async def test_waiting_returns_when_the_holder_has_released(hf: holdfast.Holdfast) -> None:
    async with asyncio.timeout(20), hf.session("ann") as ann, hf.session("bob") as bob:
        lease = await leased(ann)
        waiting = asyncio.create_task(bob.acquire("report", wait=True))
        await CLOCK.sleep_ms(50)
        assert not waiting.done()
        await lease.release()
        assert (await waiting).epoch == 2


async def test_waiting_returns_when_the_holder_has_died(hf: holdfast.Holdfast) -> None:
    async with asyncio.timeout(20), hf.session("bob") as bob:
        dead = await hf.store.open_session(2_000)  # nobody keeps it alive
        assert await kernel_acquire(
            hf.store, "report", holder="ann", session=dead.id, clock=CLOCK, random=hf.runtime.random
        )
        assert (await bob.acquire("report", wait=True)).epoch == 2


async def test_hold_releases_what_it_acquired_and_nothing_else(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as ann, hf.session("bob") as bob:
        async with ann.hold("report") as lease:
            assert isinstance(lease, holdfast.Lease)
            async with bob.hold("report") as held:
                assert isinstance(held, holdfast.Held)
            await lease.commit(DONE)
        async with bob.hold("report", wait=True) as taken:
            assert taken.epoch == 2


async def test_a_requirement_that_fails_is_an_answer(hf: holdfast.Holdfast) -> None:
    async with hf.session() as session:
        lease = await leased(session)
        await lease.commit(DONE)
        again = await lease.commit(DONE, require=[holdfast.Absent("report/done")])
        assert isinstance(again, holdfast.Conflict)
        assert isinstance(await lease.commit(holdfast.Delete("report/done")), holdfast.Committed)


async def test_leaving_the_session_frees_its_leases_and_closes_its_handles(hf: holdfast.Holdfast) -> None:
    async with hf.session("ann") as ann:
        lease = await leased(ann)
    assert await hf.get(holder_key("report")) is None
    with pytest.raises(holdfast.ClosedError):
        await lease.commit(DONE)
    with pytest.raises(holdfast.ClosedError):
        await ann.acquire("report")


async def test_a_key_under_the_session_goes_with_it(hf: holdfast.Holdfast) -> None:
    async with hf.session() as session:
        lease = await leased(session)
        await lease.commit(holdfast.Put("here/me", b"1", session=session.id))
        assert [entry.key for entry in (await hf.scan("here/")).entries] == ["here/me"]
    assert (await hf.scan("here/")).entries == ()


async def test_a_lost_answer_is_looked_up(hf: holdfast.Holdfast) -> None:
    faulty = FaultyStore(hf.store, random=SeededRandom(1))
    async with holdfast.connect(faulty) as lossy, lossy.session() as session:
        faulty.lose_answer_to(holder_key("report"))
        lease = await leased(session)
        faulty.lose_request("report/done")
        first = await lease.commit(DONE)
        faulty.lose_answer_to("report/done")
        second = await lease.commit(DONE)
        assert second.version > first.version


async def test_an_acquisition_whose_answer_never_came_is_found_again(hf: holdfast.Holdfast) -> None:
    faulty = FaultyStore(hf.store, random=SeededRandom(1))
    async with holdfast.connect(faulty) as lossy, lossy.session("ann") as session:
        faulty.lose_answer_to(holder_key("report"))
        asking = asyncio.create_task(session.acquire("report"))
        while await hf.get(holder_key("report")) is None:
            await CLOCK.sleep_ms(1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        lease = await leased(session)
        assert lease.epoch == 1
        await lease.commit(DONE)


async def test_a_stalled_session_is_not_renewed() -> None:
    clock, random = FakeClock(), SeededRandom(1)

    async def work() -> None:
        async with MemoryStore.open(clock=clock, random=random) as store:
            runtime = holdfast.Runtime(clock=clock, random=random)
            async with (
                holdfast.connect(store, runtime=runtime) as hf,
                hf.session(ttl_ms=3_000, stall_ms=2_000) as session,
            ):
                for _ in range(10):
                    session.report_progress()
                    await clock.run_for_ms(1_000)
                assert session.alive
                await clock.run_for_ms(10_000)

    with pytest.raises(holdfast.ExpiredError):
        await work()


async def test_an_empty_resource_is_refused(hf: holdfast.Holdfast) -> None:
    async with hf.session() as session:
        with pytest.raises(holdfast.InvalidError, match="invalid resource '': must be a name"):
            await session.acquire("")


async def test_a_relative_path_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with holdfast.connect("sqlite:///here.db") as hf, hf.session():
        assert (tmp_path / "here.db").exists()
