"""Batch: writes that go into one transaction, and the thread's side of doing them.

A batch waits for the write lock, does what its callers have not withdrawn, and commits. The one rule: between the lock and the
end of COMMIT nobody can take a write back, so that "it did not happen" is only ever said of writes that were never begun.
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

# SQLite's own wait for a lock backs off to 100 ms; a batch takes a fraction of a millisecond, so we look more often.
_LOOK_MS_MIN: Final = 0.3
_LOOK_MS_MAX: Final = 5.0
_NAME_HOLDER_AFTER_MS: Final = 50
_PRUNE_EVERY_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class WriteJob:
    """One write and who waits for it. Whether it is begun or withdrawn is decided once, by `BatchRunner`."""

    work: Callable[[Transaction], Any]
    commit_id: str
    size_bytes: int
    answer: "asyncio.Future[Any]"
    begun: bool = False
    withdrawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBatch:
    """What goes into one transaction. `floor` is the version the database must have reached already."""

    jobs: Sequence[WriteJob]
    floor: int
    collect: bool  # whether anybody wants to know what changed


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A batch that was committed; `results` are in the order of its jobs."""

    results: Sequence[Any]
    version: int
    committed: bool = False
    changed: Sequence[Changed] = ()
    opened_session: bool = False


class CommitFailedError(Exception):
    """COMMIT itself failed in a way that leaves open whether a crash now would find it done."""


@dataclass(slots=True, kw_only=True)
class BatchRunner:
    """Runs batches on the writer's thread. `ring` is called there after each COMMIT, with the locks free again."""

    connection: sqlite3.Connection
    lock: WriteLock
    files: DatabaseFiles
    incarnation: str
    boot_id: str
    clock: Clock
    random: Random
    settings: SqliteSettings
    notify: Callable[[BatchResult], None]
    waits_for: str = ""  # who holds the lock, when it takes long
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _pause: threading.Event = field(default_factory=threading.Event)
    _prune_at_ms: int = 0

    def withdraw(self, job: WriteJob) -> bool:
        """Take a write back, from any thread. False: it was begun."""
        with self._mutex:
            job.withdrawn = not job.begun
            return job.withdrawn

    def run(self, batch: WriteBatch) -> BatchResult:
        """Do the batch. An error means that nothing of it was done, except for `CommitFailedError`."""
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
        self.notify(done)
        return done

    def _begin(self, jobs: Sequence[WriteJob]) -> bool:
        """Take both locks. False: every caller gave up first."""
        look_ms, waited_ms = _LOOK_MS_MIN, 0.0
        while not self._try_begin():
            if all(job.withdrawn for job in jobs):
                return False
            if waited_ms >= _NAME_HOLDER_AFTER_MS and not self.waits_for:
                self.waits_for = f"{host.lock_holder(self.lock.path)} is writing, or stopped in the middle of it"
            pause_ms = self.random.jitter(look_ms, share=0.5)
            self._pause.wait(pause_ms / 1000)
            waited_ms += pause_ms
            look_ms = min(_LOOK_MS_MAX, look_ms * 1.5)
        self.waits_for = ""
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
        """Refuse to write to a database that is not the one that was opened, or no longer as far."""
        head, found = transaction.head, ""
        if head.version < floor:
            found = f"version went back from {floor} to {head.version}"
        elif head.incarnation != self.incarnation:
            found = f"incarnation changed from {self.incarnation} to {head.incarnation}"
        elif head.boot_id != self.boot_id:
            found = f"a host with another boot id ({head.boot_id}) uses it at the same time"
        if found:
            raise CorruptError(errors.database(self.files.path), found)
