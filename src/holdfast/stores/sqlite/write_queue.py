"""The queue of writes, on the event loop. Writes that arrive while a batch is in flight go into the next one.

First in, first out, one batch at a time. A write that times out before it began did not happen; a commit that had begun has an
unknown outcome, and its id finds it in the database. (`stores.batcher` queues in the same way with a task in between; with a local
file that task would cost as much as the transaction.)
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from holdfast.stores.sqlite.settings import SqliteSettings
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.worker_thread import WorkerThread
from holdfast.stores.sqlite.write_batch import BatchResult, BatchRunner, CommitFailedError, WriteBatch, WriteJob
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.errors import ClosedError, CorruptError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.tasks import Notify

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class WriteQueue:
    """Queues writes for `runner`. `watched` tells whether changes are wanted; `on_done` gets the result of each transaction."""

    runner: BatchRunner
    guard: VersionGuard
    worker: WorkerThread
    settings: SqliteSettings
    watched: Callable[[], bool]
    on_done: Callable[[BatchResult], None]
    _waiting: deque[WriteJob] = field(default_factory=deque)
    _in_flight: WriteBatch | None = None
    _idle: Notify = field(default_factory=Notify)
    _closed: bool = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept writes during the body. On exit, queued writes fail with `ClosedError` and the batch in flight finishes."""
        try:
            yield
        finally:
            self._closed = True
            while self._waiting:
                _fail(self._waiting.popleft(), ClosedError(self.guard.what))
            while self._in_flight is not None:
                await self._idle.wait()

    async def write(self, work: Callable[[Transaction], T], *, commit_id: str = "", size_bytes: int = 0) -> T:
        """Run `work` in a transaction. Only a write with a `commit_id` can have an unknown outcome; others may be repeated."""
        self.guard.check()
        if self._closed:
            raise ClosedError(self.guard.what)
        if len(self._waiting) >= self.settings.waiting_max:
            raise UnavailableError(self.guard.what, f"write queue full: {len(self._waiting)} writes waiting")
        loop = asyncio.get_running_loop()
        job = WriteJob(work, commit_id, size_bytes, loop.create_future())
        timeout = loop.call_later(self.settings.timeout_ms / 1000, self._time_out, job)
        self._waiting.append(job)
        if self._in_flight is None:
            self._start()
        try:
            return cast("T", await job.answer)
        except asyncio.CancelledError:
            self.runner.withdraw(job)
            raise
        finally:
            timeout.cancel()

    def _time_out(self, job: WriteJob) -> None:
        if job.answer.done():
            return
        within = f"within {self.settings.timeout_ms} ms"
        if self.runner.withdraw(job):
            blocked_by = self.runner.blocked_by or "earlier writes of this process are slow"
            _fail(job, UnavailableError(self.guard.what, f"write not begun {within}: {blocked_by}"))
        else:
            self._fail_unknown(job, f"{self.guard.what} did not finish the write {within}: the disk is slow or hangs")

    def _fail_unknown(self, job: WriteJob, reason: str) -> None:
        if job.answer.done():
            return
        if job.commit_id:
            _fail(job, OutcomeUnknownError(job.commit_id, reason))
        else:
            _fail(job, UnavailableError(self.guard.what, reason))

    def _start(self) -> None:
        """Post the next batch to the thread, if there is one."""
        jobs: list[WriteJob] = []
        size_bytes = 0
        while self._waiting and len(jobs) < self.settings.batch_writes_max:
            size_bytes += self._waiting[0].size_bytes
            if jobs and size_bytes > self.settings.batch_bytes_max:
                break
            job = self._waiting.popleft()
            if not job.withdrawn:
                jobs.append(job)
        if not jobs:
            self._idle.notify()
            return
        self._in_flight = batch = WriteBatch(jobs=jobs, floor=self.guard.version, collect=self.watched())
        self.worker.post(partial(self.runner.run, batch), self._finish)

    def _finish(self, done: BatchResult | None, error: Exception | None) -> None:
        """Resolve the callers of the finished batch, and start the next one."""
        batch, self._in_flight = self._in_flight, None
        assert batch is not None
        error = self._check_result(batch, done, error)
        for at, job in enumerate(batch.jobs):
            if isinstance(error, CommitFailedError):
                self._fail_unknown(job, str(error))
            elif error is not None or done is None:
                _fail(job, error or AssertionError("a batch has a result or an error"))
            elif not job.answer.done():
                job.answer.set_result(done.results[at])
        self._start()

    def _check_result(self, batch: WriteBatch, done: BatchResult | None, error: Exception | None) -> Exception | None:
        """The batch's error, if any. Evidence of a store that went backwards goes to the guard, which fails every call."""
        try:
            if done is not None:
                self.guard.observe(done.version, known_version=batch.floor)
                self.on_done(done)
            elif isinstance(error, CorruptError):
                self.guard.fail(error.found)
        except CorruptError as corrupt:
            return corrupt
        return error


def _fail(job: WriteJob, error: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)
