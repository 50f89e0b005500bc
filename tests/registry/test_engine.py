"""Consumers, on every engine: delivery, fencing, stuck handlers, failing handlers, threads, following."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from tests.support.registry import LONG_TTL_MS, RegistryWorld, in_time
from tests.support.waiting import async_until

from holdfast.registry import (
    Assignment,
    ConsumerEngine,
    Delivery,
    Message,
    RegistryStore,
    RegistryView,
    SimpleConsumer,
    ThreadDelivery,
)
from holdfast.registry.partition_loop import PartitionLoop
from holdfast.vocabulary.errors import FencedError, InvalidError
from holdfast.vocabulary.tasks import background_tasks


class Noting:
    """An async handler that notes (partition, offset, epoch), and can be held up at one partition."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []
        self.stuck_at: int | None = None
        self.entered, self.may_go, self.cancelled = asyncio.Event(), asyncio.Event(), 0

    async def __call__(self, delivery: Delivery) -> None:
        message = delivery.message
        if message.partition == self.stuck_at:
            self.entered.set()
            try:
                await self.may_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        self.seen.append((message.partition, message.offset, delivery.epoch))


def total(view: RegistryView) -> int:
    return sum(state.checkpoint for state in view.partitions.values())


def put(world: RegistryWorld, partition: int, count: int) -> None:
    for _ in range(count):
        world.queues.put(partition, "key", b"value")


async def assignment(registry: RegistryStore, consumer: str, partition: int) -> Assignment:
    return (await registry.snapshot()).assignments_of(consumer)[partition]


# --- delivery


async def test_old_and_new_messages_are_each_delivered_once(world: RegistryWorld, registry: RegistryStore) -> None:
    """PXRS replayed its buffer and then took the same messages from its queue."""
    note, coordinator = Noting(), world.coordinator(registry)
    put(world, 0, 5)
    async with world.engine(registry, "A", note).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        put(world, 0, 5)
        await world.until_view(registry, lambda view: total(view) == 10)
    assert note.seen == [(0, offset, 1) for offset in range(10)]


async def test_the_checkpoint_flows_to_the_next_owner(world: RegistryWorld, registry: RegistryStore) -> None:
    first, second, coordinator = Noting(), Noting(), world.coordinator(registry)
    put(world, 0, 5)
    async with world.engine(registry, "A", first).running() as ann:
        await coordinator.add_consumer(ann)
        await coordinator.tick()
        await world.until_view(registry, lambda view: total(view) == 5)
        async with world.engine(registry, "B", second).running() as bob:
            await coordinator.add_consumer(bob)
            await coordinator.remove_consumer(ann)
            await coordinator.tick()
            put(world, 0, 5)
            await world.until_view(registry, lambda view: total(view) == 10)
    assert first.seen == [(0, offset, 1) for offset in range(5)]
    assert second.seen == [(0, offset, 3) for offset in range(5, 10)]


async def test_a_moving_partition_finishes_the_message_in_hand_and_no_message_runs_twice(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    note, coordinator = Noting(), world.coordinator(registry)
    async with world.engine(registry, "A", note, drain_ms=20_000).running() as ann:
        await coordinator.add_consumer(ann)
        await coordinator.tick()
        note.stuck_at = 7
        put(world, 7, 2)
        await note.entered.wait()
        async with world.engine(registry, "B", note).running() as bob:
            await coordinator.add_consumer(bob)
            ticking = asyncio.create_task(coordinator.tick())
            await async_until(lambda: 7 not in ann.assignments)
            note.stuck_at = None
            note.may_go.set()
            await ticking
            await world.until_view(registry, lambda view: total(view) == 2)
    assert note.seen == [(7, 0, 1), (7, 1, 3)]
    assert note.cancelled == 0


async def test_leaving_gives_everything_back(world: RegistryWorld, registry: RegistryStore) -> None:
    coordinator = world.coordinator(registry)
    async with world.engine(registry, "A", SimpleConsumer()).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        assert set(engine.assignments) == set(range(8))
        with pytest.raises(InvalidError, match="must be stopped"):
            await engine.running().__aenter__()
    view = await registry.snapshot()
    assert (view.consumers, view.heartbeats, len(view.unowned())) == ({}, {}, 8)
    assert engine.session is None
    assert engine.assignments == {}
    await engine.assign(
        Assignment(partition=0, consumer="A", epoch=9, checkpoint=0, ttl_ms=1_000)
    )  # too late: it does nothing
    assert engine.assignments == {}


async def test_a_source_with_holes_moves_the_checkpoint_over_them(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    class Holes:
        async def next(self, partition: int, offset: int) -> Message:
            if partition != 0 or offset > 20:
                await asyncio.Event().wait()
            return Message(partition=0, offset=offset + 9 - offset % 10, key="", value=b"")

    note, coordinator = Noting(), world.coordinator(registry)
    async with world.engine(registry, "A", note, source=Holes()).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        await world.until_view(registry, lambda view: view.partitions[0].checkpoint == 30)
    assert [offset for _, offset, _ in note.seen] == [9, 19, 29]


# --- fencing


async def test_an_engine_uses_the_epoch_it_was_given_not_the_present_one(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    """PXRS read the epoch again at commit time, so that only the owner's name was checked."""
    note = Noting()
    note.stuck_at = 0
    async with world.engine(registry, "A", note).running() as engine:
        await registry.claim(0, "A", 0)
        await engine.assign(await assignment(registry, "A", 0))
        put(world, 0, 1)
        await note.entered.wait()
        await registry.release(0, "A", 1)
        await registry.claim(0, "A", 2)  # the same owner, another claim
        note.may_go.set()
        await async_until(lambda: not engine.assignments)
    assert note.seen == [(0, 0, 1)]
    assert await registry.checkpoint(0) == 0


async def test_an_assignment_of_the_same_epoch_twice_starts_one_handler(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    note = Noting()
    async with world.engine(registry, "A", note).running() as engine:
        await registry.claim(0, "A", 0)
        given = await assignment(registry, "A", 0)
        await engine.assign(given)
        await engine.assign(given)
        put(world, 0, 3)
        await world.until_view(registry, lambda view: total(view) == 3)
        await engine.revoke(Assignment(partition=0, consumer="A", epoch=7, checkpoint=0, ttl_ms=1), lost=True)
        assert 0 in engine.assignments  # that revoked another claim
    assert note.seen == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]


# --- heartbeats and stuck handlers


async def test_an_idle_partition_is_kept_by_its_loop(fake_world: RegistryWorld) -> None:
    registry = await fake_world.initialized(ttl_ms=fake_world.short_ttl_ms)
    coordinator = fake_world.coordinator(registry)
    async with fake_world.engine(registry, "A", SimpleConsumer()).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        await fake_world.clock.sleep_ms(2 * fake_world.short_ttl_ms)  # the one thing to see is that nothing happens
        view = await registry.snapshot()
        assert view.expired() == ()
        assert {state.epoch for state in view.partitions.values()} == {1}


async def test_a_stuck_handler_loses_its_partition_and_its_neighbours_keep_theirs(fake_world: RegistryWorld) -> None:
    """PXRS's coordinator sent heartbeats on its consumers' behalf, so that a hung one stayed alive."""
    registry = await fake_world.initialized(ttl_ms=fake_world.short_ttl_ms)
    stuck, free, coordinator = Noting(), Noting(), fake_world.coordinator(registry)
    stuck.stuck_at = 0
    async with AsyncExitStack() as stack:
        for name, handler in (("A", stuck), ("B", free)):
            engine = await stack.enter_async_context(fake_world.engine(registry, name, handler).running())
            await coordinator.add_consumer(engine)
        await coordinator.tick()
        await stack.enter_async_context(coordinator.running())
        put(fake_world, 0, 1)
        put(fake_world, 1, 1)
        await fake_world.until_view(registry, lambda view: view.partitions[0].owner == "B" and total(view) == 2)
        view = await registry.snapshot()
        assert {1, 2, 3} < {state.id for state in view.owned_by("A")}
        assert {view.partitions[number].epoch for number in (1, 2, 3)} == {1}
        assert sorted(len(view.owned_by(name)) for name in "AB") == [4, 4]
    assert (0, 0, 3) in free.seen
    assert stuck.seen == [(1, 0, 1)]
    assert stuck.cancelled == 1


async def test_a_slow_but_honest_handler_keeps_its_partition(fake_world: RegistryWorld) -> None:
    registry = await fake_world.initialized(ttl_ms=fake_world.short_ttl_ms)
    epochs = []

    async def slow(delivery: Delivery) -> None:
        until_ms = fake_world.clock.boot_ms() + 2 * fake_world.short_ttl_ms
        while fake_world.clock.boot_ms() < until_ms:
            assert await delivery.heartbeat()
            await fake_world.clock.sleep_ms(fake_world.short_ttl_ms / 6)
        epochs.append(delivery.epoch)

    coordinator = fake_world.coordinator(registry)
    async with fake_world.engine(registry, "A", slow).running() as engine, coordinator.running():
        await coordinator.add_consumer(engine)
        put(fake_world, 0, 1)
        await fake_world.until_view(registry, lambda view: total(view) == 1)
    assert epochs == [1]


async def test_a_handler_that_outlasts_its_claim_is_told_by_its_heartbeat(world: RegistryWorld) -> None:
    registry = await world.initialized(ttl_ms=world.short_ttl_ms)
    answers: list[bool] = []
    told = asyncio.Event()

    async def slow(delivery: Delivery) -> None:
        await world.until_view(registry, lambda view: 0 not in view.heartbeats)
        answers.append(await delivery.heartbeat())
        told.set()

    async with world.engine(registry, "A", slow).running() as engine:
        await in_time(lambda: registry.claim(0, "A", 0))
        await engine.assign(await assignment(registry, "A", 0))
        put(world, 0, 1)
        await told.wait()
        await async_until(lambda: not engine.assignments)
    assert answers == [False]


async def test_a_handler_that_resists_cancellation_is_left_behind(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    entered, may_go = asyncio.Event(), asyncio.Event()

    async def stubborn(delivery: Delivery) -> None:
        entered.set()
        while not may_go.is_set():
            try:
                await may_go.wait()
            except asyncio.CancelledError:
                continue

    async with world.engine(registry, "A", stubborn, drain_ms=50).running() as engine:
        await registry.claim(0, "A", 0)
        given = await assignment(registry, "A", 0)
        await engine.assign(given)
        put(world, 0, 1)
        await entered.wait()
        await engine.revoke(given, lost=True)  # returns, although the handler does not
        assert engine.assignments == {}
        may_go.set()


# --- failing handlers


async def test_a_failing_message_is_tried_again_and_then_passed(world: RegistryWorld, registry: RegistryStore) -> None:
    attempts: list[int] = []

    async def shaky(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt < 3:
            raise OSError("disk full")

    coordinator = world.coordinator(registry)
    async with world.engine(registry, "A", shaky).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        put(world, 0, 1)
        await world.until_view(registry, lambda view: total(view) == 1)
    assert attempts == [1, 2, 3]
    assert [(each.partition, each.offset, each.attempt, each.gave_up) for each in world.failures] == [
        (0, 0, 1, False),
        (0, 0, 2, False),
    ]
    assert str(world.failures[0].error) == "disk full"


async def test_a_message_that_keeps_failing_gives_its_partition_to_another_consumer(world: RegistryWorld) -> None:
    registry = await world.initialized()
    note, coordinator = Noting(), world.coordinator(registry)

    async def broken(delivery: Delivery) -> None:
        if delivery.message.partition == 0:
            raise OSError("no route to host")
        await note(delivery)

    async with AsyncExitStack() as stack:
        for name, handler in (("A", broken), ("B", note)):
            engine = world.engine(registry, name, handler, attempts_max=2)
            await coordinator.add_consumer(await stack.enter_async_context(engine.running()))
        await coordinator.tick()
        await stack.enter_async_context(coordinator.running())
        for number in range(8):
            put(world, number, 2)
        await world.until_view(registry, lambda view: total(view) == 16)
        assert (await registry.snapshot()).partitions[0].owner == "B"
    assert [(each.consumer, each.attempt, each.gave_up) for each in world.failures] == [("A", 1, False), ("A", 2, True)]
    assert Counter(partition for partition, _, _ in note.seen) == dict.fromkeys(range(8), 2)


async def test_what_a_handler_awaited_and_was_cancelled_is_its_failure(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    async def confused(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise asyncio.CancelledError

    coordinator = world.coordinator(registry)
    async with world.engine(registry, "A", confused).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        put(world, 0, 1)
        await world.until_view(registry, lambda view: total(view) == 1)
    assert [type(each.error) for each in world.failures] == [asyncio.CancelledError]


async def test_a_source_that_fails_or_lies_is_a_failure_too(world: RegistryWorld, registry: RegistryStore) -> None:
    answers: list[Message | Exception] = [
        OSError("gone"),
        Message(partition=1, offset=0, key="", value=b""),
        Message(partition=0, offset=0, key="", value=b"right"),
    ]

    class Odd:
        async def next(self, partition: int, offset: int) -> Message:
            if partition != 0 or not answers:
                await asyncio.Event().wait()
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    coordinator = world.coordinator(registry)
    async with world.engine(registry, "A", SimpleConsumer(), source=Odd()).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        await world.until_view(registry, lambda view: total(view) == 1)
    assert [type(each.error) for each in world.failures] == [OSError, InvalidError]


# --- threads


async def test_a_blocking_handler_gets_a_thread_per_partition(world: RegistryWorld, registry: RegistryStore) -> None:
    names: set[tuple[int, str]] = set()

    def blocking(delivery: ThreadDelivery) -> None:
        names.add((delivery.message.partition, threading.current_thread().name))

    coordinator = world.coordinator(registry)
    async with world.engine(registry, "A", blocking).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        for number in range(8):
            put(world, number, 3)
        await world.until_view(registry, lambda view: total(view) == 24)
    assert names == {(number, f"A-{number}") for number in range(8)}


async def test_a_blocking_handlers_error_and_heartbeat_work(world: RegistryWorld, registry: RegistryStore) -> None:
    alive: list[bool] = []

    def shaky(delivery: ThreadDelivery) -> None:
        alive.append(delivery.heartbeat() and not delivery.stopped)
        if delivery.attempt == 1:
            raise StopIteration
        if delivery.attempt == 2:
            raise SystemExit(1)

    coordinator = world.coordinator(registry)
    async with world.engine(registry, "A", shaky).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        put(world, 0, 1)
        await world.until_view(registry, lambda view: total(view) == 1)
    assert alive == [True, True, True]
    assert len(world.failures) == 2


async def test_a_stuck_thread_loses_its_partition_and_what_it_does_late_is_refused(fake_world: RegistryWorld) -> None:
    registry = await fake_world.initialized(ttl_ms=fake_world.short_ttl_ms)
    entered, may_go, late = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    heard: list[bool] = []

    def stuck(delivery: ThreadDelivery) -> None:
        loop.call_soon_threadsafe(entered.set)
        may_go.wait(60)
        heard.append(delivery.heartbeat())
        late.set()

    note, coordinator = Noting(), fake_world.coordinator(registry)
    async with AsyncExitStack() as stack:
        ann = await stack.enter_async_context(fake_world.engine(registry, "A", stuck).running())
        await coordinator.add_consumer(ann)
        await coordinator.tick()
        put(fake_world, 0, 1)
        await entered.wait()
        bob = await stack.enter_async_context(fake_world.engine(registry, "B", note).running())
        await coordinator.add_consumer(bob)
        await stack.enter_async_context(coordinator.running())
        await fake_world.until_view(registry, lambda view: view.partitions[0].owner == "B" and total(view) == 1)
        put(fake_world, 0, 1)
        await fake_world.until_view(registry, lambda view: total(view) == 2)
        may_go.set()
        await asyncio.to_thread(late.wait, 10)
    assert heard == [False]
    assert [offset for partition, offset, _ in note.seen if partition == 0] == [0, 1]


async def test_a_late_checkpoint_of_an_engine_that_was_not_told_is_refused(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    entered, may_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    delivered: list[int] = []

    def stuck(delivery: ThreadDelivery) -> None:
        delivered.append(delivery.message.offset)
        loop.call_soon_threadsafe(entered.set)
        may_go.wait(60)

    async with world.engine(registry, "A", stuck).running() as engine:
        await registry.claim(0, "A", 0)
        await engine.assign(await assignment(registry, "A", 0))
        put(world, 0, 5)
        await entered.wait()
        elsewhere = world.registry()
        await elsewhere.release(0, "A", 1)
        await elsewhere.claim(0, "B", 2)
        await elsewhere.update_checkpoint(0, "B", 4, 3)
        may_go.set()
        await async_until(lambda: not engine.assignments)
    assert delivered == [0]  # refused once is enough: nothing more is handed over
    state = await registry.partition(0)
    assert state is not None
    assert (state.owner, state.epoch, state.checkpoint) == ("B", 3, 4)


async def test_no_second_handler_of_a_partition_starts_beside_a_stuck_thread(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    entered, may_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    at_once, most = 0, 0

    def handler(delivery: ThreadDelivery) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        loop.call_soon_threadsafe(entered.set)
        may_go.wait(60)
        at_once -= 1

    async with world.engine(registry, "A", handler, drain_ms=20).running() as engine:
        await registry.claim(0, "A", 0)
        first = await assignment(registry, "A", 0)
        await engine.assign(first)
        put(world, 0, 1)
        await entered.wait()
        await registry.release(0, "A", 1)
        await engine.revoke(first, lost=True)
        await registry.claim(0, "A", 2)
        await engine.assign(await assignment(registry, "A", 0))
        assert await registry.checkpoint(0) == 0
        may_go.set()
        await world.until_view(registry, lambda view: total(view) == 1)
    assert most == 1


async def test_work_meant_for_a_stuck_thread_is_not_done_once_its_claim_is_gone_too(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    entered, may_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    epochs: list[int] = []

    def handler(delivery: ThreadDelivery) -> None:
        epochs.append(delivery.epoch)
        loop.call_soon_threadsafe(entered.set)
        may_go.wait(60)

    async with world.engine(registry, "A", handler, drain_ms=20).running() as engine:
        put(world, 0, 1)
        for epoch in (0, 2, 4):
            await registry.claim(0, "A", epoch)
            given = await assignment(registry, "A", 0)
            await engine.assign(given)
            await entered.wait()
            await world.clock.sleep_ms(50)  # time for the second claim to do what it must not do
            if epoch < 4:
                await registry.release(0, "A", epoch + 1)
                await engine.revoke(given, lost=True)
        may_go.set()
        await world.until_view(registry, lambda view: total(view) == 1)
    assert epochs == [1, 5]


# --- registration


async def test_a_restarted_process_need_not_wait_for_its_own_old_heartbeats(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    await registry.register("A")
    for number in range(8):
        await registry.claim(number, "A", 0)  # by a former process, which died a moment ago
    async with world.coordinator(registry).running(), world.engine(registry, "A", Noting()).following():
        await world.until_view(registry, lambda view: len(view.assignments_of("A")) == 8, within_s=LONG_TTL_MS / 2_000)


async def test_a_second_process_of_the_same_id_takes_over_and_the_first_ends(world: RegistryWorld) -> None:
    registry = await world.initialized(ttl_ms=world.short_ttl_ms)
    first, second = Noting(), Noting()
    coordinator = world.coordinator(registry)
    async with coordinator.running():
        fenced = asyncio.create_task(_until_fenced(world.engine(registry, "A", first)))
        await world.until_view(registry, lambda view: len(view.owned_by("A")) == 8)
        async with world.harness.client() as other, world.engine(world.registry(other), "A", second).following():
            assert (await fenced).resource == "consumer A"
            put(world, 0, 1)
            await world.until_view(registry, lambda view: total(view) == 1)
    assert first.seen == []
    assert len(second.seen) == 1
    assert second.seen[0][2] > 1  # not the claim of the first


async def _until_fenced(engine: ConsumerEngine) -> FencedError:
    with pytest.raises(FencedError) as raised:
        async with engine.following():
            await asyncio.Event().wait()
    return raised.value


async def test_an_expired_registration_is_made_again(world: RegistryWorld) -> None:
    """As after a laptop's sleep: everything was lost, and everything starts again under new epochs."""
    registry = await world.initialized(ttl_ms=world.short_ttl_ms)
    note = Noting()
    async with world.coordinator(registry).running(), world.engine(registry, "A", note).following() as engine:
        await world.until_view(registry, lambda view: len(view.assignments_of("A")) == 8)
        await registry.deregister("A")
        await world.until_view(registry, lambda view: len(view.assignments_of("A")) == 8)
        put(world, 0, 1)
        await world.until_view(registry, lambda view: total(view) == 1)
        assert set(engine.assignments) == set(range(8))
    assert note.seen[0][2] > 1


async def test_an_engine_waits_for_an_unreachable_store_and_goes_on(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    note = Noting()
    coordinator = world.coordinator(registry)
    async with world.engine(registry, "A", note).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        put(world, 0, 1)
        await world.until_view(registry, lambda view: total(view) == 1)
        loop = engine._loops[0]
        assert isinstance(loop, PartitionLoop)
        await async_until(lambda: loop.cursor == 1)  # it has heard the answer, too
        await world.harness.set_reachable(False)
        put(world, 0, 1)
        await async_until(lambda: len(note.seen) == 2)
        await world.harness.set_reachable(True)
        await world.until_view(registry, lambda view: total(view) == 2)
    assert note.seen == [(0, 0, 1), (0, 1, 1)]


# --- following


def all_have_heard(view: RegistryView, engines: Sequence[ConsumerEngine]) -> bool:
    """Each loop of each engine is what the registry says: nobody still reads a partition that went to somebody else."""
    return all(engine.assignments.keys() == view.assignments_of(engine.consumer).keys() for engine in engines)


async def test_followers_need_no_coordinator_of_their_own(world: RegistryWorld, registry: RegistryStore) -> None:
    handlers = {name: Noting() for name in "ABC"}
    async with AsyncExitStack() as stack:
        coordinating = await stack.enter_async_context(world.harness.client())
        await stack.enter_async_context(world.coordinator(world.registry(coordinating)).running())
        engines = []
        for name in "AB":
            client = await stack.enter_async_context(world.harness.client())
            follower = world.engine(world.registry(client), name, handlers[name]).following()
            engines.append(await stack.enter_async_context(follower))
        await world.until_view(registry, lambda view: [len(view.owned_by(name)) for name in "AB"] == [4, 4])
        view = await registry.snapshot()
        await async_until(lambda: all_have_heard(view, engines))
        for number in range(8):
            put(world, number, 3)
        await world.until_view(registry, lambda view: total(view) == 24)
        async with world.engine(registry, "C", handlers["C"]).following() as joined:
            await world.until_view(registry, lambda view: len(view.owned_by("C")) >= 2 and view.unowned() == ())
            view = await registry.snapshot()
            await async_until(lambda: all_have_heard(view, [*engines, joined]))
            for number in range(8):
                put(world, number, 3)
            await world.until_view(registry, lambda view: total(view) == 48)
        await world.until_view(registry, lambda view: [len(view.owned_by(name)) for name in "AB"] == [4, 4])
    seen = Counter((partition, offset) for handler in handlers.values() for partition, offset, _ in handler.seen)
    assert set(seen) == {(partition, offset) for partition in range(8) for offset in range(6)}
    assert sum(seen.values()) == 48  # all was checkpointed before anything moved
    assert all(handler.seen for handler in handlers.values())


async def test_a_follower_cancels_a_stuck_handler_when_its_partition_is_gone(world: RegistryWorld) -> None:
    registry = await world.initialized(ttl_ms=world.short_ttl_ms)
    note = Noting()
    note.stuck_at = 0
    async with world.engine(registry, "A", note).following() as engine:
        await in_time(lambda: registry.claim(0, "A", 0))
        put(world, 0, 1)
        await note.entered.wait()
        await async_until(lambda: not engine.assignments)
    assert note.cancelled == 1


async def test_a_body_that_fails_still_leaves_cleanly(world: RegistryWorld, registry: RegistryStore) -> None:
    async def fail() -> None:
        raise OSError("the body's neighbour failed")

    with pytest.raises(OSError, match="neighbour"):
        async with world.engine(registry, "A", SimpleConsumer()).following(), background_tasks(fail()):
            await asyncio.Event().wait()
    assert await registry.active() == ()
