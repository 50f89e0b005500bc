"""Ids of producers: never the same twice, whoever asks, whatever dies or gets lost; one commit for a thousand of them."""

import asyncio

import msgspec
import pytest

from holdfast.contracts.store import Put
from holdfast.contracts.validation import StoreLimits
from holdfast.log.producer_ids import BLOCK_IDS, PRODUCER_COUNTER, ProducerIds
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SeededRandom


@pytest.fixture
def store() -> FaultyStore:
    random = SeededRandom(1)
    return FaultyStore(MemoryStore(clock=FakeClock(), random=random, limits=StoreLimits()), random=random)


def process(store: FaultyStore, seed: int = 2) -> ProducerIds:
    return ProducerIds(store, clock=RealClock(), random=SeededRandom(seed))


async def test_ids_are_positive_and_follow_each_other(store: FaultyStore) -> None:
    ids = process(store)
    assert [await ids.next() for _ in range(3)] == [1, 2, 3]


async def test_a_block_costs_one_commit(store: FaultyStore) -> None:
    ids = process(store)
    given = [await ids.next() for _ in range(BLOCK_IDS)]
    assert len(set(given)) == BLOCK_IDS
    assert store.calls["commit"] == 1
    assert await ids.next() not in given
    assert store.calls["commit"] == 2


async def test_what_a_crash_left_in_a_block_is_not_given_out_again(store: FaultyStore) -> None:
    before = process(store)
    given = {await before.next() for _ in range(10)}
    after = process(store, seed=3)
    assert given.isdisjoint({await after.next() for _ in range(BLOCK_IDS)})


@pytest.mark.slow
async def test_many_tasks_of_many_processes_never_get_the_same_one(store: FaultyStore) -> None:
    processes = [process(store, seed) for seed in range(8)]
    given = await asyncio.gather(*(each.next() for each in processes for _ in range(BLOCK_IDS + 50)))
    assert len(set(given)) == len(given)
    assert store.calls["commit"] < 16 * 16, "tasks of a process share a block"


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_lost_message_costs_at_most_a_block(store: FaultyStore, lost: str) -> None:
    ids = process(store)
    first = await ids.next()
    (store.lose_request if lost == "request" else store.lose_answer_to)(PRODUCER_COUNTER)
    given = [await ids.next() for _ in range(2 * BLOCK_IDS)]
    assert len({first, *given}) == 2 * BLOCK_IDS + 1
    assert max(given) < 4 * BLOCK_IDS


async def test_a_store_that_is_away_is_said_and_the_next_one_who_asks_gets_an_id(store: FaultyStore) -> None:
    ids = process(store)
    store.reachable = False
    with pytest.raises(UnavailableError):
        await ids.next()
    store.reachable = True
    assert await ids.next() == 1


async def test_a_task_that_gives_up_waiting_takes_no_id_from_the_others(store: FaultyStore) -> None:
    ids = process(store)
    impatient = asyncio.ensure_future(ids.next())
    await RealClock().sleep_ms(0)
    impatient.cancel()
    given = await asyncio.gather(*(ids.next() for _ in range(5)))
    assert len(set(given)) == 5


async def test_the_counter_goes_on_from_where_an_operator_set_it(store: FaultyStore) -> None:
    await store.commit(apply=(Put(PRODUCER_COUNTER, msgspec.json.encode({"next": 70_000})),))
    assert await process(store).next() == 70_000


async def test_an_id_was_given_if_some_process_took_its_block(store: FaultyStore) -> None:
    ann, bob = process(store), process(store, seed=3)
    assert not await ann.was_given(1)
    first, second = await ann.next(), await bob.next()
    assert [await each.was_given(given) for each in (ann, bob) for given in (first, second)] == [True] * 4
    assert [await ann.was_given(never) for never in (-1, 0, 2 * BLOCK_IDS + 1, 1 << 62)] == [False] * 4
