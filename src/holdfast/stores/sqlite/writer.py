"""Writer: batches of writes, each in one transaction on a thread of its own.

The one rule: a caller is told "nothing happened" only if that is sure. Until a batch has the write lock its callers may give up,
and their writes are left out; from then on a commit without an answer has an unknown outcome, and its id stays in the database.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from holdfast.contracts.store import Changed
from holdfast.stores.batching import Batcher, Pending
from holdfast.stores.guard import Guard
from holdfast.stores.sqlite import faults, host
from holdfast.stores.sqlite.files import DatabaseFiles, WriteLock
from holdfast.stores.sqlite.location import SqliteSettings
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.worker import Worker
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import CorruptError, OutcomeUnknownError, UnavailableError

T = TypeVar("T")
Work = Callable[[Transaction], Any]

# SQLite's own wait for a lock backs off to 100 ms; a batch takes a fraction of a millisecond, so we look more often.
_LOOK_MS_MIN: Final = 0.3
_LOOK_MS_MAX: Final = 5.0
_NAME_HOLDER_AFTER_MS: Final = 50
_FORGET_EVERY_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class Job:
    """One write. Whether it is begun or withdrawn is decided once, under the writer's mutex."""

    work: Work
    begun: bool = False
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction that was committed."""

    results: list[Any]
    version: int
    changed: Sequence[Changed] = ()
    opened_session: bool = False


class _CommitFailedError(Exception):
    """COMMIT itself failed in a way that leaves open whether a crash now would find it done."""


@dataclass(slots=True, kw_only=True)
class Writer:
    """Owns the writing connection. `on_done` hears of each transaction on the loop, `ring` on the thread."""

    connection: sqlite3.Connection
    lock: WriteLock
    files: DatabaseFiles
    guard: Guard
    boot_id: str
    worker: Worker
    clock: Clock
    chance: Chance
    settings: SqliteSettings
    on_done: Callable[[Done], None]
    ring: Callable[[Done], None]
    _batcher: Batcher[Job, Any] = field(init=False)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _pause: threading.Event = field(default_factory=threading.Event)
    _answered: list[str] = field(default_factory=list)
    _waits_for: str = ""
    _forget_at_ms: int = 0

    def __post_init__(self) -> None:
        self._batcher = Batcher(faults.database(self.path), self._run, self.settings.batch_limits())

    @property
    def path(self) -> Path:
        return self.files.path

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take writes during the body."""
        async with self._batcher.running():
            yield

    async def write(self, work: Callable[[Transaction], T], *, commit_id: str = "", size_bytes: int = 0) -> T:
        """Do `work` in a transaction. Only a write with a `commit_id` can have an unknown outcome; others may be repeated."""
        job = Job(work)
        try:
            async with asyncio.timeout(self.settings.timeout_ms / 1000):
                result = await self._batcher.submit(commit_id, job, size_bytes=size_bytes)
        except TimeoutError:
            raise self._timed_out(job, commit_id) from None
        except asyncio.CancelledError:
            self._withdraw(job)
            raise
        if commit_id:
            self._answered.append(commit_id)
        return cast("T", result)

    def _timed_out(self, job: Job, commit_id: str) -> UnavailableError | OutcomeUnknownError:
        within = f"within {self.settings.timeout_ms} ms"
        if self._withdraw(job):
            waits_for = self._waits_for or "earlier writes of this process are slow"
            return UnavailableError(faults.database(self.path), f"a write could not begin {within}: {waits_for}")
        if commit_id:
            return OutcomeUnknownError(commit_id, f"{faults.database(self.path)} did not finish the commit {within}")
        return UnavailableError(
            faults.database(self.path), f"a write was not finished {within}: the disk is slow or hangs"
        )

    def _withdraw(self, job: Job) -> bool:
        with self._mutex:
            job.withdrawn = not job.begun
            return job.withdrawn

    async def _run(self, batch: Sequence[Pending[Job, Any]]) -> Sequence[Any]:
        floor = self.guard.check()
        answered, self._answered = self._answered, []
        try:
            done = await self.worker.call(partial(self._transact, [write.work for write in batch], floor, answered))
        except CorruptError as error:
            self.guard.fail(error.found)
        except _CommitFailedError as error:
            return [self._failed(write.id, str(error)) for write in batch]
        self.guard.saw(done.version, asked_at=floor)
        self.on_done(done)
        return done.results

    def _failed(self, commit_id: str, reason: str) -> Exception:
        if commit_id:
            return OutcomeUnknownError(commit_id, reason)
        return UnavailableError(faults.database(self.path), reason)

    # Everything below runs on the worker's thread.

    def _transact(self, jobs: list[Job], floor: int, answered: list[str]) -> Done:
        self.files.check()
        try:
            if not self._begin(jobs):
                return Done([None] * len(jobs), floor)
            try:
                done = self._do(jobs, floor, answered)
            finally:
                try:
                    self.connection.rollback()  # does nothing after a COMMIT
                finally:
                    self.lock.release()
        except sqlite3.Error as error:
            raise faults.fault(error, self.path) from error
        self.ring(done)
        return done

    def _begin(self, jobs: list[Job]) -> bool:
        """Take both locks. False: every caller gave up first."""
        look_ms, waited_ms = _LOOK_MS_MIN, 0.0
        while not self._try_begin():
            if all(job.withdrawn for job in jobs):
                return False
            if waited_ms >= _NAME_HOLDER_AFTER_MS and not self._waits_for:
                self._waits_for = f"{host.lock_holder(self.lock.path)} is writing, or stopped in the middle of it"
            pause_ms = self.chance.jitter(look_ms, share=0.5)
            self._pause.wait(pause_ms / 1000)
            waited_ms += pause_ms
            look_ms = min(_LOOK_MS_MAX, look_ms * 1.5)
        self._waits_for = ""
        return True

    def _try_begin(self) -> bool:
        if not self.lock.try_take():
            return False
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            self.lock.release()
            if faults.primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            return False  # another program is writing
        return True

    def _do(self, jobs: list[Job], floor: int, answered: list[str]) -> Done:
        with self._mutex:
            for job in jobs:
                job.begun = not job.withdrawn
        transaction = Transaction(self.connection, self.path, now_ms=self.clock.boot_ms())
        self._check(transaction, floor)
        transaction.reap()
        results = [job.work(transaction) if job.begun else None for job in jobs]
        transaction.forget(answered)
        if transaction.now_ms >= self._forget_at_ms:
            self._forget_at_ms = transaction.now_ms + _FORGET_EVERY_MS
            transaction.forget_before(transaction.now_ms - self.settings.commit_ids_kept_ms)
        transaction.finish(commits_kept=self.settings.commits_kept)
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            if faults.primary_code(error) == sqlite3.SQLITE_IOERR:
                raise _CommitFailedError(f"{faults.database(self.path)}: {error}") from error
            raise
        return Done(results, transaction.version, transaction.changed, transaction.opened_session)

    def _check(self, transaction: Transaction, floor: int) -> None:
        """Refuse to write to a database that is not the one that was opened, or no longer as far."""
        found = ""
        if transaction.version < floor:
            found = f"version went back from {floor} to {transaction.version}"
        elif transaction.incarnation != self.guard.incarnation:
            found = f"incarnation changed from {self.guard.incarnation} to {transaction.incarnation}"
        elif transaction.boot_id != self.boot_id:
            found = f"a host with another boot id ({transaction.boot_id}) uses it at the same time"
        if found:
            raise CorruptError(faults.database(self.path), found)
