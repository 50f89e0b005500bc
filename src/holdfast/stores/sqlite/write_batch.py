"""A batch of writes in one transaction, and the writer thread's part of it.

A batch waits for the write lock, runs the jobs that were not withdrawn, and commits. The one rule: from the lock to the end of
COMMIT no write can be withdrawn, so only a write that never began is reported as not done.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.contracts.store import Changed
from holdfast.stores.sqlite import errors, host
from holdfast.stores.sqlite.database_files import DatabaseFiles, WriteLock
from holdfast.stores.sqlite.settings import SqliteSettings
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.random import Random

# SQLite's own wait for a lock backs off to 100 ms; a batch takes a fraction of a millisecond, so we poll more often.
_POLL_MS_MIN: Final = 0.3
_POLL_MS_MAX: Final = 5.0
_NAME_HOLDER_AFTER_MS: Final = 50
_PRUNE_EVERY_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class WriteJob:
    """One write and its caller's future. `BatchRunner` decides once whether it is begun or withdrawn."""

    work: Callable[[Transaction], Any]
    commit_id: str
    size_bytes: int
    answer: "asyncio.Future[Any]"
    begun: bool = False
    withdrawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBatch:
    """The jobs of one transaction. `floor` is the version that the database must have reached."""

    jobs: Sequence[WriteJob]
    floor: int
    collect: bool  # whether the changes are wanted


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A committed batch; `results` are in the order of its jobs."""

    results: Sequence[Any]
    version: int
    committed: bool = False
    changed: Sequence[Changed] = ()
    opened_session: bool = False


class CommitFailedError(Exception):
    """COMMIT failed, and crash recovery may or may not find it done."""


@dataclass(slots=True, kw_only=True)
class BatchRunner:
    """Runs batches on the writer's thread. `on_committed` is called there after each COMMIT, with the locks released."""

    connection: sqlite3.Connection
    lock: WriteLock
    files: DatabaseFiles
    incarnation: str
    boot_id: str
    clock: Clock
    random: Random
    settings: SqliteSettings
    on_committed: Callable[[BatchResult], None]
    blocked_by: str = ""  # the holder of the lock, after a long wait
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _pause: threading.Event = field(default_factory=threading.Event)
    _prune_at_ms: int = 0

    def withdraw(self, job: WriteJob) -> bool:
        """Withdraw a write, from any thread. False: it has begun."""
        with self._mutex:
            job.withdrawn = not job.begun
            return job.withdrawn

    def run(self, batch: WriteBatch) -> BatchResult:
        """Run the batch. An error other than `CommitFailedError` means that nothing was done."""
        self.files.check()
        try:
            if not self._begin(batch.jobs):
                return BatchResult([None] * len(batch.jobs), batch.floor)
            try:
                done = self._do(batch)
            finally:
                try:
                    self.connection.rollback()  # does nothing after a COMMIT
                finally:
                    self.lock.release()
        except sqlite3.Error as error:
            raise errors.to_store_error(error, self.files.path) from error
        self.on_committed(done)
        return done

    def _begin(self, jobs: Sequence[WriteJob]) -> bool:
        """Take both locks. False: every caller has withdrawn."""
        poll_ms, waited_ms = _POLL_MS_MIN, 0.0
        while not self._try_begin():
            if all(job.withdrawn for job in jobs):
                return False
            if waited_ms >= _NAME_HOLDER_AFTER_MS and not self.blocked_by:
                self.blocked_by = (
                    f"locked by {host.lock_holder(self.lock.path)}, which is writing or was paused while writing"
                )
            pause_ms = self.random.jitter(poll_ms, share=0.5)
            self._pause.wait(pause_ms / 1000)
            waited_ms += pause_ms
            poll_ms = min(_POLL_MS_MAX, poll_ms * 1.5)
        self.blocked_by = ""
        return True

    def _try_begin(self) -> bool:
        if not self.lock.try_take():
            return False
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            self.lock.release()
            if errors.primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            return False  # another program is writing
        return True

    def _do(self, batch: WriteBatch) -> BatchResult:
        with self._mutex:
            for job in batch.jobs:
                job.begun = not job.withdrawn
        transaction = Transaction(self.connection, now_ms=self.clock.boot_ms(), collect=batch.collect)
        self._check(transaction, batch.floor)
        transaction.reap()
        results = [job.work(transaction) if job.begun else None for job in batch.jobs]
        self._prune(transaction)
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            if errors.primary_code(error) == sqlite3.SQLITE_IOERR:
                raise CommitFailedError(f"{errors.database(self.files.path)}: {error}") from error
            raise
        return BatchResult(
            results, transaction.version, transaction.committed, transaction.changed, transaction.opened_session
        )

    def _prune(self, transaction: Transaction) -> None:
        kept = self.settings.commits_kept
        if transaction.is_long(kept) or transaction.now_ms >= self._prune_at_ms:
            transaction.prune(commits_kept=kept, ids_kept_ms=self.settings.commit_ids_kept_ms)
            self._prune_at_ms = transaction.now_ms + _PRUNE_EVERY_MS

    def _check(self, transaction: Transaction, floor: int) -> None:
        """Refuse a database that was replaced or went backwards since it was opened."""
        head, found = transaction.head, ""
        if head.version < floor:
            found = f"version went back from {floor} to {head.version}"
        elif head.incarnation != self.incarnation:
            found = f"incarnation changed from {self.incarnation} to {head.incarnation}"
        elif head.boot_id != self.boot_id:
            found = f"in use by another host (boot id {head.boot_id})"
        if found:
            raise CorruptError(errors.database(self.files.path), found)
