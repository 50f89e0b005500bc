"""SqliteStore: the Store contract on one database file.

It connects the write queue, the reader, the feed and the notifier, and follows the change log for its watchers. The store's clock
is the host's boot clock, the same for all processes of one boot; sessions do not outlive a boot.
"""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.contracts.store import (
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Put,
    Requirement,
    Resync,
    Scan,
    Session,
)
from holdfast.contracts.validation import StoreLimits, check_commit, check_key, check_ttl
from holdfast.stores.change_feed import ChangeFeed, ChangeLogPage
from holdfast.stores.sqlite import errors
from holdfast.stores.sqlite.database import OpenDatabase, open_database
from holdfast.stores.sqlite.notifier import COMMITTED, SESSION_OPENED
from holdfast.stores.sqlite.schema import ConnectionClass
from holdfast.stores.sqlite.settings import SqliteSettings, parse_url
from holdfast.stores.sqlite.snapshot_reader import HeadSnapshot, SnapshotReader
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.write_batch import BatchResult, BatchRunner
from holdfast.stores.sqlite.write_queue import WriteQueue
from holdfast.stores.urls import StoreUrl
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, CorruptError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify, background_tasks

# Of many processes that find the same session overdue, the first reaps it; the others find nothing to do.
_REAP_SPREAD_MS: Final = 100


class SqliteStore:
    """One client of a database file. Reads run on the reader's thread, everything else on the writer's."""

    def __init__(
        self, database: OpenDatabase, *, clock: Clock, random: Random, settings: SqliteSettings, limits: StoreLimits
    ) -> None:
        self._clock, self._random, self._settings, self._limits = clock, random, settings, limits
        self.facts = database.facts
        self._name = errors.database(database.files.path)
        self._notifier = database.notifier
        self._feed = ChangeFeed(head=database.version)
        guard = VersionGuard(
            self._name,
            incarnation=database.facts.incarnation,
            version=database.version,
            on_fault=self._feed.end,
        )
        runner = BatchRunner(
            connection=database.writing,
            lock=database.lock,
            files=database.files,
            incarnation=database.facts.incarnation,
            boot_id=database.boot_id,
            clock=clock,
            random=random,
            settings=settings,
            on_committed=self._notify_others,
        )
        self._commit_ids = (f"{prefix}-{n:x}" for prefix in (random.token(),) for n in itertools.count())
        self._writer = WriteQueue(
            runner=runner,
            guard=guard,
            worker=database.writer_thread,
            settings=settings,
            watched=lambda: self._feed.watched,
            on_done=self._on_done,
        )
        self._reader = SnapshotReader(
            connection=database.reading,
            files=database.files,
            guard=guard,
            worker=database.reader_thread,
            clock=clock,
            random=random,
            settings=settings,
        )
        self._wake = Notify()
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: Path,
        *,
        clock: Clock,
        random: Random,
        settings: SqliteSettings | None = None,
        limits: StoreLimits | None = None,
        connection_class: ConnectionClass = sqlite3.Connection,
    ) -> AsyncIterator["SqliteStore"]:
        """Open the database at `path`, a real path. `connection_class` lets tests inject disk faults."""
        settings = settings or SqliteSettings()
        async with open_database(
            path, clock=clock, random=random, settings=settings, connection_class=connection_class
        ) as database:
            store = cls(database, clock=clock, random=random, settings=settings, limits=limits or StoreLimits())
            loop = asyncio.get_running_loop()
            loop.add_reader(database.notifier.listener, store._on_notification)
            try:
                async with store._writer.running(), background_tasks(store._follow()):
                    try:
                        yield store
                    finally:
                        store._closed = True
                        store._feed.end(ClosedError(store._name))
            finally:
                loop.remove_reader(database.notifier.listener)

    async def get(self, key: str) -> Entry | None:
        self._check_open()
        check_key(key, self._limits)
        return await self._reader.get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._check_open()
        return await self._reader.scan(start, end, limit, reverse)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._check_open()
        check_commit(require, apply, self._limits)
        commit_id = next(self._commit_ids)
        work = partial(Transaction.commit, commit_id=commit_id, require=tuple(require), apply=tuple(apply))
        # A commit that writes nothing may be repeated, so its outcome is never unknown.
        size_bytes = sum(len(operation.value) for operation in apply if type(operation) is Put)
        return await self._writer.write(work, commit_id=commit_id if apply else "", size_bytes=size_bytes)

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        self._check_open()
        check_key(commit_id, self._limits)
        return await self._writer.write(partial(Transaction.resolve, commit_id=commit_id))

    async def open_session(self, ttl_ms: int) -> Session:
        self._check_open()
        check_ttl(ttl_ms, self._limits)
        session_id = self._random.token()
        await self._writer.write(partial(Transaction.open_session, session_id=session_id, ttl_ms=ttl_ms))
        return Session(session_id, ttl_ms)

    async def keep_alive(self, session_id: str) -> bool:
        self._check_open()
        return await self._writer.write(partial(Transaction.keep_alive, session_id=session_id))

    async def close_session(self, session_id: str) -> None:
        self._check_open()
        await self._writer.write(partial(Transaction.close_session, session_id=session_id))

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        self._check_open()
        return self._watch(prefix, from_version)

    @asynccontextmanager
    async def _watch(self, prefix: str, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        self._wake.notify()  # the log is not read while there is no watcher
        async with self._feed.watch(prefix, from_version=from_version, read_log=self._read_log) as changes:
            yield changes

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(self._name)

    async def _read_log(self, after: int) -> ChangeLogPage:
        """For a watcher that is further behind than memory. Failures are retried: they do not end a watch."""
        for attempt in itertools.count():
            self._check_open()
            try:
                return (await self._reader.read_changes(after)).page
            except UnavailableError:
                await self._pause(attempt)
        raise AssertionError("counts for ever")

    async def _pause(self, attempt: int) -> None:
        await self._clock.sleep_ms(backoff_ms(attempt, base_ms=20, max_ms=1_000, random=self._random))

    # Following the log: a notification or the tick announces other processes' commits; ours are published directly.

    async def _follow(self) -> None:
        """Publish new commits, and reap overdue sessions when no commit does."""
        failures = 0
        while True:
            try:
                snapshot = await self._reader.read_changes(self._feed.head if self._feed.watched else None)
                if self._publish(snapshot):
                    continue
                if snapshot.head.due_ms is not None and snapshot.head.due_ms <= self._clock.boot_ms():
                    await self._writer.write(Transaction.reap)
                    continue
            except UnavailableError:
                await self._pause(failures)
                failures += 1
                continue
            except CorruptError:
                return  # the guard has failed every call and watcher
            failures = 0
            await self._wake.wait_ms(self._clock, self._next_poll_ms(snapshot))

    def _publish(self, snapshot: HeadSnapshot) -> bool:
        """Publish a snapshot's page; return whether there is more to read."""
        if not self._feed.watched:
            self._feed.restart_at(snapshot.head.version)  # a later watcher reads the log from its own version
            return False
        if self._feed.head < snapshot.page.gone_until:
            self._feed.restart_at(snapshot.page.gone_until)
            return True
        for commit in snapshot.page.commits:
            self._feed.publish(commit)
        return self._feed.head < snapshot.head.version

    def _next_poll_ms(self, snapshot: HeadSnapshot) -> float:
        tick_ms = self._random.jitter(self._settings.tick_ms)
        if snapshot.head.due_ms is None:
            return tick_ms
        spread_ms = self._random.jitter(_REAP_SPREAD_MS / 2, share=1)
        return min(tick_ms, max(0, snapshot.head.due_ms - self._clock.boot_ms()) + spread_ms)

    def _on_done(self, done: BatchResult) -> None:
        """Publish our own batch without reading the log, if no other commit came in between."""
        if done.opened_session:
            self._wake.notify()
        if not done.committed or not self._feed.watched:
            return
        if done.changed and done.changed[0].version == self._feed.head + 1:
            for commit in done.changed:
                self._feed.publish(commit)
        else:
            self._wake.notify()

    def _on_notification(self) -> None:
        received = self._notifier.drain()
        if self._feed.watched or SESSION_OPENED in received:
            self._wake.notify()

    def _notify_others(self, done: BatchResult) -> None:
        """On the writer's thread, after COMMIT."""
        if done.opened_session:
            self._notifier.notify(SESSION_OPENED)
        elif done.committed:
            self._notifier.notify(COMMITTED)


def open_url(url: StoreUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[SqliteStore]:
    """`sqlite:///relative.db` or `sqlite:////absolute.db`, with `SqliteSettings` as options."""
    path, settings = parse_url(url)
    return SqliteStore.open(path, clock=clock, random=random, settings=settings)
