"""Leases that are acquired together: one commit, and the same answers as one by one."""

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
import pytest

from holdfast.contracts.store import Committed, Entry, Put, Store
from holdfast.kernel.keys import EPOCH_FLOOR
from holdfast.kernel.lease import EpochRecord, Held, Lease, acquire, commit_fenced
from holdfast.kernel.lease_batches import LEASES_PER_COMMIT, acquire_many, read_epochs
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import ExpiredError, FencedError
from holdfast.vocabulary.random import SeededRandom

CLOCK, RANDOM = RealClock(), SeededRandom(7)
RESOURCES = [f"placed/orders/{number:05d}" for number in range(LEASES_PER_COMMIT)]


@pytest.fixture
async def store() -> AsyncIterator[FaultyStore]:
    async with MemoryStore.open(clock=CLOCK, random=RANDOM) as opened:
        yield FaultyStore(opened, random=RANDOM)


async def take(
    store: Store,
    resources: Sequence[str],
    *,
    session: str | None = None,
    seen: Mapping[str, Entry | None] | None = None,
) -> list[Lease | Held]:
    session = session or (await store.open_session(30_000)).id
    return await acquire_many(
        store, resources, holder="ann", session=session, clock=CLOCK, random=RANDOM, seen=seen or {}
    )


async def test_leases_are_acquired_in_one_commit_and_each_has_its_own_fence(store: FaultyStore) -> None:
    leases = await take(store, RESOURCES)
    assert store.calls["commit"] == 1
    assert [(lease.resource, lease.epoch) for lease in leases] == [(resource, 1) for resource in RESOURCES]
    lost, kept = leases[:2]
    assert isinstance(lost, Lease)
    assert isinstance(kept, Lease)
    await store.close_session(lost.session)
    bob = await store.open_session(30_000)
    await acquire(store, lost.resource, holder="bob", session=bob.id, clock=CLOCK, random=RANDOM)
    effect = Put("effect", b"1")
    with pytest.raises(FencedError):
        await commit_fenced(store, lost, clock=CLOCK, random=RANDOM, apply=[effect])
    assert isinstance(await commit_fenced(store, kept, clock=CLOCK, random=RANDOM, apply=[effect]), Committed)


async def test_one_that_is_held_is_answered_with_its_holder_and_the_others_are_acquired(store: FaultyStore) -> None:
    bob = await store.open_session(30_000)
    await acquire(store, RESOURCES[3], holder="bob", session=bob.id, clock=CLOCK, random=RANDOM)
    answers = await take(store, RESOURCES)
    held = [answer for answer in answers if isinstance(answer, Held)]
    assert [(each.resource, each.holder) for each in held] == [(RESOURCES[3], "bob")]
    assert [answer.resource for answer in answers] == RESOURCES
    assert all(isinstance(each, Held) for each in await take(store, RESOURCES))  # and nothing is left to ask for


async def test_epochs_go_on_whether_they_were_read_or_not_and_begin_above_the_floor(store: FaultyStore) -> None:
    await store.commit(apply=[Put(EPOCH_FLOOR, msgspec.json.encode(EpochRecord(40)))])
    first, second, third = RESOURCES[:3]
    for resource in (first, second):
        session = await store.open_session(30_000)
        await acquire(store, resource, holder="bob", session=session.id, clock=CLOCK, random=RANDOM)
        await store.close_session(session.id)
    answers = await take(store, [first, second, third], seen=await read_epochs(store, [first]))
    assert [(type(answer), answer.epoch) for answer in answers] == [(Lease, 42), (Lease, 42), (Lease, 41)]


async def test_an_epoch_that_was_read_too_early_is_not_used_again(store: FaultyStore) -> None:
    seen = await read_epochs(store, RESOURCES[:1])
    session = await store.open_session(30_000)
    await acquire(store, RESOURCES[0], holder="bob", session=session.id, clock=CLOCK, random=RANDOM)
    await store.close_session(session.id)
    assert [answer.epoch for answer in await take(store, RESOURCES[:2], seen=seen)] == [2, 1]


async def test_a_dead_session_acquires_nothing(store: FaultyStore) -> None:
    session = await store.open_session(30_000)
    await store.close_session(session.id)
    with pytest.raises(ExpiredError):
        await take(store, RESOURCES, session=session.id)


async def test_an_answer_that_is_lost_is_looked_up(store: FaultyStore) -> None:
    store.lose_answer_to(RESOURCES[0])
    assert all(isinstance(answer, Lease) for answer in await take(store, RESOURCES))
