"""Leases on every engine: one holder, epochs that only grow, effects refused where they land."""

import asyncio

import pytest

from holdfast.contracts.store import Committed, Conflict, Put, Store
from holdfast.kernel.keys import EPOCH_FLOOR, epoch_key, holder_key
from holdfast.kernel.lease import Held, Lease, acquire, commit_fenced, forget_commit, read_epoch, release, retake
from holdfast.kernel.session import SessionSettings, hold_session
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import ExpiredError, FencedError
from holdfast.vocabulary.random import SeededRandom, SystemRandom

CLOCK, RANDOM = RealClock(), SystemRandom()


async def take(store: Store, who: str, *, ttl_ms: int = 30_000, resource: str = "orders") -> Lease | Held:
    session = await store.open_session(ttl_ms)
    return await acquire(store, resource, holder=who, session=session.id, clock=CLOCK, random=RANDOM)


async def won(store: Store, who: str, *, ttl_ms: int = 30_000) -> Lease:
    lease = await take(store, who, ttl_ms=ttl_ms)
    assert isinstance(lease, Lease)
    return lease


async def won_briefly(store: Store, who: str, *, ttl_ms: int) -> Lease:
    """A lease whose session nobody renews. One that ended before it had the lease, since this process was held up, is no use."""
    while True:
        try:
            return await won(store, who, ttl_ms=ttl_ms)
        except ExpiredError:
            ttl_ms *= 2


async def effect(store: Store, lease: Lease, value: bytes = b'"done"') -> Committed | Conflict:
    return await commit_fenced(store, lease, clock=CLOCK, random=RANDOM, apply=[Put("effect", value)])


async def test_the_first_holder_has_epoch_one_and_the_second_is_told_who_holds(store: Store) -> None:
    ann = await won(store, "ann")
    assert ann.epoch == 1
    held = await take(store, "bob")
    assert isinstance(held, Held)
    assert (held.holder, held.epoch, held.session, held.version) == ("ann", 1, ann.session, ann.version)


async def test_a_released_lease_is_free_at_once_and_its_next_holder_has_the_next_epoch(store: Store) -> None:
    ann = await won(store, "ann")
    assert await release(store, ann, clock=CLOCK, random=RANDOM)
    assert (await won(store, "bob")).epoch == 2


async def test_a_holder_takes_its_own_lease_again_at_the_next_epoch_with_no_gap(store: Store) -> None:
    ann = await won(store, "ann")
    again = await retake(store, ann, clock=CLOCK, random=RANDOM)
    assert again is not None
    assert (again.holder, again.session, again.epoch) == ("ann", ann.session, 2)
    assert isinstance(await take(store, "bob"), Held)
    with pytest.raises(FencedError):
        await effect(store, ann)
    assert isinstance(await effect(store, again), Committed)
    assert await retake(store, ann, clock=CLOCK, random=RANDOM) is None  # it is no longer that one
    await store.close_session(again.session)
    assert (await won(store, "bob")).epoch == 3
    assert await retake(store, again, clock=CLOCK, random=RANDOM) is None


async def test_ten_racing_bids_give_one_lease(store: Store) -> None:
    outcomes = await asyncio.gather(*(take(store, f"bidder-{n}") for n in range(10)))
    winners = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
    assert len(winners) == 1
    assert {o.holder for o in outcomes if isinstance(o, Held)} == {winners[0].holder}


async def test_an_owner_whose_session_ended_cannot_write_once_there_is_a_successor(store: Store) -> None:
    ann = await won(store, "ann")
    await store.close_session(ann.session)
    bob = await won(store, "bob")
    assert bob.epoch == 2
    with pytest.raises(FencedError) as refused:
        await effect(store, ann)
    assert (refused.value.epoch, refused.value.current) == (1, 2)
    assert isinstance(await effect(store, bob), Committed)


async def test_a_stale_owner_cannot_release_its_successors_lease(store: Store) -> None:
    ann = await won(store, "ann")
    await store.close_session(ann.session)
    bob = await won(store, "bob")
    assert not await release(store, ann, clock=CLOCK, random=RANDOM)
    held = await take(store, "cid")
    assert isinstance(held, Held)
    assert held.version == bob.version


async def test_an_expired_holder_is_succeeded_and_fenced(harness: StoreHarness, store: Store) -> None:
    ann = await won_briefly(store, "ann", ttl_ms=harness.ttl_ms_min)
    async with asyncio.timeout(20):
        while isinstance(bob := await take(store, "bob"), Held):
            await CLOCK.sleep_ms(50)
    assert bob.epoch == 2
    assert not await store.keep_alive(ann.session)
    with pytest.raises(FencedError):
        await effect(store, ann)


async def test_epochs_never_repeat_over_many_changes_of_hands(store: Store) -> None:
    epochs = []
    for turn in range(6):
        lease = await won(store, f"holder-{turn}")
        epochs.append(lease.epoch)
        if turn % 2:
            await release(store, lease, clock=CLOCK, random=RANDOM)
        else:
            await store.close_session(lease.session)
    assert epochs == [1, 2, 3, 4, 5, 6]
    assert read_epoch(await store.get(epoch_key("orders"))) == 6


async def test_a_bid_whose_answer_is_lost_is_won_once_and_known(harness: StoreHarness, store: Store) -> None:
    session = await store.open_session(30_000)
    harness.lose_answer_to(holder_key("orders"))
    lease = await acquire(store, "orders", holder="ann", session=session.id, clock=CLOCK, random=RANDOM)
    assert isinstance(lease, Lease)
    assert lease.epoch == 1
    entry = await store.get(holder_key("orders"))
    assert entry is not None
    assert entry.version == lease.version
    assert isinstance(await effect(store, lease), Committed)


async def test_a_dead_session_cannot_take_a_lease(store: Store) -> None:
    session = await store.open_session(30_000)
    await store.close_session(session.id)
    with pytest.raises(ExpiredError):
        await acquire(store, "orders", holder="ann", session=session.id, clock=CLOCK, random=RANDOM)
    assert await store.get(epoch_key("orders")) is None


async def test_a_fenced_commit_tells_a_lost_race_from_a_lost_lease(store: Store) -> None:
    from holdfast.contracts.store import Absent

    ann = await won(store, "ann")
    await effect(store, ann)
    outcome = await commit_fenced(
        store, ann, clock=CLOCK, random=RANDOM, require=[Absent("effect")], apply=[Put("effect", b'"again"')]
    )
    assert isinstance(outcome, Conflict)


@pytest.mark.slow
async def test_ten_thousand_leases_renew_with_one_keep_alive_per_interval() -> None:
    clock, random = FakeClock(), SeededRandom(5)
    async with MemoryStore.open(clock=clock, random=random) as memory:
        store = FaultyStore(memory, random=random)
        async with hold_session(store, clock=clock, random=random, settings=SessionSettings(stall_ms=0)) as session:
            for n in range(10_000):
                lease = await acquire(store, f"p/{n}", holder="a", session=session.id, clock=clock, random=random)
                assert isinstance(lease, Lease)
            store.calls.clear()
            await clock.run_for_ms(300_000, step_ms=1_000)
            intervals = 300_000 / SessionSettings().renew_ms
            assert set(store.calls) == {"keep_alive"}
            assert 0.85 * intervals <= store.calls["keep_alive"] <= 1.15 * intervals
            assert (await store.get(holder_key("p/9999"))) is not None


async def forget(store: Store, *resources: str) -> Committed | Conflict:
    found = {each: await store.get(epoch_key(each)) for each in resources}
    gone = {each: entry for each, entry in found.items() if entry is not None}
    if not gone:
        return Conflict()
    commit = forget_commit(gone, await store.get(EPOCH_FLOOR))
    return await store.commit(require=commit.require, apply=commit.apply)


async def test_an_epoch_that_was_deleted_is_never_used_again(store: Store) -> None:
    for _ in range(3):
        await release(store, await won(store, "ann"), clock=CLOCK, random=RANDOM)
    assert isinstance(await forget(store, "orders"), Committed)
    assert await store.get(epoch_key("orders")) is None
    ann = await won(store, "ann")
    assert ann.epoch == 4
    await release(store, ann, clock=CLOCK, random=RANDOM)
    assert (await won(store, "bob")).epoch == 5


async def test_the_epoch_of_a_lease_that_is_held_is_not_deleted(store: Store) -> None:
    ann = await won(store, "ann")
    assert isinstance(await forget(store, "orders"), Conflict)
    await effect(store, ann)


async def test_leases_taken_while_their_epochs_are_deleted_get_higher_ones(store: Store) -> None:
    """Any interleaving: an epoch is deleted and the lease taken at the same time, again and again."""
    highest = 0
    for turn in range(12):
        taken, *_ = await asyncio.gather(
            won(store, f"holder-{turn}"), forget(store, "orders"), forget(store, "orders"), return_exceptions=True
        )
        assert isinstance(taken, Lease), taken
        assert taken.epoch > highest
        highest = taken.epoch
        await release(store, taken, clock=CLOCK, random=RANDOM)
        if turn % 3 == 0:
            await forget(store, "orders")
