"""What if the process dies right before or right after any step, or an answer is lost? On every engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import pytest
from tests.support.registry import RegistryWorld

from holdfast.contracts.store import (
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Requirement,
    Resync,
    Scan,
    Session,
    Store,
    StoreFacts,
)
from holdfast.registry import PartitionState, Rebalancer, RegistryStore
from holdfast.registry.growth import ensure_partitions
from holdfast.registry.queries import fixed_starts
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.errors import UnavailableError


class Died(BaseException):
    """The process is gone: nothing catches this."""


class MortalStore:
    """Passes calls on until call number `at`: that one is done or not (`after`), and nothing is, ever again."""

    def __init__(self, store: Store, *, at: int, after: bool) -> None:
        self._store, self._at, self._after, self.calls = store, at, after, 0

    @property
    def facts(self) -> StoreFacts:
        return self._store.facts

    async def get(self, key: str) -> Entry | None:
        self._pass(done=False)
        found = await self._store.get(key)
        self._pass(done=True)
        return found

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._pass(done=False)
        found = await self._store.scan(start, end, limit=limit, reverse=reverse)
        self._pass(done=True)
        return found

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._pass(done=False)
        outcome = await self._store.commit(require=require, apply=apply)
        self._pass(done=True)
        return outcome

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        return await self._store.resolve(commit_id)

    async def open_session(self, ttl_ms: int) -> Session:
        self._pass(done=False)
        session = await self._store.open_session(ttl_ms)
        self._pass(done=True)
        return session

    async def keep_alive(self, session_id: str) -> bool:
        self._pass(done=False)
        alive = await self._store.keep_alive(session_id)
        self._pass(done=True)
        return alive

    async def close_session(self, session_id: str) -> None:
        self._pass(done=False)
        await self._store.close_session(session_id)
        self._pass(done=True)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        return self._store.watch(prefix, from_version=from_version)

    def _pass(self, *, done: bool) -> None:
        self.calls += not done
        if self.calls > self._at or (self.calls == self._at and done == self._after):
            raise Died


Act = Callable[[RegistryStore], Awaitable[object]]
Check = Callable[[RegistryStore], Awaitable[None]]


async def at_every_death(world: RegistryWorld, *, before: Act, act: Act, check: Check, partitions: int = 8) -> int:
    """Let a process die before and after each of its calls in `act`; after each death `check` by another. Counts deaths."""
    deaths = 0
    for at in range(1, 1_000):
        for after in (False, True):
            namespace = f"death-{at}-{after}"
            survivor = world.registry(namespace=namespace, partitions=partitions)
            await before(survivor)
            mortal = MortalStore(world.store, at=at, after=after)
            try:
                await act(world.registry(mortal, namespace=namespace, partitions=partitions))
            except Died:
                deaths += 1
                await check(survivor)
            else:
                assert mortal.calls < at
                return deaths
    raise AssertionError("it never came to its end")


async def one(registry: RegistryStore, number: int = 3) -> PartitionState:
    state = await registry.partition(number)
    assert state is not None
    return state


async def claimed_by_a(registry: RegistryStore) -> None:
    await registry.initialize()
    await registry.register("A")
    await registry.claim(3, "A", 0)
    await registry.update_checkpoint(3, "A", 10, 1)


async def taken_over(registry: RegistryStore, *, checkpoint: tuple[int, ...]) -> None:
    """Whatever A left: once it is gone, B gets everything, and continues where A's last checkpoint was."""
    await registry.deregister("A")
    await registry.register("B")
    rebalancer = Rebalancer(registry)
    await rebalancer.reclaim_expired()
    await rebalancer.rebalance()
    view = await registry.snapshot()
    assert sorted(view.assignments_of("B")) == list(range(registry.settings.partitions))
    assert view.partitions[3].checkpoint in checkpoint
    assert not await registry.update_checkpoint(3, "A", 99, 1)


# --- deaths


async def test_dying_inside_initialize_is_mended_by_the_next(world: RegistryWorld) -> None:
    async def nothing(_: RegistryStore) -> None:
        pass

    async def check(survivor: RegistryStore) -> None:
        await survivor.initialize()
        assert await survivor.partitions() == tuple(PartitionState(id=number) for number in range(70))

    deaths = await at_every_death(
        world, before=nothing, act=lambda registry: registry.initialize(), check=check, partitions=70
    )
    assert deaths >= 6  # the count, the scan, two commits of partitions


async def test_dying_while_partitions_are_added_is_mended_by_the_next(world: RegistryWorld) -> None:
    async def grow(registry: RegistryStore) -> int:
        namespace = registry.settings.namespace
        return await ensure_partitions(registry._store, namespace, 50, clock=world.clock, random=world.random)

    async def check(survivor: RegistryStore) -> None:
        assert await grow(survivor) == 50
        assert await survivor.partitions() == tuple(PartitionState(id=number) for number in range(50))
        assert await fixed_starts(survivor._store, survivor.settings.namespace) == dict.fromkeys(range(8, 50), 0)

    deaths = await at_every_death(world, before=lambda registry: registry.initialize(), act=grow, check=check)
    assert deaths >= 6  # the counts, the scans, two commits of partitions


async def test_dying_inside_register_leaves_no_lasting_trace(world: RegistryWorld) -> None:
    async def check(survivor: RegistryStore) -> None:
        info = await survivor.register("A")
        assert await survivor.active() == (info,)

    await at_every_death(world, before=claimed_by_a, act=lambda registry: registry.register("A"), check=check)


async def test_dying_inside_a_claim_leaves_it_unclaimed_or_claimed_and_both_heal(world: RegistryWorld) -> None:
    async def before(registry: RegistryStore) -> None:
        await registry.initialize()
        await registry.register("A")

    async def check(survivor: RegistryStore) -> None:
        state = await one(survivor)
        assert state in (PartitionState(id=3), PartitionState(id=3, owner="A", epoch=1))
        assert (3 in (await survivor.snapshot()).heartbeats) == (state.owner == "A")  # never one without the other
        await taken_over(survivor, checkpoint=(0,))

    assert await at_every_death(world, before=before, act=lambda registry: registry.claim(3, "A", 0), check=check) == 6


async def test_dying_inside_a_checkpoint_moves_it_or_not(world: RegistryWorld) -> None:
    async def check(survivor: RegistryStore) -> None:
        await taken_over(survivor, checkpoint=(10, 20))

    act: Act = lambda registry: registry.update_checkpoint(3, "A", 20, 1)  # noqa: E731
    assert await at_every_death(world, before=claimed_by_a, act=act, check=check) == 4


async def test_dying_inside_a_release_releases_or_not(world: RegistryWorld) -> None:
    async def check(survivor: RegistryStore) -> None:
        state = await one(survivor)
        assert (state.owner, state.epoch) in ((None, 2), ("A", 1))
        assert (3 in (await survivor.snapshot()).heartbeats) == (state.owner == "A")
        await taken_over(survivor, checkpoint=(10,))

    act: Act = lambda registry: registry.release(3, "A", 1)  # noqa: E731
    assert await at_every_death(world, before=claimed_by_a, act=act, check=check) == 8


async def test_a_coordinator_may_die_anywhere_inside_a_rebalance(world: RegistryWorld) -> None:
    async def before(registry: RegistryStore) -> None:
        await registry.initialize()
        await registry.register("A")
        await Rebalancer(registry).rebalance()
        for number in range(3):
            await registry.update_checkpoint(number, "A", 10 + number, 1)
        await registry.register("C")

    async def check(survivor: RegistryStore) -> None:
        await Rebalancer(survivor).rebalance()
        view = await survivor.snapshot()
        assert sorted(len(view.assignments_of(name)) for name in "AC") == [1, 2]
        assert [view.partitions[number].checkpoint for number in range(3)] == [10, 11, 12]

    async def act(registry: RegistryStore) -> None:
        await world.coordinator(registry).tick()

    assert await at_every_death(world, before=before, act=act, check=check, partitions=3) > 10


async def test_a_claimer_that_dies_leaves_a_claim_that_expires_by_itself(world: RegistryWorld) -> None:
    registry = await world.initialized(ttl_ms=world.short_ttl_ms)
    await world.registry().register("A")  # its registration outlives the test: only the heartbeat can tell
    mortal = MortalStore(world.store, at=3, after=True)
    with pytest.raises(Died):
        await world.registry(mortal, ttl_ms=world.short_ttl_ms).claim(3, "A", 0)
    assert await one(registry) == PartitionState(id=3, owner="A", epoch=1)
    await world.until_view(registry, lambda view: [state.id for state in view.expired()] == [3])
    assert [state.id for state in await Rebalancer(registry).reclaim_expired()] == [3]
    assert await registry.claim(3, "B", 2)


# --- lost answers and lost requests

Lose = Callable[[FaultyStore, str], None]
ways = pytest.mark.parametrize(
    "lose", [FaultyStore.lose_answer_to, FaultyStore.lose_request], ids=["lost-answer", "lost-request"]
)


@ways
async def test_a_claim_is_made_once_whatever_is_lost(world: RegistryWorld, registry: RegistryStore, lose: Lose) -> None:
    faulty = FaultyStore(world.store, random=world.random)
    lose(faulty, "partitions/00003")
    assert await world.registry(faulty).claim(3, "A", 0)
    assert faulty.calls["resolve"] == 1
    assert await one(registry) == PartitionState(id=3, owner="A", epoch=1)
    assert await registry.heartbeat(3, 1)


@ways
async def test_a_release_is_made_once_whatever_is_lost(
    world: RegistryWorld, registry: RegistryStore, lose: Lose
) -> None:
    await registry.claim(3, "A", 0)
    faulty = FaultyStore(world.store, random=world.random)
    lose(faulty, "partitions/00003")
    assert await world.registry(faulty).release(3, "A")
    assert faulty.calls["resolve"] == 1
    assert await one(registry) == PartitionState(id=3, epoch=2)
    assert not await registry.heartbeat(3, 1)


@ways
async def test_a_checkpoint_is_made_once_whatever_is_lost(
    world: RegistryWorld, registry: RegistryStore, lose: Lose
) -> None:
    await registry.claim(3, "A", 0)
    faulty = FaultyStore(world.store, random=world.random)
    careful = world.registry(faulty)
    for offset in (10, 20):  # by a fresh read, and by the remembered record
        lose(faulty, "partitions/00003")
        assert await careful.update_checkpoint(3, "A", offset, 1)
        assert await registry.checkpoint(3) == offset
    assert faulty.calls["resolve"] == 2


@ways
async def test_registering_and_initialising_survive_losses(world: RegistryWorld, lose: Lose) -> None:
    faulty = FaultyStore(world.store, random=world.random)
    registry = world.registry(faulty)
    lose(faulty, "meta")
    await registry.initialize()
    lose(faulty, "consumers/A")
    info = await registry.register("A")
    assert await registry.active() == (info,)
    assert faulty.calls["resolve"] == 2


async def test_a_claim_whose_answer_is_lost_and_whose_race_is_lost_is_refused(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    """The request never arrived, and meanwhile another claimed: the retry must not win."""
    faulty = FaultyStore(world.store, random=world.random)
    faulty.lose_request("partitions/00003")
    resolve = faulty.resolve

    async def meanwhile(commit_id: str) -> Committed | NotCommitted:
        assert await registry.claim(3, "B", 0)
        return await resolve(commit_id)

    faulty.resolve = meanwhile  # type: ignore[method-assign]
    assert not await world.registry(faulty).claim(3, "A", 0)
    assert await one(registry) == PartitionState(id=3, owner="B", epoch=1)
    assert await registry.heartbeat(3, 1)


async def test_a_store_that_stays_away_says_so_and_nothing_has_changed(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    faulty = FaultyStore(world.store, random=world.random)
    away = world.registry(faulty)
    faulty.reachable = False
    for act in (away.claim(3, "A", 0), away.release(3, "A"), away.update_checkpoint(3, "A", 1, 1)):
        with pytest.raises(UnavailableError):
            await act
    assert await one(registry) == PartitionState(id=3)


async def test_a_claim_over_a_real_wire_whose_answer_is_lost_is_made_once(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    world.harness.lose_answer_to("beats/00003")  # which only the claim's commit mentions
    assert await registry.claim(3, "A", 0)
    assert await one(registry) == PartitionState(id=3, owner="A", epoch=1)
    assert await registry.heartbeat(3, 1)


async def test_a_checkpoint_over_a_real_wire_whose_answer_is_lost_is_made_once(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    await registry.claim(3, "A", 0)
    assert await registry.update_checkpoint(3, "A", 10, 1)
    world.harness.lose_answer_to(
        "partitions/00003"
    )  # the record is remembered, so the commit is the next to mention it
    assert await registry.update_checkpoint(3, "A", 20, 1)
    assert await one(registry) == PartitionState(id=3, owner="A", epoch=1, checkpoint=20)


async def test_cancelling_a_claim_leaves_it_made_or_not_made(world: RegistryWorld, registry: RegistryStore) -> None:
    for number in range(8):
        claiming = asyncio.create_task(registry.claim(number, "A", 0))
        for _ in range(number * 2):
            await world.clock.sleep_ms(0)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        # A commit already on its way may still land; what it leaves is a claim with its heartbeat, or nothing.
        view = await registry.snapshot()
        if view.partitions[number].owner is None:
            assert number not in view.heartbeats
        else:
            assert view.heartbeats[number].epoch == view.partitions[number].epoch == 1
