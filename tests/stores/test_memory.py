"""The memory engine on a fake clock."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.contracts.store import Changed, Conflict, Put, Resync
from holdfast.stores.memory import MemoryStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest_asyncio.fixture
async def store(clock: FakeClock) -> AsyncIterator[MemoryStore]:
    async with MemoryStore.open(clock=clock, random=SeededRandom(1), commits_kept=5) as opened:
        yield opened


async def test_a_session_ends_at_its_deadline_to_the_millisecond(store: MemoryStore, clock: FakeClock) -> None:
    session = await store.open_session(1_000)
    await store.commit(apply=[Put("held", b"1", session.id)])
    await clock.run_for_ms(999)
    assert await store.get("held") is not None
    await clock.run_for_ms(1)
    assert await store.get("held") is None
    assert not await store.keep_alive(session.id)


async def test_a_renewed_session_ends_a_ttl_after_its_last_renewal(store: MemoryStore, clock: FakeClock) -> None:
    session = await store.open_session(1_000)
    await store.commit(apply=[Put("held", b"1", session.id)])
    for _ in range(5):
        await clock.run_for_ms(900)
        assert await store.keep_alive(session.id)
    await clock.run_for_ms(999)
    assert await store.get("held") is not None
    await clock.run_for_ms(1)
    assert await store.get("held") is None


async def test_a_wall_clock_that_steps_ends_no_session_and_raises_none(store: MemoryStore, clock: FakeClock) -> None:
    session = await store.open_session(1_000)
    clock.step_wall_ms(3_600_000)
    await clock.run_for_ms(500)
    assert await store.keep_alive(session.id)
    await clock.run_for_ms(1_000)
    clock.step_wall_ms(-7_200_000)
    assert not await store.keep_alive(session.id)
    outcome = await store.commit(apply=[Put("late", b"1", session.id)])
    assert isinstance(outcome, Conflict)


async def test_a_commit_ends_overdue_sessions_before_it_checks_requirements(
    store: MemoryStore, clock: FakeClock
) -> None:
    session = await store.open_session(1_000)
    clock.advance_ms(1_000)  # and no task has run since
    outcome = await store.commit(apply=[Put("late", b"1", session.id)])
    assert isinstance(outcome, Conflict)
    assert outcome.dead_session == session.id


async def test_a_watcher_that_starts_too_late_gets_resync(store: MemoryStore) -> None:
    for n in range(20):
        await store.commit(apply=[Put(f"many/{n}", b"1")])
    async with store.watch("many/", from_version=1) as commits, asyncio.timeout(5):
        first = await anext(commits)
        assert isinstance(first, Resync)
        scan = await store.scan("many/", "many0")
        assert scan.version >= first.version
        following = [await anext(commits) for _ in range(scan.version - first.version)]
    assert [each.version for each in following if isinstance(each, Changed)] == list(range(first.version + 1, 21))


async def test_each_opening_of_the_url_is_an_empty_store_of_its_own(clock: FakeClock) -> None:
    async with (
        open_store("memory:", clock=clock, random=SeededRandom(1)) as one,
        open_store("memory:", clock=clock, random=SeededRandom(2)) as other,
    ):
        await one.commit(apply=[Put("mine", b"1")])
        assert await other.get("mine") is None
        assert one.facts.incarnation != other.facts.incarnation


async def test_an_unknown_option_is_refused(clock: FakeClock) -> None:
    with pytest.raises(InvalidError):
        async with open_store("memory:?fast=1", clock=clock, random=SeededRandom(1)):
            pass
