"""Commit surely: lost requests and answers are mended, once, within the deadline."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest
import pytest_asyncio

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Committed, Conflict, Entry, Put
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SeededRandom

T = TypeVar("T")


class World:
    """A store that loses things, a clock that moves when told to, and one commit to make."""

    def __init__(self, store: FaultyStore, clock: FakeClock) -> None:
        self.store, self.clock = store, clock

    async def commit(self, *, within_ms: int = 10_000) -> Committed | Conflict:
        return await commit_resolved(
            self.store,
            clock=self.clock,
            random=SeededRandom(1),
            require=[Absent("key")],
            apply=[Put("key", b"1")],
            within_ms=within_ms,
        )

    async def while_time_passes(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        for _ in range(1_000):
            if task.done():
                break
            await self.clock.run_for_ms(100)
        return await asyncio.wait_for(task, 1)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    clock = FakeClock()
    async with MemoryStore.open(clock=clock, random=SeededRandom(2)) as memory:
        yield World(FaultyStore(memory, random=SeededRandom(3)), clock)


async def test_a_commit_nothing_happens_to_takes_no_time_and_one_call(world: World) -> None:
    assert await world.commit() == Committed(1)
    assert world.clock.boot_ms() == 0
    assert world.store.calls == {"commit": 1}


async def test_a_conflict_is_an_answer_and_is_not_tried_again(world: World) -> None:
    await world.store.commit(apply=[Put("key", b"0")])
    assert await world.commit() == Conflict({"key": Entry("key", b"0", 1)})
    assert world.store.calls["commit"] == 2


async def test_a_lost_answer_is_found_out_and_the_commit_is_not_made_again(world: World) -> None:
    world.store.lose_answer_to("key")
    assert await world.while_time_passes(world.commit()) == Committed(1)
    assert world.store.calls == {"commit": 1, "resolve": 1}


async def test_a_lost_request_is_made_again_once_it_is_known_to_be_lost(world: World) -> None:
    world.store.lose_request("key")
    assert await world.while_time_passes(world.commit()) == Committed(1)
    assert world.store.calls == {"commit": 2, "resolve": 1}


async def test_a_lost_conflict_is_asked_for_again(world: World) -> None:
    await world.store.commit(apply=[Put("key", b"0")])
    world.store.lose_answer_to("key")
    assert await world.while_time_passes(world.commit()) == Conflict({"key": Entry("key", b"0", 1)})


async def test_a_store_that_is_away_for_a_while_is_waited_for(world: World) -> None:
    world.store.reachable = False
    commit = asyncio.ensure_future(world.commit())
    await world.clock.run_for_ms(3_000)
    assert not commit.done()
    world.store.reachable = True
    assert await world.while_time_passes(commit) == Committed(1)


async def test_a_store_that_stays_away_is_unavailable_at_the_deadline(world: World) -> None:
    world.store.reachable = False
    with pytest.raises(UnavailableError):
        await world.while_time_passes(world.commit(within_ms=2_000))
    assert 2_000 <= world.clock.boot_ms() < 3_500


async def test_an_answer_lost_before_the_store_went_away_stays_unknown(world: World) -> None:
    world.store.lose_answer_to("key")
    commit = asyncio.ensure_future(world.commit(within_ms=2_000))
    await world.clock.run_for_ms(1, step_ms=1)
    world.store.reachable = False
    with pytest.raises(OutcomeUnknownError):
        await world.while_time_passes(commit)
    world.store.reachable = True
    assert await world.store.get("key") == Entry("key", b"1", 1)


async def test_a_request_found_lost_before_the_store_went_away_surely_did_not_happen(world: World) -> None:
    world.store.lose_request("key")
    resolve = world.store.resolve

    async def resolve_and_go_away(commit_id: str) -> object:
        outcome = await resolve(commit_id)
        world.store.reachable = False
        return outcome

    world.store.resolve = resolve_and_go_away  # type: ignore[method-assign, assignment]
    with pytest.raises(UnavailableError):
        await world.while_time_passes(world.commit(within_ms=2_000))
    world.store.reachable = True
    assert await world.store.get("key") is None


async def test_what_is_invalid_is_not_tried_again(world: World) -> None:
    with pytest.raises(InvalidError):
        await commit_resolved(world.store, clock=world.clock, random=SeededRandom(1), apply=[Put("key", b"no json")])
    assert world.store.calls == {"commit": 1}
