"""The registry of a generation as a worker follows it: a view that lags, claims that race, watches that fail."""

from collections.abc import AsyncIterator

import pytest

from holdfast.contracts.store import Session
from holdfast.pipeline.model.definition import Generation
from holdfast.pipeline.workers.generation_registry import GenerationRegistry
from holdfast.pipeline.workers.slot_assignment import SlotId
from holdfast.pipeline.workers.slot_run import SlotRun
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import ExpiredError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import Notify

NAMESPACE = "pipeline-p-1"


class Followed:
    def __init__(self, store: MemoryStore, clock: FakeClock) -> None:
        self.store, self.clock = FaultyStore(store, random=SeededRandom(2)), clock
        self.notify = Notify()
        self.registry = GenerationRegistry(
            self.store, NAMESPACE, 4, notify=self.notify, clock=clock, random=SeededRandom(3), ttl_ms=20_000
        )
        self.other = RegistryStore(
            store,
            clock=clock,
            random=SeededRandom(4),
            settings=RegistrySettings(namespace=NAMESPACE, partitions=4),
        )
        self.session = Session("", 0)

    def run(self, label: str = "0") -> SlotRun:
        return SlotRun(
            slot=SlotId("p", 0),
            label=label,
            pipeline_name="orders",
            generation=1,
            worker_id="ann",
            lease=None,
            since_ms=0,
            started=True,
        )

    async def assign(self, *runs: SlotRun, consumers: tuple[str, ...] = ()) -> None:
        await self.registry.assign(runs, consumers, self.session)


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    clock = FakeClock()
    async with MemoryStore.open(clock=clock, random=SeededRandom(1)) as store:
        made = Followed(store, clock)
        made.session = await store.open_session(600_000)
        await clock.run_for_ms(100)
        yield made
        await made.registry.close()


async def test_a_partition_just_released_is_not_adopted_again_from_a_view_that_lags(followed: Followed) -> None:
    run = followed.run()
    await followed.assign(run)
    assert run.held == {0: 1, 1: 1, 2: 1, 3: 1}
    stale = await followed.other.snapshot()
    run.revoke({3})
    run.releasable.update(run.leaving)
    run.leaving.clear()
    await followed.registry.release(run)
    followed.registry._view = stale
    await followed.assign(run)
    assert 3 not in run.held, "the view still shows our own claim, alive and under our session"
    followed.registry._view = await followed.other.snapshot()
    await followed.assign(run)
    assert run.held[3] == 3


async def test_a_claim_whose_response_was_lost_is_adopted(followed: Followed) -> None:
    run = followed.run()
    assert await followed.other.claim(2, run.name, 0, session=followed.session)
    await followed.clock.run_for_ms(100)
    await followed.assign(run)
    assert run.held == {0: 1, 1: 1, 2: 1, 3: 1}


async def test_of_two_workers_that_see_the_same_each_claims_its_own(followed: Followed) -> None:
    mine, hers = followed.run("0"), followed.run("1")
    await followed.assign(mine, consumers=(hers.name,))
    assert sorted(mine.held) == [0, 1]
    await followed.assign(hers, consumers=(mine.name,))
    assert sorted(hers.held) == [2, 3]


async def test_a_claim_made_while_its_run_halts_is_released(followed: Followed) -> None:
    run = followed.run()
    run.on_halted()
    await followed.assign(run)
    assert run.held == {}
    assert sorted(run.releasable) == [0, 1, 2, 3]
    await followed.registry.release(run)
    assert {state.owner for state in await followed.other.partitions()} == {None}


async def test_under_a_dead_session_nothing_is_claimed(followed: Followed) -> None:
    await followed.store.close_session(followed.session.id)
    run = followed.run()
    with pytest.raises(ExpiredError):
        await followed.assign(run)
    assert run.held == {}


async def test_a_failed_watch_is_reported_and_restarted(followed: Followed) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no watch today")

    await followed.registry.close()
    whole, followed.registry.registry.watch = followed.registry.registry.watch, broken  # type: ignore[method-assign, assignment]
    followed.registry.follow()
    await followed.clock.run_for_ms(100)
    assert followed.registry.failure == "no watch today"
    followed.registry.registry.watch = whole  # type: ignore[method-assign]
    followed.registry.follow()
    await followed.clock.run_for_ms(100)
    assert followed.registry.failure == ""


@pytest.mark.parametrize(
    ("checkpoints", "intent", "done"),
    [((9, 3), None, True), ((8, 3), None, False), ((9, 0), None, False), ((9, 3), 1, False)],
)
async def test_a_backfill_has_reached_its_ends_when_every_range_is_finished(
    followed: Followed, checkpoints: tuple[int, int], intent: int | None, done: bool
) -> None:
    backfill = Generation(number=1, kind="backfill", starts={"0": 2, "2": 7}, ends={"0": 9, "1": 3, "2": 7})
    for number, checkpoint in enumerate(checkpoints):
        await followed.other.claim(number, "a", 0)
        await followed.other.update_checkpoint(number, "a", checkpoint, 1)
    if intent is not None:
        await followed.other.begin_range(intent, "a", 1, '{"start":3,"end":4}')
    assert await followed.registry.has_reached_end(backfill) is done


async def test_a_generation_without_ends_never_reaches_them(followed: Followed) -> None:
    assert not await followed.registry.has_reached_end(Generation(number=1, kind="backfill"))
