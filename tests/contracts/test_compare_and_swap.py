"""The compare-and-swap loop: decides again after a lost race, and only then."""

from collections.abc import AsyncIterator

import pytest

from holdfast.contracts.compare_and_swap import Swap, compare_and_swap, put_if_absent
from holdfast.contracts.store import Absent, Entry, Put
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.errors import ExpiredError, InvalidError, UnavailableError
from holdfast.vocabulary.runtime import Runtime

RUNTIME = Runtime()


@pytest.fixture
async def store() -> AsyncIterator[FaultyStore]:
    async with MemoryStore.open(clock=RUNTIME.clock, random=RUNTIME.random) as memory:
        yield FaultyStore(memory, random=RUNTIME.random)


class Counting:
    """Adds one; before the first `rivals` decisions take effect, a rival adds one, too."""

    def __init__(self, store: FaultyStore, rivals: int = 0) -> None:
        self.store, self.rivals, self.seen = store, rivals, list[int]()

    async def __call__(self, entry: Entry | None) -> Swap[int]:
        value = 0 if entry is None else int(entry.value)
        self.seen.append(value)
        if len(self.seen) <= self.rivals:
            await self.store.commit(apply=[Put("n", b"%d" % (value + 1))])
        return Swap(value + 1, [Put("n", b"%d" % (value + 1))])


async def count(store: FaultyStore, decide: Counting, *, attempts_max: int = 100) -> tuple[int, int]:
    return await compare_and_swap(
        store, "n", decide, clock=RUNTIME.clock, random=RUNTIME.random, attempts_max=attempts_max
    )


async def test_the_result_comes_with_the_version_that_wrote_it(store: FaultyStore) -> None:
    result, version = await count(store, Counting(store))
    written = await store.get("n")
    assert written is not None
    assert (result, written.value, written.version) == (1, b"1", version)


async def test_after_a_lost_race_it_decides_again_by_what_is_there_now_without_another_read(store: FaultyStore) -> None:
    decide = Counting(store, rivals=3)
    result, _ = await count(store, decide)
    assert (decide.seen, result) == ([0, 1, 2, 3], 4)
    assert store.calls["get"] == 1


async def test_it_gives_up_after_so_many_lost_races(store: FaultyStore) -> None:
    with pytest.raises(UnavailableError, match="n is unavailable: it changed 5 times while it was being updated"):
        await count(store, Counting(store, rivals=100), attempts_max=5)


async def test_a_decision_to_apply_nothing_writes_nothing(store: FaultyStore) -> None:
    async def decide(entry: Entry | None) -> Swap[str]:
        return Swap("as it is")

    found = await compare_and_swap(store, "n", decide, clock=RUNTIME.clock, random=RUNTIME.random)
    assert found == ("as it is", 0)
    assert "commit" not in store.calls


async def test_what_decide_raises_ends_the_loop(store: FaultyStore) -> None:
    async def decide(entry: Entry | None) -> Swap[str]:
        raise InvalidError("n", entry, "there")

    with pytest.raises(InvalidError):
        await compare_and_swap(store, "n", decide, clock=RUNTIME.clock, random=RUNTIME.random)


async def test_a_lost_answer_is_resolved_and_not_counted_twice(store: FaultyStore) -> None:
    store.lose_answer_to("n")
    assert (await count(store, Counting(store)))[0] == 1


async def test_a_put_under_a_dead_session_is_not_tried_for_ever(store: FaultyStore) -> None:
    session = await store.open_session(30_000)
    await store.close_session(session.id)

    async def decide(entry: Entry | None) -> Swap[None]:
        return Swap(None, [Put("n", b"1", session.id)])

    with pytest.raises(ExpiredError):
        await compare_and_swap(store, "n", decide, clock=RUNTIME.clock, random=RUNTIME.random)


async def test_further_requirements_are_part_of_the_commit(store: FaultyStore) -> None:
    await store.commit(apply=[Put("blocked", b"1")])

    async def decide(entry: Entry | None) -> Swap[None]:
        return Swap(None, [Put("n", b"1")], [Absent("blocked")])

    with pytest.raises(UnavailableError):
        await compare_and_swap(store, "n", decide, clock=RUNTIME.clock, random=RUNTIME.random, attempts_max=3)
    assert await store.get("n") is None


async def test_put_if_absent_returns_what_is_kept(store: FaultyStore) -> None:
    for value in (b"1", b"2"):
        assert await put_if_absent(store, "n", value, clock=RUNTIME.clock, random=RUNTIME.random) == b"1"
