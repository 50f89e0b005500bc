"""Tasks send what the driver planned: over deaths, repetitions, twins and zombies every record once, and in order."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest
from tests.support.fake_brokers import TOPIC, DeadError, DieAt, SinkWorld, encoded, numbered

from holdfast.client.producer import TargetPartition, TopicRef
from holdfast.contracts.executors import Task
from holdfast.spark.sink.executor_publisher import (
    PlanShare,
    SendResult,
    StagedBatch,
    divide,
    publish_from_executors,
    send_shares,
)
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.publisher import OpenPlan
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError

SMALL = SinkOptions(topic=TOPIC.name, batch_bytes=1024, inline_bytes=0, piece_bytes=64 * 1024)
RunShare = Callable[[list[PlanShare]], Coroutine[Any, Any, list[SendResult]]]


class TestExecutors:
    """Executors of a world without processes. `attempt` is what they make of a task's share."""

    __test__ = False

    def __init__(self, world: SinkWorld, *, width: int = 2, attempt: RunShare | None = None) -> None:
        self.world, self.width = world, width
        self.loop = asyncio.get_running_loop()
        self.attempt: RunShare = attempt or self.send
        self.shares: list[list[PlanShare]] = []

    async def send(self, shares: Sequence[PlanShare]) -> list[SendResult]:
        """A task's work, to the end."""
        world = self.world
        return await send_shares(
            shares, objects=world.objects, producer=world.brokers, clock=world.clock, stall_ms_max=600_000
        )

    async def die_after_sending(self, shares: Sequence[PlanShare], rounds: int) -> None:
        with failpoints.installed(DieAt("round-sent", rounds)), pytest.raises(DeadError):
            await self.send(shares)

    def task_of(self, shares: list[list[PlanShare]]) -> Task:
        self.shares = shares
        return iter

    def run(self, task: Task, count: int) -> list[str]:
        assert count == len(self.shares)
        return [msgspec.json.encode(self.do(self.attempt(each))).decode() for each in self.shares]

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    async def publish(self, *batches: StagedBatch) -> None:
        """The driver's part, in a thread as a slot's."""
        await asyncio.to_thread(publish_from_executors, self.world.driver(), batches, self, self.task_of, run=self.do)


async def staged(world: SinkWorld, rows: list[str], *, query: str = "q", batch: int = 0) -> StagedBatch:
    return StagedBatch(query, batch, await world.stage(rows, options=SMALL))


def in_order(world: SinkWorld) -> bool:
    """Whether every partition has the rows of each task of the staging in their order."""
    for partition in world.brokers.partitions.values():
        values = [record.value or b"" for record in partition.records]
        for task in (0, 1):
            mine = [value for value in values if int(value[-4:]) % 2 == task]
            if mine != sorted(mine):
                return False
    return True


async def test_tasks_send_what_was_staged_and_nothing_is_left(world: SinkWorld) -> None:
    rows = numbered("a", 400)
    executors = TestExecutors(world)
    await executors.publish(await staged(world, rows))
    assert len(executors.shares) == 2
    assert world.brokers.values == encoded(rows)
    assert in_order(world)
    assert await world.staged_objects() == []


async def test_a_partition_of_a_plan_is_in_one_share_and_shares_are_of_one_size(world: SinkWorld) -> None:
    plans = [
        await world.driver().begin(f"q{n}", 0, await world.stage(numbered("a", 900), options=SMALL)) for n in (0, 1)
    ]
    begun = [plan for plan in plans if isinstance(plan, OpenPlan)]
    for width in (1, 2, 3, 6, 50):
        shares = divide(begun, width)
        found = [(share.plan, *each) for task in shares for share in task for each in share.partitions]
        assert sorted(found) == [(plan, TopicRef(TOPIC.name, TOPIC.id), n) for plan in (0, 1) for n in range(3)]
        assert len(shares) == min(width, 6)


async def test_what_is_inline_is_sent_without_a_job(world: SinkWorld) -> None:
    executors = TestExecutors(world)
    await executors.publish(StagedBatch("q", 0, await world.stage(["a", "b"], options=SinkOptions(topic=TOPIC.name))))
    assert executors.shares == []
    assert world.brokers.values == [b"a", b"b"]


@pytest.mark.parametrize("rounds", [1, 3, 8])
async def test_a_task_that_dies_after_it_sent_is_repeated_without_effect(world: SinkWorld, rounds: int) -> None:
    rows = numbered("a", 900)
    executors = TestExecutors(world)

    async def retried(shares: list[PlanShare]) -> list[SendResult]:
        await executors.die_after_sending(shares, rounds)
        return await executors.send(shares)

    executors.attempt = retried
    await executors.publish(await staged(world, rows))
    assert world.brokers.values == encoded(rows)
    assert in_order(world)


async def test_a_repeated_task_sends_only_what_is_missing(world: SinkWorld) -> None:
    executors = TestExecutors(world, width=1)

    async def retried(shares: list[PlanShare]) -> list[SendResult]:
        await executors.send(shares)
        world.brokers.forget_producers()  # they would take everything once more
        before = len(world.brokers.sent)
        found = await executors.send(shares)
        assert len(world.brokers.sent) == before
        return found

    executors.attempt = retried
    rows = numbered("a", 900)
    await executors.publish(await staged(world, rows))
    assert world.brokers.values == encoded(rows)


async def test_twins_of_a_task_append_nothing_twice(world: SinkWorld) -> None:
    """As with speculation: both read the partitions while they are empty, and send step by step beside each other."""
    rows = numbered("a", 900)
    executors = TestExecutors(world)

    async def yield_to_the_twin(_: str) -> None:
        await RealClock().sleep_ms(0)

    async def twins(shares: list[PlanShare]) -> list[SendResult]:
        with failpoints.installed(yield_to_the_twin):
            first, second = await asyncio.gather(executors.send(shares), executors.send(shares))
        assert first == second
        return first

    executors.attempt = twins
    await executors.publish(await staged(world, rows))
    assert len(world.brokers.sent) > len([b for p in world.brokers.partitions.values() for b in p.batches])
    assert world.brokers.values == encoded(rows)
    assert in_order(world)


async def test_a_driver_that_dies_between_plan_and_job_is_followed_by_one_that_sends_its_plan(world: SinkWorld) -> None:
    rows = numbered("a", 400)
    batch = await staged(world, rows)
    assert isinstance(await world.driver().begin(batch.query, 0, batch.pieces), OpenPlan)
    successor = TestExecutors(world)
    await successor.publish(await staged(world, rows))  # staged again; the plan is of the first
    await successor.publish(await staged(world, ["next-0000"], batch=1))
    assert world.brokers.values == encoded([*rows, "next-0000"])
    assert await world.staged_objects() == []


@pytest.mark.parametrize("rounds", [0, 2])
async def test_tasks_of_a_zombie_append_nothing_after_its_successor(world: SinkWorld, rounds: int) -> None:
    """The driver and its task stop, a successor publishes the same batch and ten more; then both go on."""
    rows, later = numbered("a", 600), numbered("b", 500)
    zombie, successor = TestExecutors(world, width=1), TestExecutors(world)
    stopped = False

    async def stop(failpoint: str) -> None:
        nonlocal stopped
        if stopped or failpoint != "spark-sink.round-sent":
            return
        stopped = True
        await successor.publish(await staged(world, rows))
        for batch in range(1, 11):
            await successor.publish(await staged(world, later[50 * batch - 50 : 50 * batch], batch=batch))

    async def resumed(shares: list[PlanShare]) -> list[SendResult]:
        with failpoints.installed(stop):
            if not rounds:
                await stop("spark-sink.round-sent")
            return await zombie.send(shares)

    zombie.attempt = resumed
    await zombie.publish(await staged(world, rows))
    assert stopped
    await successor.publish(await staged(world, ["last-0000"], batch=11))
    assert world.brokers.values == encoded([*rows, *later, "last-0000"])
    assert in_order(world)


async def test_a_task_that_slept_for_longer_than_brokers_remember_sends_nothing(world: SinkWorld) -> None:
    rows = numbered("a", 600)
    executors = TestExecutors(world, width=1)

    async def sleep(failpoint: str) -> None:
        if failpoint == "spark-sink.round-sent":
            world.clock.advance_ms(25 * 3_600_000)
            world.brokers.forget_producers()

    async def slept(shares: list[PlanShare]) -> list[SendResult]:
        with failpoints.installed(sleep):
            return await executors.send(shares)

    executors.attempt = slept
    with pytest.raises(UnavailableError, match="publishing"):
        await executors.publish(await staged(world, rows))
    executors.attempt = executors.send
    await executors.publish(await staged(world, rows))
    assert world.brokers.values == encoded(rows)
    assert in_order(world)


async def test_a_plan_that_cannot_be_sent_keeps_no_other_from_being_published(world: SinkWorld) -> None:
    executors = TestExecutors(world)

    async def half(shares: list[PlanShare]) -> list[SendResult]:
        sent = await executors.send([share for share in shares if share.plan == 1])
        return [*sent, *(SendResult(0, "its broker is away") for share in shares if share.plan == 0)]

    executors.attempt = half
    first, second = (
        await staged(world, numbered("a", 300), query="a"),
        await staged(world, numbered("b", 300), query="b"),
    )
    with pytest.raises(UnavailableError, match="its broker is away"):
        await executors.publish(first, second)
    assert world.brokers.values == encoded(numbered("b", 300))
    executors.attempt = executors.send
    await executors.publish(first, second)
    assert world.brokers.values == encoded([*numbered("a", 300), *numbered("b", 300)])


async def test_a_task_reads_no_bytes_of_partitions_that_are_not_its_own(world: SinkWorld) -> None:
    plan = await world.driver().begin("q", 0, await world.stage(numbered("a", 900), options=SMALL))
    assert isinstance(plan, OpenPlan)
    reads: list[tuple[str, int, int | None]] = []
    get = world.objects.get

    async def counting(key: str, *, start: int = 0, end: int | None = None) -> Any:
        reads.append((key, start, end))
        return await get(key, start=start, end=end)

    world.objects.get = counting  # type: ignore[method-assign]
    for number in range(3):
        ref = TopicRef(TOPIC.name, TOPIC.id)
        await TestExecutors(world).send([PlanShare(0, plan.state, [(ref, number)])])
        assert world.brokers.partition(TargetPartition(ref, number)).end > 0
    staged_bytes = sum(sum(c.sizes) for piece in plan.pieces.pieces for c in piece.contents)
    assert sum((end or 0) - start for _, start, end in reads) == staged_bytes
