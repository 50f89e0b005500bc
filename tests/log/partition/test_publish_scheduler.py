"""When partitions are due, what goes together, and what a failure does to whom."""

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cluster import fast_settings
from tests.support.partitions import ORDERS, Owner, PartitionWorld, append, batch, published
from tests.support.waiting import async_until

from holdfast.agent.settings import AgentCounters
from holdfast.log.model import PartitionConfig
from holdfast.log.partition import publish_scheduler
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.due_partitions import DuePartitions, is_due, is_idle
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publication_failures import PublicationFailures
from holdfast.log.partition.publish_scheduler import PublishScheduler
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.slow_publications import SlowPublications
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.errors import ClosedError, CorruptError, UnavailableError
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.tasks import background_tasks


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PartitionWorld]:
    made = PartitionWorld(tmp_path)
    yield made
    for owner in made.owners:
        await owner.end()


async def opened(owner: Owner, count: int = 1, **partition_config: object) -> list[LeadingPartition]:
    kept = PartitionConfig(**{"roll_ms": 10_000, **partition_config})  # type: ignore[arg-type]
    return [await owner.open(replace(ORDERS, number=number), partition_config=kept) for number in range(count)]


@asynccontextmanager
async def looping(
    owner: Owner, partitions: list[LeadingPartition], publisher: SegmentPublisher | None = None, **changes: object
) -> AsyncIterator[AgentCounters]:
    counters = AgentCounters()
    dirty_partitions: DirtyPartitions[LeadingPartition] = DirtyPartitions()
    settings = fast_settings("ann", **changes)
    budget = TailBudget(settings.tail_bytes_max)
    for partition in partitions:
        partition._dirty_partitions = partition._backpressure._dirty_partitions = dirty_partitions
        if not partition.is_quiescent:
            dirty_partitions.mark_dirty(partition)
        partition._backpressure._budget = budget
        partition.tail.join_budget(budget)
    resources = replace(owner.resources(dirty_partitions=dirty_partitions, budget=budget), settings=settings.log)
    loop = PublishScheduler(publisher or owner.publisher, resources, settings=settings, counters=counters)
    async with background_tasks(loop.run()):
        yield counters


async def test_a_partition_is_due_by_size_by_age_and_on_demand(world: PartitionWorld) -> None:
    ann = await world.owner()
    (partition,) = await opened(ann, roll_bytes=5 * KIB)
    now_ms = world.clock.boot_ms()
    assert not is_due(partition, now_ms + 99_999, object_interval_ms=250)
    await append(partition, batch("a"))
    now_ms = world.clock.boot_ms()
    assert not is_due(partition, now_ms, object_interval_ms=250)
    assert is_due(partition, now_ms + 10_000, object_interval_ms=250)
    partition.request_publish()
    assert is_due(partition, now_ms, object_interval_ms=250)
    await ann.publisher.publish([partition])
    assert not partition.publish_requested
    await append(partition, batch("x" * 6 * KIB))
    assert is_due(partition, world.clock.boot_ms(), object_interval_ms=250)


async def test_a_partition_of_large_segments_is_published_before_its_producers_would_wait(
    world: PartitionWorld,
) -> None:
    world.settings = LogSettings(unpublished_bytes_max=16 * KIB)
    ann = await world.owner()
    (partition,) = await opened(ann, roll_bytes=1024 * KIB)
    await append(partition, batch("x" * 7 * KIB))
    assert not is_due(partition, world.clock.boot_ms(), object_interval_ms=250)
    await append(partition, batch("x" * 2 * KIB))
    assert partition.publish_requested
    assert is_due(partition, world.clock.boot_ms(), object_interval_ms=250)
    assert not partition._backpressure, "nobody waits yet"


async def test_at_object_level_a_partition_is_due_after_the_interval(world: PartitionWorld) -> None:
    (partition,) = await opened(await world.owner(), level="object")
    appending = asyncio.ensure_future(append(partition, batch("a")))
    await async_until(lambda: partition.publishable())
    now_ms = world.clock.boot_ms()
    assert not is_due(partition, now_ms - 1, object_interval_ms=250)
    assert is_due(partition, now_ms + 250, object_interval_ms=250)
    appending.cancel()


async def test_a_partition_is_idle_once_all_is_published_and_nothing_came_for_a_while(world: PartitionWorld) -> None:
    ann = await world.owner()
    (partition,) = await opened(ann)
    await append(partition, batch("a"))
    assert not is_idle(partition, world.clock.boot_ms() + 99_999, idle_ms=50)
    await ann.publisher.publish([partition])
    assert is_idle(partition, partition.appended_at_ms + 50, idle_ms=50)
    assert not is_idle(partition, partition.appended_at_ms + 49, idle_ms=50)


async def test_a_full_partition_wakes_the_loop_and_is_published_without_waiting_for_a_tick(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, roll_bytes=4 * KIB)
    slow_tick = replace(fast_settings("ann").log, publish_tick_ms=60_000)
    async with looping(ann, partitions, log=slow_tick) as counters:
        await append(partitions[0], batch("x" * 5 * KIB))
        await async_until(lambda: partitions[0].record.published == 1)
        await async_until(lambda: counters.segments_published == 1)
    assert counters.bytes_published > 5 * KIB


async def test_partitions_that_pin_the_oldest_wal_file_are_published_when_the_wal_is_large(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 2)
    await append(partitions[0], batch("old"))
    async with looping(ann, partitions, wal_bytes_max=1):
        while ann.wal.stats.rolls < 2:
            await append(partitions[1], batch("x" * 20 * KIB))
        await async_until(lambda: partitions[0].record.published == 1)
        await async_until(lambda: ann.wal.stats.recycled > 0)


class Choosy(SegmentPublisher):
    """Cannot publish partition 1, as if its bytes were damaged."""

    async def publish(self, partitions: Iterable[LeadingPartition], *, closing: bool = False) -> list[LeadingPartition]:
        chosen = list(partitions)
        if any(partition.partition_id.number == 1 for partition in chosen):
            raise CorruptError("partition 1", "damaged on purpose")
        return await super().publish(chosen, closing=closing)


async def test_a_partition_that_cannot_be_published_does_not_keep_others_from_it(world: PartitionWorld) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 3, roll_ms=1)
    for partition in partitions:
        await append(partition, batch("a"))
    choosy = Choosy(
        store=ann.store, objects=ann.objects, clock=world.clock, random=world.random, settings=world.settings
    )
    async with looping(ann, partitions, choosy) as counters:
        await async_until(lambda: [partition.record.published for partition in partitions] == [1, 0, 1])
        await async_until(lambda: counters.publish_failures >= 3)


async def test_a_lost_partition_is_counted_and_left_to_the_plan_executor(world: PartitionWorld) -> None:
    ann, bob = await world.owner("ann"), await world.owner("bob")
    partitions = await opened(ann, roll_ms=1, unclean_takeover=True)
    await append(partitions[0], batch("a"))
    await world.store.close_session(ann.session.id)
    await bob.acquire()
    async with looping(ann, partitions) as counters:
        await async_until(lambda: counters.lost_while_publishing)
    assert counters.segments_published == 0
    assert await published(world) == []


async def test_a_loop_that_is_cancelled_while_it_commits_leaves_nothing_in_doubt(world: PartitionWorld) -> None:
    ann = await world.owner()
    partitions = await opened(ann, roll_ms=1)
    real_commit, started, may_go_on = ann.store.commit, asyncio.Event(), asyncio.Event()

    async def slow_commit(**kwargs: object) -> object:
        if any("/seg/" in each.key for each in kwargs["apply"]):  # type: ignore[attr-defined]
            started.set()
            await may_go_on.wait()
        return await real_commit(**kwargs)  # type: ignore[arg-type]

    ann.store.commit = slow_commit  # type: ignore[method-assign,assignment]
    await append(partitions[0], batch("a"))

    async def leave() -> None:
        async with looping(ann, partitions):
            await started.wait()

    leaving = asyncio.ensure_future(leave())
    await started.wait()
    await world.clock.sleep_ms(20)
    assert not leaving.done()
    may_go_on.set()
    await leaving
    assert partitions[0].record.published == 1
    await append(partitions[0], batch("b"))
    assert await ann.publisher.publish(partitions) == []
    assert [value for _, value in await published(world)] == ["a", "b"]


async def test_all_partitions_share_one_budget_and_the_largest_are_published_first(world: PartitionWorld) -> None:
    ann = await world.owner()
    large, small = await opened(ann, 2)
    async with looping(ann, [large, small], tail_bytes_max=40 * KIB):
        await append(small, batch("a"))
        await append(large, batch("x" * 30 * KIB))
        await async_until(lambda: large.record.published == 1)
        assert small.record.published == 0


async def test_appends_wait_while_the_budget_of_all_partitions_is_used_up(world: PartitionWorld) -> None:
    ann = await world.owner()
    large, small = await opened(ann, 2)
    budget = TailBudget(10 * KIB)
    for partition in (large, small):
        partition._backpressure._budget = budget
        partition.tail.join_budget(budget)
    await append(large, batch("x" * 12 * KIB))
    waiting = asyncio.ensure_future(append(small, batch("a")))
    await async_until(lambda: bool(budget.freed._waiters))
    assert not waiting.done()
    await ann.publisher.publish([large])
    assert (await waiting).base_offset == 0
    assert budget.used_bytes == small.tail.size_bytes > 0
    small.close(ClosedError("test"))
    assert budget.used_bytes == 0


async def test_a_partition_asks_for_attention_until_everything_is_published_and_given_back(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 3)
    quiet, dirty = partitions[0], partitions[1]
    async with looping(ann, partitions, idle_ms=1):
        dirty_partitions = dirty._dirty_partitions
        assert dirty_partitions.dirty() == []
        await append(dirty, batch("a"))
        assert dirty_partitions.dirty() == [dirty]
        dirty.request_publish()
        await async_until(lambda: not dirty_partitions.dirty())
        assert dirty.record.published == 1
        assert dirty.record.clean
        assert quiet.is_quiescent


async def test_a_closed_partition_asks_for_nothing(world: PartitionWorld) -> None:
    ann = await world.owner()
    (partition,) = await opened(ann)
    await append(partition, batch("a"))
    assert partition._dirty_partitions.dirty() == [partition]
    partition.close(ClosedError("test"))
    assert partition._dirty_partitions.dirty() == []


WEEK_MS = 7 * 86_400_000


async def let_go(partitions: list[LeadingPartition]) -> None:
    """Close them, and return once nobody has them any more, but for variables that still name the last one of a loop."""
    closed = [weakref.ref(each) for each in partitions]
    while partitions:
        partitions.pop().close(ClosedError("test"))
    await async_until(lambda: gc.collect() >= 0 and len([ref for ref in closed if ref() is not None]) <= 2)


@pytest.mark.slow
async def test_a_closed_partition_is_let_go_at_once_and_not_when_it_would_have_been_due(world: PartitionWorld) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 6, roll_ms=WEEK_MS)
    async with looping(ann, partitions):
        for each in partitions:
            await append(each, batch("a"))
        dirty = each._dirty_partitions
        await async_until(lambda: not dirty._marked)  # the scheduler knows when they are due
        await let_go(partitions)


@pytest.mark.slow
async def test_a_partition_that_is_closed_while_it_turns_out_to_be_lost_is_let_go_as_well(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 6, roll_ms=1)
    publisher = Hanging(ann.publisher)
    publisher.all_lost = True
    for each in partitions:  # before the loop runs, or slow appends are published one by one
        await append(each, batch("a"))
    async with looping(ann, partitions, publisher, publications_max=6) as counters:
        await async_until(lambda: publisher.waiting == 6)
        closing = asyncio.ensure_future(let_go(partitions))
        await async_until(lambda: not partitions)
        publisher.answered.set()
        await async_until(lambda: counters.lost_while_publishing == 6)
        await closing


class Hanging(SegmentPublisher):
    """Waits for object storage until it is told to go on."""

    def __init__(self, publisher: SegmentPublisher) -> None:
        self.__dict__.update(publisher.__dict__)
        self.answered = asyncio.Event()
        self.waiting = 0
        self.all_lost = False

    async def publish(self, partitions: Iterable[LeadingPartition], *, closing: bool = False) -> list[LeadingPartition]:
        partitions = list(partitions)
        self.waiting += len(partitions)
        await self.answered.wait()
        if self.all_lost:
            return partitions
        return await super().publish(partitions, closing=closing)


async def test_a_publication_that_hangs_is_logged_and_so_is_its_end(
    world: PartitionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, roll_ms=1)
    await append(partitions[0], batch("a"))
    publisher = Hanging(ann.publisher)
    async with looping(ann, partitions, publisher, publish_slow_ms=100):
        await async_until(
            lambda: any("object storage, or the store, does not answer" in each for each in caplog.messages)
        )
        assert any("bytes unpublished" in each for each in caplog.messages)
        assert not any("publishing resumed" in each for each in caplog.messages)
        publisher.answered.set()
        await async_until(lambda: partitions[0].record.published == 1)
        await append(partitions[0], batch("b"))
        await async_until(lambda: any("publishing resumed after" in each for each in caplog.messages))


def test_it_is_said_more_and_more_rarely_and_once_that_it_is_over() -> None:
    slowness = SlowPublications(5_000)
    assert [slowness.line(now_ms) for now_ms in (0, 60_000)] == ["", ""]
    slowness.begin("a", 100_000)
    slowness.begin("b", 101_000)
    said = [second for second in range(100, 200) if slowness.line(second * 1_000)]
    assert said == [105, 110, 120, 140, 180]
    slowness.end("a")
    assert (
        slowness.line(201_000).startswith("publishing has taken") is False
    )  # b is no news: it is slow for the same reason
    slowness.end("b")
    assert slowness.line(202_000) == "publishing resumed after 102000 ms"
    assert slowness.line(203_000) == ""
    slowness.begin("c", 204_000)
    assert slowness.line(208_999) == ""
    assert slowness.line(209_000).startswith("publishing has taken 5000 ms")


class Unanswered(SegmentPublisher):
    """Gets no answer until it is told to go on; notes how many partitions each attempt had, and how many were under way."""

    def __init__(self, publisher: SegmentPublisher) -> None:
        for name, value in vars(publisher).items():
            setattr(self, name, value)
        self.answered, self.under_way = False, 0
        self.attempts: list[tuple[int, int]] = []

    async def publish(self, partitions: Iterable[LeadingPartition], *, closing: bool = False) -> list[LeadingPartition]:
        chosen = list(partitions)
        if self.answered:
            return await super().publish(chosen, closing=closing)
        self.under_way += 1
        self.attempts.append((len(chosen), self.under_way))
        await self._clock.sleep_ms(5)
        self.under_way -= 1
        raise UnavailableError("objects", "away on purpose")


async def test_while_nobody_answers_one_group_is_tried_at_a_time_and_all_are_published_afterwards(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 30, roll_ms=1)
    for partition in partitions:
        await append(partition, batch("a"))
    publisher = Unanswered(ann.publisher)
    async with looping(ann, partitions, publisher, together_partitions_max=5, publish_backoff_max_ms=20) as counters:
        await async_until(lambda: len(publisher.attempts) >= 12)
        first, later = publisher.attempts[:4], publisher.attempts[4:]
        assert max(size for size, _ in publisher.attempts) == 5
        assert [under_way for _, under_way in later] == [1] * len(later), (first, later)
        publisher.answered = True
        await async_until(lambda: all(each.record.published == 1 for each in partitions))
    assert counters.publish_failures >= 12


class Undecided(SegmentPublisher):
    """Gets no answer whenever partition 1 is among those to be published."""

    async def publish(self, partitions: Iterable[LeadingPartition], *, closing: bool = False) -> list[LeadingPartition]:
        chosen = list(partitions)
        if any(partition.partition_id.number == 1 for partition in chosen):
            raise UnavailableError("partition 1", "away on purpose")
        return await super().publish(chosen, closing=closing)


async def test_a_partition_for_which_nobody_answers_does_not_keep_those_that_go_with_it(world: PartitionWorld) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 6, roll_ms=1)
    for partition in partitions:
        await append(partition, batch("a"))
    undecided = Undecided(
        store=ann.store, objects=ann.objects, clock=world.clock, random=world.random, settings=world.settings
    )
    async with looping(ann, partitions, undecided, together_partitions_max=3, publish_backoff_max_ms=20):
        await async_until(lambda: [each.record.published for each in partitions] == [1, 0, 1, 1, 1, 1])


async def test_a_partition_whose_only_append_was_refused_rests(world: PartitionWorld) -> None:
    ann = await world.owner()
    (partition,) = await opened(ann, roll_ms=1)
    async with looping(ann, [partition], idle_ms=1):
        ann.disk.full = True
        with pytest.raises(UnavailableError):
            await append(partition, batch("refused"))
        await async_until(lambda: partition.is_quiescent)  # what was reserved for it is given back, too
        assert partition.segments_published == 0


async def test_an_outage_that_nobody_waits_for_keeps_no_offsets_reserved(world: PartitionWorld) -> None:
    ann = await world.owner()
    gone, idle = await opened(ann, 2)
    await append(idle, batch("a"))
    await ann.publisher.publish([idle])
    ann.objects.reachable = False
    async with looping(ann, [gone, idle], idle_ms=300) as counters:
        await append(gone, batch("b"))
        gone.request_publish()
        await async_until(lambda: counters.publish_failures > 0)
        gone.close(ClosedError("partition"))
        await async_until(lambda: idle.record.clean)


async def test_partitions_that_are_due_sooner_than_was_said_leave_nothing_behind(world: PartitionWorld) -> None:
    (partition, other) = await opened(await world.owner(), 2)
    due = DuePartitions()
    due.put(other, 7)
    for at_ms in range(10_000, 20_000):  # published by size again and again, and due by age in a week
        due.put(partition, at_ms)
        due.discard(partition)
    due.put(partition, 30_000)
    assert len(due._heap) <= 100
    assert due.take(7) == [other]
    assert due.take(29_999) == []
    assert due.take(30_000) == [partition]


@pytest.mark.slow
@pytest.mark.parametrize("due_by", ["request", "time"])
async def test_many_partitions_that_are_due_at_once_are_placed_some_at_a_time(
    world: PartitionWorld, monkeypatch: pytest.MonkeyPatch, due_by: str
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 30, roll_ms=300)
    turn, placed = 0, dict[int, int]()
    real = PublishScheduler._place

    def place(scheduler: PublishScheduler, partition: LeadingPartition, now_ms: int) -> None:
        placed[turn] = placed.get(turn, 0) + 1
        real(scheduler, partition, now_ms)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await world.clock.sleep_ms(0)

    monkeypatch.setattr(publish_scheduler, "_PLACED_AT_ONCE", 10, raising=False)
    monkeypatch.setattr(PublishScheduler, "_place", place)
    async with looping(ann, partitions) as counters, background_tasks(count_turns()):
        for partition in partitions:
            await append(partition, batch("a"))
        await async_until(lambda: sum(placed.values()) >= 30)  # what the appends have marked
        placed.clear()
        if due_by == "request":
            for partition in partitions:
                partition.request_publish()
        await async_until(lambda: counters.segments_published == 30)
        assert max(placed.values()) <= 10  # here: turns are not counted any more outside


async def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    world: PartitionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ann = await world.owner()
    partitions = await opened(ann, 3, roll_ms=1)
    ann.objects.reachable = False
    async with looping(ann, partitions, publish_backoff_max_ms=5) as counters:
        for each in partitions:
            await append(each, batch("a"))
        await async_until(lambda: counters.publish_failures >= 10)
        assert len([each for each in caplog.messages if "failed, retrying" in each]) == 1
        assert not [each for each in caplog.messages if "works again" in each]
        ann.objects.reachable = True
        await async_until(lambda: all(each.record.published for each in partitions))
        await async_until(lambda: any("works again" in each for each in caplog.messages))
    assert len([each for each in caplog.messages if "works again" in each]) == 1


def test_failures_are_logged_ever_more_rarely() -> None:
    failures, away = PublicationFailures(), UnavailableError("objects", "away")
    logged = [at_ms for at_ms in range(0, 3_600_000, 1_000) if failures.failed(["a", "b"], away, at_ms)]
    assert logged == [
        0,
        10_000,
        20_000,
        40_000,
        80_000,
        160_000,
        320_000,
        640_000,
        1_240_000,
        *(1_840_000, 2_440_000, 3_040_000),
    ]
    assert failures.failed(["c"], CorruptError("c", "torn"), 3_600_000) == (
        "publishing 3 partitions failed, retrying: c is corrupt: torn"
    )
    assert failures.ended(["a", "b"], 3_600_000) == ""
    assert failures.ended(["c"], 3_601_000) == "publishing works again, after 3601000 ms"
    assert failures.ended(["c"], 3_601_000) == ""


def test_a_partition_that_fails_while_others_are_published_is_not_logged_again_and_again() -> None:
    failures, torn = PublicationFailures(), CorruptError("a", "torn")
    lines = [(failures.failed(["a"], torn, at_ms), failures.ended(["b"], at_ms)) for at_ms in range(0, 5_000, 100)]
    assert [line for line in lines if any(line)] == [
        ("publishing 1 partition failed, retrying: a is corrupt: torn", "")
    ]


async def test_no_more_publications_are_begun_than_go_on_at_once(
    world: PartitionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await world.owner()
    partitions = await opened(ann, 30)
    begun, at_most = 0, 0
    real = PublishScheduler._publish

    async def publish(scheduler: PublishScheduler, together: list[LeadingPartition], *, probe: bool) -> None:
        nonlocal begun, at_most
        begun += 1
        at_most = max(at_most, begun)
        try:
            await real(scheduler, together, probe=probe)
        finally:
            begun -= 1

    monkeypatch.setattr(PublishScheduler, "_publish", publish)
    for partition in partitions:
        await append(partition, batch("a"))
        partition.request_publish()
    async with looping(ann, partitions, publications_max=2, together_partitions_max=1) as counters:
        await async_until(lambda: counters.segments_published == 30)
    assert at_most == 2
