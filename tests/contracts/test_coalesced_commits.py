"""Commits that are made at the same time go together, and nobody can tell."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from holdfast.contracts.coalesced_commits import CoalescingStore, coalescing
from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Operation, Put, Requirement
from holdfast.contracts.validation import StoreLimits
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SeededRandom


@pytest.fixture
def below() -> FaultyStore:
    """The store that the commits reach in the end."""
    clock, random = RealClock(), SeededRandom(3)
    return FaultyStore(MemoryStore(clock=clock, random=random, limits=StoreLimits()), random=random)


@pytest.fixture
async def store(below: FaultyStore) -> AsyncIterator[CoalescingStore]:
    async with coalescing(below) as made:
        yield made


async def put(store: CoalescingStore, key: str, *require: Requirement) -> Committed | Conflict:
    return await store.commit(require=require, apply=(Put(key, b"1"),))


async def test_commits_made_at_the_same_time_are_sent_as_few(store: CoalescingStore, below: FaultyStore) -> None:
    outcomes = await asyncio.gather(*(put(store, f"k/{number}", Absent(f"k/{number}")) for number in range(200)))
    assert all(isinstance(each, Committed) for each in outcomes)
    assert below.calls["commit"] == 4  # two operations each, a hundred at most in one
    assert len((await store.scan("k/", "k0")).entries) == 200


async def test_only_who_lost_its_race_gets_the_conflict(store: CoalescingStore, below: FaultyStore) -> None:
    await below.commit(apply=(Put("k/7", b"0"),))
    outcomes = await asyncio.gather(*(put(store, f"k/{number}", Absent(f"k/{number}")) for number in range(20)))
    lost = [number for number, each in enumerate(outcomes) if isinstance(each, Conflict)]
    assert lost == [7]
    conflict = outcomes[7]
    assert isinstance(conflict, Conflict)
    found = conflict.found["k/7"]
    assert list(conflict.found) == ["k/7"]
    assert found is not None
    assert found.value == b"0"


async def test_a_dead_session_fails_those_that_put_under_it(store: CoalescingStore) -> None:
    alive, dead = await store.open_session(10_000), await store.open_session(10_000)
    await store.close_session(dead.id)
    outcomes = await asyncio.gather(
        *(store.commit(apply=(Put(f"k/{number}", b"1", (alive, dead)[number % 2].id),)) for number in range(10))
    )
    assert [isinstance(each, Committed) for each in outcomes] == [True, False] * 5
    assert {each.dead_session for each in outcomes if isinstance(each, Conflict)} == {dead.id}


async def test_who_lost_its_race_next_to_a_dead_session_is_not_told_that_its_own_is_dead(below: FaultyStore) -> None:
    class AnswersBoth(FaultyStore):
        """Like etcd, which looks for the dead session and reads what was required one after the other."""

        async def commit(
            self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
        ) -> Committed | Conflict:
            if any(isinstance(each, Put) and each.session == "dead" for each in apply):
                return Conflict({each.key: await self.get(each.key) for each in require}, "dead")
            return await super().commit(require=require, apply=apply)

    async with coalescing(AnswersBoth(below, random=SeededRandom(3))) as store:
        late, dead, other = await asyncio.gather(
            put(store, "k/1", AtVersion("k/1", 7)), store.commit(apply=(Put("k/2", b"", "dead"),)), put(store, "k/3")
        )
    assert late == Conflict({"k/1": None})
    assert dead == Conflict({}, "dead")
    assert isinstance(other, Committed)


async def test_commits_that_depend_on_each_other_are_not_merged(store: CoalescingStore, below: FaultyStore) -> None:
    """Merged, both would be refused, or both accepted: one of them has to win."""
    outcomes = await asyncio.gather(*(put(store, "k", Absent("k")) for _ in range(5)))
    assert sum(isinstance(each, Committed) for each in outcomes) == 1
    first = await put(store, "a")
    assert isinstance(first, Committed)
    swapped = await asyncio.gather(
        put(store, "a", AtVersion("a", first.version)), put(store, "b", AtVersion("a", first.version))
    )
    assert any(isinstance(each, Committed) for each in swapped)


async def test_a_requirement_that_many_share_is_sent_once(store: CoalescingStore, below: FaultyStore) -> None:
    outcomes = await asyncio.gather(*(put(store, f"k/{number}", Absent("deleted")) for number in range(99)))
    assert all(isinstance(each, Committed) for each in outcomes)
    assert below.calls["commit"] == 1


async def test_a_lost_answer_is_lost_for_all_and_resolves_to_the_same_outcome(
    store: CoalescingStore, below: FaultyStore
) -> None:
    below.lose_answer_to("k/3")
    outcomes = await asyncio.gather(*(put(store, f"k/{number}") for number in range(5)), return_exceptions=True)
    assert all(isinstance(each, OutcomeUnknownError) for each in outcomes)
    resolved = [await store.resolve(each.commit_id) for each in outcomes if isinstance(each, OutcomeUnknownError)]
    assert len(resolved) == 5
    assert all(isinstance(each, Committed) for each in resolved)


async def test_an_invalid_commit_fails_alone(store: CoalescingStore) -> None:
    outcomes = await asyncio.gather(put(store, "a"), put(store, "b\n"), put(store, "c"), return_exceptions=True)
    assert [type(each) for each in outcomes] == [Committed, InvalidError, Committed]


async def test_a_store_that_is_away_fails_all_and_the_next_ones_are_sent(
    store: CoalescingStore, below: FaultyStore
) -> None:
    below.reachable = False
    outcomes = await asyncio.gather(*(put(store, f"k/{number}") for number in range(5)), return_exceptions=True)
    assert all(isinstance(each, UnavailableError) for each in outcomes)
    below.reachable = True
    assert isinstance(await put(store, "k/0"), Committed)


async def test_large_commits_and_checks_are_passed_on(store: CoalescingStore, below: FaultyStore) -> None:
    large = [Put(f"k/{number:02d}", b"1") for number in range(60)]
    assert isinstance(await store.commit(apply=large), Committed)
    assert isinstance(await store.commit(require=(Absent("nothing"),)), Committed)
    assert below.calls["commit"] == 2
