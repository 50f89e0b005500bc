"""Sessions: the local deadline ends before the store's, whatever happens to keep-alives (docs/safety.md, rule 5)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.contracts.store import Put
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session, keep_running
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import (
    CorruptError,
    ExpiredError,
    FencedError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.random import SeededRandom

SETTINGS = SessionSettings(ttl_ms=3_000, renew_ms=1_000, margin_ms=300, stall_ms=0, retry_ms=100)


class Owner:
    """A task that holds a session and puts one key under it."""

    def __init__(self, store: FaultyStore, clock: FakeClock, settings: SessionSettings) -> None:
        self.store, self.clock, self.settings = store, clock, settings
        self.session: HeldSession | None = None
        self.ended_ms: int | None = None
        self.task = asyncio.ensure_future(self._own())

    async def _own(self) -> None:
        try:
            async with hold_session(
                self.store, clock=self.clock, random=SeededRandom(3), settings=self.settings
            ) as session:
                self.session = session
                await self.store.commit(apply=[Put("mine", b"1", session.id)])
                try:
                    await asyncio.Event().wait()
                finally:
                    self.ended_ms = self.clock.boot_ms()
        except ExpiredError:
            pass

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock) -> AsyncIterator[FaultyStore]:
    async with MemoryStore.open(clock=clock, random=SeededRandom(2)) as opened:
        yield FaultyStore(opened, random=SeededRandom(4))


@pytest.fixture
async def owner(store: FaultyStore, clock: FakeClock) -> AsyncIterator[Owner]:
    made = Owner(store, clock, SETTINGS)
    await clock.run_for_ms(10)
    yield made
    await made.stop()


async def test_keep_alives_keep_a_session_for_as_long_as_its_body_runs(
    store: FaultyStore, clock: FakeClock, owner: Owner
) -> None:
    await clock.run_for_ms(30_000)
    assert await store.get("mine") is not None
    assert owner.session is not None
    assert owner.session.alive()


async def test_leaving_the_body_closes_the_session_at_once(store: FaultyStore, clock: FakeClock, owner: Owner) -> None:
    await owner.stop()
    assert await store.get("mine") is None


async def test_an_unreachable_store_stops_the_body_before_the_store_forgets_it(
    store: FaultyStore, clock: FakeClock, owner: Owner
) -> None:
    await clock.run_for_ms(5_000)
    store.reachable = False
    gone_ms = None
    while gone_ms is None:
        await clock.run_for_ms(50, step_ms=50)
        store.reachable = True
        gone_ms = clock.boot_ms() if await store.get("mine") is None else None
        store.reachable = False
    assert owner.ended_ms is not None
    assert owner.ended_ms < gone_ms


async def test_a_keep_alive_that_never_returns_does_not_keep_the_body_alive(
    store: FaultyStore, clock: FakeClock, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(session_id: str) -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(store, "keep_alive", hang)
    await clock.run_for_ms(4_000)
    assert owner.ended_ms is not None
    assert owner.ended_ms <= SETTINGS.ttl_ms - SETTINGS.margin_ms + 200


async def test_the_deadline_counts_from_the_send_of_the_keep_alive_not_from_its_answer(
    store: FaultyStore, clock: FakeClock, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_ms: list[int] = []
    real = store.keep_alive

    async def slow(session_id: str) -> bool:
        sent_ms.append(clock.boot_ms())
        alive = await real(session_id)
        await clock.sleep_ms(1_500)
        return alive

    monkeypatch.setattr(store, "keep_alive", slow)
    await clock.run_for_ms(2_800)
    assert owner.session is not None
    assert owner.session.deadline_ms == sent_ms[0] + SETTINGS.ttl_ms - SETTINGS.margin_ms


async def test_an_answer_after_the_deadline_does_not_bring_the_session_back(clock: FakeClock) -> None:
    session = HeldSession("s", 3_000, opened_ms=0, clock=clock, settings=SETTINGS)
    clock.advance_ms(2_700)
    assert not session.alive()
    session.renewed(sent_ms=2_600)
    assert not session.alive()
    with pytest.raises(ExpiredError):
        session.check()


async def test_a_session_the_store_has_ended_stops_the_body(store: FaultyStore, clock: FakeClock, owner: Owner) -> None:
    assert owner.session is not None
    await store.close_session(owner.session.id)
    await clock.run_for_ms(1_500)
    assert owner.ended_ms is not None


async def test_a_working_loop_that_hangs_loses_its_session_although_the_process_lives(
    store: FaultyStore, clock: FakeClock
) -> None:
    owner = Owner(store, clock, SessionSettings(ttl_ms=3_000, renew_ms=1_000, margin_ms=300, stall_ms=1_500))
    for _ in range(20):
        await clock.run_for_ms(500)
        assert owner.session is not None
        owner.session.report_progress()
    assert owner.ended_ms is None
    await clock.run_for_ms(6_000)
    assert await store.get("mine") is None
    assert owner.ended_ms is not None
    await owner.stop()


async def test_keep_alives_survive_an_outage_shorter_than_the_ttl(
    store: FaultyStore, clock: FakeClock, owner: Owner
) -> None:
    for _ in range(5):
        store.reachable = False
        await clock.run_for_ms(1_200)
        store.reachable = True
        await clock.run_for_ms(2_000)
    assert owner.ended_ms is None


@pytest.mark.parametrize(
    "wrong", [{"ttl_ms": 10}, {"renew_ms": 20_000}, {"margin_ms": 16_000}, {"stall_ms": -1}, {"retry_ms": 0}]
)
def test_settings_that_could_not_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidError):
        SessionSettings(**wrong)


async def test_what_runs_under_a_session_is_begun_again_until_the_session_ends(clock: FakeClock) -> None:
    session = HeldSession("s", 30_000, opened_ms=0, clock=clock, settings=SETTINGS)
    away = UnavailableError("store", "away")
    failures = [away, OutcomeUnknownError("c", "lost"), BaseExceptionGroup("", [away, FencedError("r", 1, 2)]), away]

    async def work() -> None:
        error = failures.pop(0)
        if not failures:
            clock.advance_ms(session.deadline_ms)
        raise error

    running = asyncio.ensure_future(keep_running(work, "working", session=session, clock=clock, random=SeededRandom(1)))
    await clock.run_for_ms(5_000)
    assert not failures
    with pytest.raises(ExpiredError):
        await running


async def test_what_is_neither_an_outage_nor_a_lost_lease_ends_what_runs_under_a_session(clock: FakeClock) -> None:
    session = HeldSession("s", 30_000, opened_ms=0, clock=clock, settings=SETTINGS)

    async def work() -> None:
        raise CorruptError("store", "it went backwards")

    with pytest.raises(CorruptError):
        await keep_running(work, "working", session=session, clock=clock, random=SeededRandom(1))
