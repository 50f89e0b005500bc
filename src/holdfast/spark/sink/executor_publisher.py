"""Publishing from executors: the driver writes plans and marks them done; tasks send what was staged, straight to the brokers.

The one rule: a task has no say. Its share names a plan as it was committed and the partitions to send; the numbers follow from the
plan (`plan_sender`). So it does not matter whether a task is repeated, runs twice at the same time, or goes on after its driver has
died: whatever it sends is appended once, in order. A partition of a plan is in one share.

What is staged inline is in the plan itself, and is sent by the driver: a Spark job would take longer.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import run as run_on_loop
from holdfast.client.producer import IdempotentProducer, KafkaIdempotentProducer, TargetPartition, TopicRef
from holdfast.contracts.executors import Executors, Task
from holdfast.contracts.objects import Objects
from holdfast.spark.clusters import open_cluster
from holdfast.spark.executors import line_batch, numbers_in
from holdfast.spark.sink.pieces import StagedPieceList
from holdfast.spark.sink.plan_sender import PlanSender, StallDeadline, planned_bytes, read_piece_list
from holdfast.spark.sink.publisher import OpenPlan, SinkPublisher
from holdfast.spark.sink.query_state import QueryState
from holdfast.spark.sink.topics import direct_access
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

T = TypeVar("T")

_SENDING_MAX: Final = 4
"""Plans that one task sends at the same time: of each it holds two pieces."""
_BEGINNING_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """What tasks have staged for a batch of a query."""

    query: str
    batch: int
    pieces: StagedPieceList


class PlanShare(msgspec.Struct, frozen=True):
    """A part of a plan for one task: these partitions. `plan` is its number among the driver's."""

    plan: int
    state: QueryState
    partitions: list[tuple[TopicRef, int]]


class SendResult(msgspec.Struct, frozen=True):
    """What became of a share; without a reason everything is durable."""

    plan: int
    reason: str = ""


class SendShares:
    """The task: number i sends the shares of list i."""

    def __init__(self, cluster_address: ClusterAddress, stall_ms_max: int, shares: list[list[PlanShare]]) -> None:
        self._cluster_address, self._stall_ms_max, self._shares = cluster_address, stall_ms_max, shares

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for number in numbers_in(batches):
            yield line_batch(msgspec.json.encode(run_on_loop(self._send(self._shares[number]))).decode())

    async def _send(self, shares: list[PlanShare]) -> list[SendResult]:
        direct = direct_access(await open_cluster(self._cluster_address))
        producer = KafkaIdempotentProducer(self._cluster_address.bootstrap, login=self._cluster_address.login)
        try:
            return await send_shares(
                shares, objects=direct.objects, producer=producer, clock=RealClock(), stall_ms_max=self._stall_ms_max
            )
        finally:
            await producer.close()


async def send_shares(
    shares: Sequence[PlanShare], *, objects: Objects, producer: IdempotentProducer, clock: Clock, stall_ms_max: int
) -> list[SendResult]:
    """Send shares of plans; one that fails does not keep the others from being sent."""
    sender, limit = PlanSender(objects=objects, producer=producer, clock=clock), asyncio.Semaphore(_SENDING_MAX)

    async def send(share: PlanShare) -> SendResult:
        assert share.state.plan is not None
        targets = [TargetPartition(topic, number) for topic, number in share.partitions]
        async with limit:
            deadline = StallDeadline(clock.boot_ms(), stall_ms_max)  # from before the partitions are read
            try:
                pieces = await read_piece_list(objects, share.state.plan)
                await sender.send(share.state, pieces, targets=targets, deadline=deadline)
            except HoldfastError as error:
                return SendResult(share.plan, str(error) or type(error).__name__)
        return SendResult(share.plan)

    return list(await asyncio.gather(*map(send, shares)))


def publish_from_executors(
    publisher: SinkPublisher,
    batches: Sequence[StagedBatch],
    executors: Executors,
    task_of: Callable[[list[list[PlanShare]]], Task],
    *,
    run: Callable[[Coroutine[Any, Any, Any]], Any] = run_on_loop,
) -> None:
    """Publish batches of different queries, exactly once. In the thread whose Spark jobs these are.

    `UnavailableError`: some of it was not sent; what was planned is finished by whoever publishes the query next.
    """
    left = list(batches)
    while left:
        begun = run(_begin_all(publisher, left))
        plans = [each for each in begun if isinstance(each, OpenPlan)]
        staged = [plan for plan in plans if plan.pieces.keys]
        failed = _send(staged, executors, task_of) if staged else {}
        run(_finish_all(publisher, plans, staged, failed))
        left = [batch for batch, each in zip(left, begun, strict=True) if isinstance(each, OpenPlan) and not each.own]


def _send(
    plans: Sequence[OpenPlan], executors: Executors, task_of: Callable[[list[list[PlanShare]]], Task]
) -> dict[int, str]:
    """Send plans by tasks; the numbers of those that were not sent, and why."""
    shares = divide(plans, executors.width)
    lines = executors.run(task_of(shares), len(shares))
    results = [each for line in lines for each in msgspec.json.decode(line, type=list[SendResult])]
    failed = {each.plan: each.reason for each in results if each.reason}
    for number in range(len(plans)):
        expected = sum(share.plan == number for shares_of_task in shares for share in shares_of_task)
        if sum(each.plan == number for each in results) < expected:
            failed.setdefault(number, "a task returned no result")
    return failed


async def _begin_all(publisher: SinkPublisher, batches: Sequence[StagedBatch]) -> list[Any]:
    limit = asyncio.Semaphore(_BEGINNING_MAX)

    async def begin(each: StagedBatch) -> Any:
        async with limit:
            return await publisher.begin(each.query, each.batch, each.pieces)

    return await _all(begin, batches)


async def _finish_all(
    publisher: SinkPublisher, plans: Sequence[OpenPlan], staged: Sequence[OpenPlan], failed: dict[int, str]
) -> None:
    reasons = {staged[number].key: reason for number, reason in failed.items()}
    sent = {plan.key for plan in staged} - reasons.keys()

    async def finish(plan: OpenPlan) -> None:
        if plan.key in sent:
            await publisher.finish(plan)
        elif plan.key not in reasons:
            await publisher.execute(plan)
        elif not await publisher.is_done(plan):
            raise UnavailableError("publishing", reasons[plan.key])

    await _all(finish, plans)


async def _all(work: Callable[[Any], Coroutine[Any, Any, T]], items: Sequence[Any]) -> list[T]:
    """All results; the first failure is raised after all have ended."""
    found = await asyncio.gather(*map(work, items), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found  # type: ignore[return-value]


def divide(plans: Sequence[OpenPlan], width: int) -> list[list[PlanShare]]:
    """Plans among at most so many tasks, about the same bytes each. A partition of a plan stays whole."""
    sized = [
        (number, target, size)
        for number, plan in enumerate(plans)
        for target, size in sorted(
            planned_bytes(plan.pieces).items(), key=lambda each: (each[0].topic.name, each[0].partition)
        )
    ]
    total, before = max(1, sum(size for _, _, size in sized)), 0
    tasks: list[dict[int, list[tuple[TopicRef, int]]]] = [{} for _ in range(min(width, len(sized)))]
    for number, target, size in sized:
        task = tasks[min(len(tasks) - 1, (before + size // 2) * len(tasks) // total)]
        task.setdefault(number, []).append((target.topic, target.partition))
        before += size
    return [
        [PlanShare(number, plans[number].state, partitions) for number, partitions in task.items()]
        for task in tasks
        if task
    ]
