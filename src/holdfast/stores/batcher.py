"""Write batching: writes that arrive while a batch is in flight go into the next one.

It owns the queue and the order; the engine runs the batches. The one rule: first in, first out, one batch in flight at a time. A
lone write is sent at once; a busy store pays one round trip and one fsync per batch. A write whose caller is cancelled before it
was sent is dropped; after that it runs to its end.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast.vocabulary.errors import ClosedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least
from holdfast.vocabulary.tasks import Notify, background_tasks

W = TypeVar("W")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBatchLimits:
    """Limits of one batch and of the queue. A single write is always accepted, whatever its size."""

    writes_max: int = 256
    bytes_max: int = 1 * MIB
    waiting_max: int = 100_000

    def __post_init__(self) -> None:
        check_at_least("writes_max", self.writes_max, 1)
        check_at_least("bytes_max", self.bytes_max, KIB)
        check_at_least("waiting_max", self.waiting_max, 1)


@dataclass(slots=True, eq=False)
class PendingWrite(Generic[W, R]):
    """One queued write and the future of its caller. `id` goes into `OutcomeUnknownError`."""

    id: str
    work: W
    bytes: int
    answer: "asyncio.Future[R]"


RunBatch = Callable[[Sequence[PendingWrite[W, R]]], Awaitable[Sequence[R | Exception]]]


class WriteBatcher(Generic[W, R]):
    """Passes queued writes to `run`, batch by batch, from its own task (see `running`).

    `run` returns one outcome per write, in order; an exception among them is raised to that write's caller alone. If `run`
    itself raises, every write of the batch fails with that exception; the next batch runs regardless.
    """

    def __init__(self, store: str, run: RunBatch[W, R], limits: WriteBatchLimits | None = None) -> None:
        self._store, self._run, self._limits = store, run, limits or WriteBatchLimits()
        self._waiting: deque[PendingWrite[W, R]] = deque()
        self._in_flight: list[PendingWrite[W, R]] = []
        self._arrived = Notify()
        self._closed = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run batches during the body. On exit, queued writes fail with `ClosedError` and the batch in flight finishes."""
        idle = Notify()
        try:
            async with background_tasks(self._serve(idle)):
                try:
                    yield
                finally:
                    self._closed = True
                    self._refuse_waiting()
                    while self._in_flight:
                        await idle.wait()
        finally:
            # Only a second cancellation leaves a batch here: it was sent, and its response will not be read.
            for write in self._in_flight:
                _fail(write, OutcomeUnknownError(write.id, f"{self._store} was closed while the commit was in flight"))

    async def submit(self, write_id: str, work: W, *, size_bytes: int = 0) -> R:
        """Queue one write and wait for its outcome. If cancelled before it is sent, it never is; afterwards it completes."""
        if self._closed:
            raise ClosedError(self._store)
        if len(self._waiting) >= self._limits.waiting_max:
            raise UnavailableError(self._store, f"write queue full: {len(self._waiting)} commits waiting")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(PendingWrite(write_id, work, size_bytes, answer))
        self._arrived.notify()
        return await answer

    async def _serve(self, idle: Notify) -> None:
        while True:
            self._in_flight = batch = self._take()
            if not batch:
                idle.notify()
                await self._arrived.wait()
                continue
            try:
                outcomes = await self._run(batch)
            except Exception as error:  # any error must reach the callers, and the next batch must run
                for write in batch:
                    _fail(write, error)
                continue
            for write, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    _fail(write, outcome)
                elif not write.answer.done():
                    write.answer.set_result(outcome)

    def _take(self) -> list[PendingWrite[W, R]]:
        batch: list[PendingWrite[W, R]] = []
        size_bytes = 0
        while self._waiting and len(batch) < self._limits.writes_max:
            write = self._waiting[0]
            if batch and size_bytes + write.bytes > self._limits.bytes_max:
                break
            self._waiting.popleft()
            if not write.answer.done():  # cancelled before it was sent
                size_bytes += write.bytes
                batch.append(write)
        return batch

    def _refuse_waiting(self) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), ClosedError(self._store))


def _fail(write: PendingWrite[W, R], error: Exception) -> None:
    if not write.answer.done():
        write.answer.set_exception(error)
