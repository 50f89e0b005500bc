"""Pump: brings commits from the server's change log to watchers.

The one rule: pub/sub is a doorbell, never the log. A ring says "look"; so does a slow tick, in case a ring was lost. Without
watchers the log is not read at all: the tick then only looks at the version, for the guard, and commits ring no bell here.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError

from holdfast.contracts.store import Changed, Resync
from holdfast.stores.change_feed import ChangeFeed, ChangeLogPage
from holdfast.stores.redis.client import RedisClient
from holdfast.stores.redis.connection import close_connection, new_connection, pack
from holdfast.stores.redis.key_layout import LOG, KeyLayout, unpack_commit
from holdfast.stores.redis.settings import RedisAddress, RedisSettings
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

_PAGE_COMMITS: Final = 1_000
_QUIET_S: Final = 10.0  # a doorbell that says nothing for so long is asked whether it still works


@dataclass(frozen=True, slots=True)
class _Page:
    head: int
    gone_until: int
    commits: tuple[Changed, ...]


class ChangeLogFollower:
    """Feeds the watchers of one open store."""

    def __init__(
        self,
        traffic: RedisClient,
        feed: ChangeFeed,
        guard: VersionGuard,
        layout: KeyLayout,
        settings: RedisSettings,
        *,
        clock: Clock,
        random: Random,
        on_due: Callable[[int], None],
    ) -> None:
        self._traffic, self._feed, self._guard = traffic, feed, guard
        self._layout, self._settings = layout, settings
        self._clock, self._random, self._on_due = clock, random, on_due
        self._notify = Notify()
        self._watchers = 0
        self._channels = [layout.due]
        self._ear: Any = None  # the connection that hears the doorbells, while there is one

    @asynccontextmanager
    async def watch(self, prefix: str, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        """A watcher of the feed, which is filled as long as there is one."""
        if self._layout.bell not in self._channels:
            await self._hear_commits()
        if self._watchers == 0:
            # Nobody kept the feed going; it begins again at what is known, and the log itself tells what came before.
            self._feed.restart_at(self._guard.version)
            self._notify.notify()
        self._watchers += 1
        try:
            async with self._feed.watch(prefix, from_version=from_version, read_log=self._read_log) as commits:
                yield commits
        finally:
            self._watchers -= 1

    async def follow(self) -> None:
        """Read the log at each ring, through breaks, until the guard stops the store."""
        failures = 0
        while True:
            await self._notify.wait()
            try:
                await self._catch_up()
                failures = 0
            except UnavailableError:
                await self._back_off(failures)
                failures += 1
                self._notify.notify()
            except CorruptError:
                return  # the guard has told every watcher

    async def tick(self) -> None:
        """Ring now and then, in case a ring was lost."""
        while True:
            await self._clock.sleep_ms(self._random.jitter(self._settings.tick_ms))
            self._notify.notify()

    async def listen(self, address: RedisAddress) -> None:
        """Hold a connection that hears the doorbells, through breaks."""
        failures = 0
        while True:
            connection = new_connection(address, timeout_s=self._settings.timeout_ms / 1000)
            try:
                await connection.connect()
                self._ear = connection  # from here on `watch` adds its channel itself
                await connection.send_packed_command(pack("SUBSCRIBE", *self._channels), check_health=False)
                failures = 0
                await self._hear(connection)
            except (OSError, RedisError):
                pass  # the tick goes on meanwhile
            finally:
                self._ear = None
                await close_connection(connection, at_once=True)
            await self._back_off(failures)
            failures += 1

    async def _hear_commits(self) -> None:
        self._channels.append(self._layout.bell)
        if self._ear is not None:
            with suppress(OSError, RedisError):  # then the next connection subscribes to both
                await self._ear.send_packed_command(pack("SUBSCRIBE", self._layout.bell), check_health=False)

    async def _hear(self, connection: Any) -> None:
        asked = False
        while True:
            message = await connection.read_response(timeout=_QUIET_S)
            if message is None:
                if asked:
                    return
                await connection.send_packed_command(pack("PING"), check_health=False)
                asked = True
                continue
            asked = False
            if message[0] == b"subscribe":
                self._notify.notify()  # whatever was said while nobody listened
            elif message[0] == b"message" and message[1].endswith(b":due"):
                self._on_due(int(message[2]))
            elif message[0] == b"message" and self._watchers and int(message[2]) > self._feed.head:
                self._notify.notify()

    async def _catch_up(self) -> None:
        if not self._watchers:
            await self._read_page(0, commits_max=0)
            return
        while True:
            page = await self._read_page(self._feed.head)
            if page.gone_until > self._feed.head:
                self._feed.restart_at(page.gone_until)
                continue
            for commit in page.commits:
                self._feed.publish(commit)
            if self._feed.head >= page.head:
                return

    async def _read_log(self, after: int) -> ChangeLogPage:
        failures = 0
        while True:
            try:
                page = await self._read_page(after)
                return ChangeLogPage(page.commits, page.gone_until)
            except UnavailableError:
                await self._back_off(failures)
                failures += 1

    async def _read_page(self, after: int, *, commits_max: int = _PAGE_COMMITS) -> _Page:
        layout = self._layout
        command = LOG.call(
            (layout.meta, layout.log, layout.sessions), after, commits_max, self._settings.page_bytes_max
        )
        _, head, gone_until, due_in_ms, *entries = await self._traffic.read(command)
        self._on_due(due_in_ms)
        page = _Page(head, gone_until, tuple(unpack_commit(entry) for entry in entries))
        if commits_max and after >= gone_until:
            first = page.commits[0].version if page.commits else head + 1
            if first > after + 1:
                self._guard.fail(f"the change log lacks commits {after + 1} to {first - 1}")
        return page

    async def _back_off(self, failures: int) -> None:
        await self._clock.sleep_ms(backoff_ms(failures, base_ms=20, max_ms=1_000, random=self._random))
