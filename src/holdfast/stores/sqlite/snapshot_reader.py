"""Snapshots of the database, on their own thread and connection, so that reads never wait for writes."""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

from holdfast.contracts.store import Change, Changed, Entry, Scan
from holdfast.stores.change_feed import ChangeLogPage
from holdfast.stores.sqlite import errors
from holdfast.stores.sqlite.database_files import DatabaseFiles
from holdfast.stores.sqlite.settings import SqliteSettings
from holdfast.stores.sqlite.transaction import Head, read_head
from holdfast.stores.sqlite.worker_thread import WorkerThread
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms

T = TypeVar("T")

PAGE_VERSIONS: Final = 500
_key: Final = itemgetter(1)  # empty for a commit that changed nothing
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class HeadSnapshot:
    """The head of the store and, on request, recent commits."""

    head: Head
    page: ChangeLogPage


@dataclass(slots=True, kw_only=True)
class SnapshotReader:
    """Owns the reading connection."""

    connection: sqlite3.Connection
    files: DatabaseFiles
    guard: VersionGuard
    worker: WorkerThread
    clock: Clock
    random: Random
    settings: SqliteSettings

    async def get(self, key: str) -> Entry | None:
        """The key as the latest commit left it."""
        return await self._read(partial(_get, self.connection, key))

    async def scan(self, start: str, end: str, limit: int | None, reverse: bool) -> Scan:
        """A range at one version."""
        known_version = self.guard.check()
        found = await self._read(partial(_scan, self.connection, start, end, limit, reverse))
        self.guard.observe(found.version, known_version=known_version)
        return found

    async def read_changes(self, after: int | None) -> HeadSnapshot:
        """The head, with the first page of commits after a version (None: without)."""
        known_version = self.guard.check()
        snapshot = await self._read(partial(_read_changes, self.connection, after))
        self.guard.observe(snapshot.head.version, known_version=known_version, incarnation=snapshot.head.incarnation)
        return snapshot

    async def _read(self, work: Callable[[], T]) -> T:
        """Read, retrying a failed disk or lock within the timeout of one operation."""
        self.guard.check()
        try:
            async with asyncio.timeout(self.settings.timeout_ms / 1000):
                for attempt in range(_TRIES):
                    try:
                        return await self.worker.call(partial(self._run, work))
                    except UnavailableError:
                        if attempt == _TRIES - 1:
                            raise
                    await self.clock.sleep_ms(backoff_ms(attempt, base_ms=5, max_ms=50, random=self.random))
                raise AssertionError("the last try returns or raises")
        except TimeoutError:
            reason = f"read not finished within {self.settings.timeout_ms} ms: the disk is slow or hangs"
            raise UnavailableError(errors.database(self.files.path), reason) from None
        except CorruptError as error:
            self.guard.fail(error.found)

    def _run(self, work: Callable[[], T]) -> T:
        self.files.check()
        try:
            return work()
        except sqlite3.Error as error:
            raise errors.to_store_error(error, self.files.path) from error
        finally:
            self.connection.rollback()  # ends the snapshot, if there is one


def _get(connection: sqlite3.Connection, key: str) -> Entry | None:
    row = connection.execute("SELECT key, value, version, session FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else _entry(row)


def _scan(connection: sqlite3.Connection, start: str, end: str, limit: int | None, reverse: bool) -> Scan:
    connection.execute("BEGIN")
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM changes").fetchone()
    order = "DESC" if reverse else "ASC"
    rows = connection.execute(
        f"SELECT key, value, version, session FROM entries WHERE key >= ? AND key < ? ORDER BY key {order} LIMIT ?",  # noqa: S608
        (start, end, -1 if limit is None else limit + 1),
    ).fetchall()
    more = limit is not None and len(rows) > limit
    return Scan(version, tuple(map(_entry, rows[:limit])), more)


def _read_changes(connection: sqlite3.Connection, after: int | None) -> HeadSnapshot:
    connection.execute("BEGIN")
    head = read_head(connection)
    if after is None or after >= head.version:
        return HeadSnapshot(head, ChangeLogPage((), head.gone_until))
    until = min(head.version, after + PAGE_VERSIONS)
    rows = connection.execute(
        "SELECT version, key, value, session FROM changes WHERE version > ? AND version <= ? ORDER BY version, key",
        (after, until),
    ).fetchall()
    commits = (Changed(at, tuple(map(_change, filter(_key, group)))) for at, group in groupby(rows, key=itemgetter(0)))
    return HeadSnapshot(head, ChangeLogPage(tuple(commits), head.gone_until))


def _entry(row: tuple[str, str, int, str | None]) -> Entry:
    return Entry(row[0], row[1].encode(), row[2], row[3])


def _change(row: tuple[int, str, str | None, str | None]) -> Change:
    version, key, value, session = row
    return Change(key, None if value is None else Entry(key, value.encode(), version, session))
