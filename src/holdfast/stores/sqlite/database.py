"""The open database: what runs on the two threads before a store can be used, and after.

It owns the connections' lifetimes. A file that cannot be opened or would not be durable is refused here.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.contracts.store import StoreFacts
from holdfast.stores.sqlite import errors, host, schema
from holdfast.stores.sqlite.database_files import DatabaseFiles, WriteLock
from holdfast.stores.sqlite.notifier import CommitNotifier
from holdfast.stores.sqlite.settings import SqliteSettings
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.worker_thread import WorkerThread
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError, UsageError
from holdfast.vocabulary.random import Random, backoff_ms

_NOT_WRITABLE: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_FOREIGN_LOCK_WAIT_MS: Final = 20  # how long one BEGIN waits for another program


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDatabase:
    """A checked and migrated database with both its connections."""

    files: DatabaseFiles
    lock: WriteLock
    notifier: CommitNotifier
    writing: sqlite3.Connection
    reading: sqlite3.Connection
    writer_thread: WorkerThread
    reader_thread: WorkerThread
    boot_id: str
    version: int
    facts: StoreFacts


@dataclass(slots=True, kw_only=True)
class _DatabaseOpener:
    """The steps of opening. They run on the writer's thread unless noted."""

    path: Path
    clock: Clock
    random: Random
    settings: SqliteSettings
    connection_class: schema.ConnectionClass
    boot_id: str
    lock: WriteLock | None = None
    writing: sqlite3.Connection | None = None
    reading: sqlite3.Connection | None = None

    def take_lock(self) -> bool:
        try:
            if self.lock is None:
                schema.check_file_system(self.path)
                self.lock = WriteLock(self.path)
            return self.lock.try_take()
        except OSError as error:
            raise schema.not_writable(self.path, error) from None

    def prepare(self) -> tuple[int, str, tuple[str, ...]]:
        """With the lock: connect, check, migrate. Returns version, incarnation and notes."""
        assert self.lock is not None
        try:
            self.writing = schema.connect(
                self.path, connection_class=self.connection_class, timeout_ms=self.settings.timeout_ms
            )
            faults = schema.make_durable(self.writing, self.path)
            if faults and not self.settings.unsafe:
                raise UsageError(
                    f"{errors.database(self.path)} is not durable: {'; '.join(faults)}; use a local file system, "
                    "or open it with ?unsafe=1 at your own risk"
                )
            version, incarnation = self._migrate(self.writing)
            self.writing.execute(f"PRAGMA busy_timeout = {_FOREIGN_LOCK_WAIT_MS}")
            return version, incarnation, (*faults, *schema.notes(self.path))
        except sqlite3.Error as error:
            if errors.primary_code(error) in _NOT_WRITABLE:
                raise schema.not_writable(self.path, error) from None
            raise errors.to_store_error(error, self.path) from error
        finally:
            self.lock.release()

    def _migrate(self, connection: sqlite3.Connection) -> tuple[int, str]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            schema.migrate(connection, self.path, random=self.random)
            transaction = Transaction(connection, now_ms=self.clock.boot_ms())
            if transaction.head.boot_id != self.boot_id:
                transaction.end_former_boot(self.boot_id)
            connection.execute("COMMIT")
        finally:
            connection.rollback()
        return transaction.version, transaction.head.incarnation

    def connect_reader(self) -> None:
        """On the reader's thread."""
        try:
            self.reading = schema.connect(
                self.path, connection_class=self.connection_class, timeout_ms=self.settings.timeout_ms
            )
            self.reading.execute("PRAGMA query_only = 1")
            self.reading.execute("SELECT incarnation FROM head").fetchone()  # opens the log, which `files` needs
        except sqlite3.Error as error:
            raise errors.to_store_error(error, self.path) from error

    def disconnect_reader(self) -> None:
        """On the reader's thread."""
        if self.reading is not None:
            self.reading.close()

    def disconnect_writer(self) -> None:
        if self.writing is not None:
            self.writing.close()
        if self.lock is not None:
            self.lock.close()


@asynccontextmanager
async def open_database(
    path: Path, *, clock: Clock, random: Random, settings: SqliteSettings, connection_class: schema.ConnectionClass
) -> AsyncIterator[OpenDatabase]:
    """The database at `path` (a real path), created if missing, for the body."""
    async with (
        WorkerThread("holdfast-sqlite-write").running() as writer,
        WorkerThread("holdfast-sqlite-read").running() as reader,
    ):
        boot_id = await writer.call(host.boot_id) or "unknown"
        opening = _DatabaseOpener(
            path=path, clock=clock, random=random, settings=settings, connection_class=connection_class, boot_id=boot_id
        )
        notifier = CommitNotifier(path, random.token())
        try:
            await _lock(opening, writer)
            version, incarnation, notes = await writer.call(opening.prepare)
            await reader.call(opening.connect_reader)
            files = DatabaseFiles(path)
            await writer.call(files.remember)
            disabled = await writer.call(notifier.open)
            assert opening.lock is not None
            assert opening.writing is not None
            assert opening.reading is not None
            yield OpenDatabase(
                files=files,
                lock=opening.lock,
                notifier=notifier,
                writing=opening.writing,
                reading=opening.reading,
                writer_thread=writer,
                reader_thread=reader,
                boot_id=boot_id,
                version=version,
                facts=StoreFacts(
                    engine="sqlite",
                    server=f"SQLite {sqlite3.sqlite_version} on {path}",
                    durability="write-ahead log, synchronous=FULL: a commit is on disk before it is acknowledged",
                    incarnation=incarnation,
                    notes=(*notes, disabled) if disabled else notes,
                ),
            )
        finally:
            await writer.call(notifier.close)
            await reader.call(opening.disconnect_reader)
            await writer.call(opening.disconnect_writer)


async def _lock(opening: _DatabaseOpener, writer: WorkerThread) -> None:
    deadline_ms = opening.clock.boot_ms() + opening.settings.timeout_ms
    attempt = 0
    while not await writer.call(opening.take_lock):
        if opening.clock.boot_ms() >= deadline_ms:
            assert opening.lock is not None
            holder = await writer.call(partial(host.lock_holder, opening.lock.path))
            raise UnavailableError(
                errors.database(opening.path),
                f"locked for {opening.settings.timeout_ms} ms by {holder}, which is writing or was paused while writing",
            )
        await opening.clock.sleep_ms(backoff_ms(attempt, base_ms=1, max_ms=20, random=opening.random))
        attempt += 1
