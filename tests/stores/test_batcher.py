"""Batching: order, limits, cancellation and closing, without any engine."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.stores.batcher import PendingWrite, WriteBatcher, WriteBatchLimits
from holdfast.vocabulary.errors import ClosedError, OutcomeUnknownError, UnavailableError


class ManualEngine:
    """Runs a batch on demand, and records its writes."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_run = asyncio.Semaphore(0)
        self.started = asyncio.Semaphore(0)

    async def run(self, batch: Sequence[PendingWrite[int, int]]) -> Sequence[int | Exception]:
        self.batches.append([write.work for write in batch])
        self.started.release()
        await self.may_run.acquire()
        if any(write.work < 0 for write in batch):
            raise ZeroDivisionError
        return [ValueError(write.work) if write.work % 10 == 9 else 2 * write.work for write in batch]


async def submit_all(
    batcher: WriteBatcher[int, int], works: Sequence[int], size_bytes: int = 0
) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(batcher.submit(f"id-{work}", work, size_bytes=size_bytes)) for work in works]
    await asyncio.wait(tasks, timeout=0)
    return tasks


async def test_writes_that_arrive_while_a_batch_is_in_flight_go_together_in_order() -> None:
    engine = ManualEngine()
    batcher = WriteBatcher("store", engine.run)
    async with batcher.running():
        first = await submit_all(batcher, [1])
        await engine.started.acquire()
        rest = await submit_all(batcher, [2, 3, 4])
        assert engine.batches == [[1]]
        engine.may_run.release()
        engine.may_run.release()
        assert await asyncio.gather(*first, *rest) == [2, 4, 6, 8]
    assert engine.batches == [[1], [2, 3, 4]]


async def test_a_batch_is_bounded_by_count_and_bytes_but_takes_any_single_write() -> None:
    engine = ManualEngine()
    for _ in range(10):
        engine.may_run.release()
    batcher = WriteBatcher("store", engine.run, WriteBatchLimits(writes_max=2, bytes_max=1024))
    async with batcher.running():
        small = await submit_all(batcher, [1, 2, 3])
        large = await submit_all(batcher, [4, 5], size_bytes=5000)
        await asyncio.gather(*small, *large)
    assert engine.batches == [[1, 2], [3], [4], [5]]


async def test_too_many_waiting_writes_are_refused() -> None:
    engine = ManualEngine()
    batcher = WriteBatcher("store", engine.run, WriteBatchLimits(waiting_max=1))
    async with batcher.running():
        first = await submit_all(batcher, [1])
        await engine.started.acquire()
        second = await submit_all(batcher, [2])
        with pytest.raises(UnavailableError):
            await batcher.submit("id", 3)
        engine.may_run.release()
        engine.may_run.release()
        await asyncio.gather(*first, *second)


async def test_a_failed_write_fails_alone_and_a_failed_batch_fails_whole() -> None:
    engine = ManualEngine()
    for _ in range(3):
        engine.may_run.release()
    batcher = WriteBatcher("store", engine.run)
    async with batcher.running():
        outcomes = await asyncio.gather(*await submit_all(batcher, [1, 9]), return_exceptions=True)
        assert outcomes[0] == 2
        assert isinstance(outcomes[1], ValueError)
        outcomes = await asyncio.gather(*await submit_all(batcher, [1, -1]), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError, ZeroDivisionError]
        assert await batcher.submit("id", 5) == 10


async def test_a_write_cancelled_before_it_is_sent_is_dropped_and_one_cancelled_later_completes() -> None:
    engine = ManualEngine()
    batcher = WriteBatcher("store", engine.run)
    async with batcher.running():
        under_way = await submit_all(batcher, [1, 2])
        await engine.started.acquire()
        waiting = await submit_all(batcher, [3, 4])
        under_way[0].cancel()
        waiting[0].cancel()
        engine.may_run.release()
        engine.may_run.release()
        assert list(await asyncio.gather(under_way[1], waiting[1])) == [4, 8]
    assert engine.batches == [[1, 2], [4]]


async def test_closing_lets_the_batch_in_flight_finish_and_refuses_the_rest() -> None:
    engine = ManualEngine()
    batcher = WriteBatcher("store", engine.run)
    async with batcher.running():
        under_way = await submit_all(batcher, [1])
        await engine.started.acquire()
        waiting = await submit_all(batcher, [2])
        asyncio.get_running_loop().call_soon(engine.may_run.release)
    assert await under_way[0] == 2
    for late in (waiting[0], batcher.submit("id", 3)):
        with pytest.raises(ClosedError):
            await late


async def test_a_batch_that_closing_could_not_wait_for_has_an_unknown_outcome() -> None:
    engine = ManualEngine()
    batcher = WriteBatcher("store", engine.run)

    async def use() -> None:
        async with batcher.running():
            await engine.started.acquire()

    using = asyncio.create_task(use())
    await asyncio.wait([using], timeout=0)
    under_way = await submit_all(batcher, [1])
    await asyncio.wait([using], timeout=0.02)  # it has left the body and waits for the batch
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    with pytest.raises(OutcomeUnknownError) as lost:
        await under_way[0]
    assert lost.value.commit_id == "id-1"
