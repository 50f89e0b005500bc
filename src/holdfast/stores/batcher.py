"""Batching: writes that arrive while one batch is under way go together in the next.

It owns the queue and the order, nothing else: an engine says how a batch is run. The one rule: first in, first out, one batch
under way at a time, so a lone write waits for nobody and a busy store pays for its round trip and its fsync once per batch.
A caller that gives up neither stops the batch its write is in nor leaves a write behind that had not been sent.
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
    """How much one batch may carry, and how many writes may wait. A single write is always taken, whatever its size."""

    writes_max: int = 256
    bytes_max: int = 1 * MIB
    waiting_max: int = 100_000

    def __post_init__(self) -> None:
        check_at_least("writes_max", self.writes_max, 1)
        check_at_least("bytes_max", self.bytes_max, KIB)
        check_at_least("waiting_max", self.waiting_max, 1)


@dataclass(slots=True, eq=False)
class PendingWrite(Generic[W, R]):
    """One write on its way: what to do, and who waits for the answer. `id` is what `OutcomeUnknownError` would carry."""

    id: str
    work: W
    bytes: int
    answer: "asyncio.Future[R]"


RunBatch = Callable[[Sequence[PendingWrite[W, R]]], Awaitable[Sequence[R | Exception]]]


class WriteBatcher(Generic[W, R]):
    """Hands queued writes to `run`, batch by batch, from a task of its own (see `running`).

    `run` answers with one outcome per write, in order; an exception among them is raised to that write's caller alone. If
    `run` itself raises, every write of the batch gets that exception; the next batch is run all the same.
    """

    def __init__(self, what: str, run: RunBatch[W, R], limits: WriteBatchLimits | None = None) -> None:
        self._what, self._run, self._limits = what, run, limits or WriteBatchLimits()
        self._waiting: deque[PendingWrite[W, R]] = deque()
        self._under_way: list[PendingWrite[W, R]] = []
        self._arrived = Notify()
        self._closed = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve writes during the body. Leaving it refuses what still waits and lets the batch under way finish."""
        idle = Notify()
        try:
            async with background_tasks(self._serve(idle)):
                try:
                    yield
                finally:
                    self._closed = True
                    self._refuse_waiting()
                    while self._under_way:
                        await idle.wait()
        finally:
            # Only a second cancellation leaves a batch here: it was sent, and nobody will hear the answer.
            for write in self._under_way:
                _fail(write, OutcomeUnknownError(write.id, f"{self._what} was closed while the commit was under way"))

    async def submit(self, write_id: str, work: W, *, size_bytes: int = 0) -> R:
        """Queue one write and wait for its outcome. Cancelled before it was sent, it never is; afterwards it goes on."""
        if self._closed:
            raise ClosedError(self._what)
        if len(self._waiting) >= self._limits.waiting_max:
            raise UnavailableError(self._what, f"{len(self._waiting)} commits are waiting already; slow down")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(PendingWrite(write_id, work, size_bytes, answer))
        self._arrived.notify()
        return await answer

    async def _serve(self, idle: Notify) -> None:
        while True:
            self._under_way = batch = self._take()
            if not batch:
                idle.notify()
                await self._arrived.wait()
                continue
            try:
                outcomes = await self._run(batch)
            except Exception as error:  # whatever it is, the callers must hear it and the next batch must run
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
            if not write.answer.done():  # done before it was sent: its caller was cancelled
                size_bytes += write.bytes
                batch.append(write)
        return batch

    def _refuse_waiting(self) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), ClosedError(self._what))


def _fail(write: PendingWrite[W, R], error: Exception) -> None:
    if not write.answer.done():
        write.answer.set_exception(error)
