"""Change log follower: reads commits from the server's change log and publishes them to watchers.

The one rule: pub/sub only triggers a read. So does a slow tick, in case a message was lost. Without watchers the log is not
read: the tick then checks the version alone, for the guard, and commits send this client no messages.
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
_QUIET_S: Final = 10.0  # after so long without a message the subscription is checked with PING


@dataclass(frozen=True, slots=True)
class _Page:
    head: int
    gone_until: int
    commits: tuple[Changed, ...]


class ChangeLogFollower:
    """Feeds the watchers of one open store."""

    def __init__(
        self,
        client: RedisClient,
        feed: ChangeFeed,
        guard: VersionGuard,
        layout: KeyLayout,
        settings: RedisSettings,
        *,
        clock: Clock,
        random: Random,
        on_due: Callable[[int], None],
    ) -> None:
        self._client, self._feed, self._guard = client, feed, guard
        self._layout, self._settings = layout, settings
        self._clock, self._random, self._on_due = clock, random, on_due
        self._notify = Notify()
        self._watchers = 0
        self._channels = [layout.due_channel]
        self._subscriber: Any = None  # the subscribed connection, while there is one

    @asynccontextmanager
    async def watch(self, prefix: str, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        """A watcher of the feed. The feed is filled as long as there is one."""
        if self._layout.commits_channel not in self._channels:
            await self._subscribe_to_commits()
        if self._watchers == 0:
            # Without watchers the feed stood still: it restarts at the known version; older commits are read from the log.
            self._feed.restart_at(self._guard.version)
            self._notify.notify()
        self._watchers += 1
        try:
            async with self._feed.watch(prefix, from_version=from_version, read_log=self._read_log) as commits:
                yield commits
        finally:
            self._watchers -= 1

    async def follow(self) -> None:
        """Read the log at each notification, through failures, until the guard stops the store."""
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
                return  # the guard has ended every watcher

    async def tick(self) -> None:
        """Read the log at intervals, in case a message was lost."""
        while True:
            await self._clock.sleep_ms(self._random.jitter(self._settings.tick_ms))
            self._notify.notify()

    async def listen(self, address: RedisAddress) -> None:
        """Hold a subscribed connection, through failures."""
        failures = 0
        while True:
            connection = new_connection(address, timeout_s=self._settings.timeout_ms / 1000)
            try:
                await connection.connect()
                self._subscriber = connection  # from here on `watch` adds its channel itself
                await connection.send_packed_command(pack("SUBSCRIBE", *self._channels), check_health=False)
                failures = 0
                await self._read_messages(connection)
            except (OSError, RedisError):
                pass  # the tick continues meanwhile
            finally:
                self._subscriber = None
                await close_connection(connection, at_once=True)
            await self._back_off(failures)
            failures += 1

    async def _subscribe_to_commits(self) -> None:
        self._channels.append(self._layout.commits_channel)
        if self._subscriber is not None:
            with suppress(OSError, RedisError):  # then the next connection subscribes to both
                await self._subscriber.send_packed_command(
                    pack("SUBSCRIBE", self._layout.commits_channel), check_health=False
                )

    async def _read_messages(self, connection: Any) -> None:
        pinged = False
        while True:
            message = await connection.read_response(timeout=_QUIET_S)
            if message is None:
                if pinged:
                    return
                await connection.send_packed_command(pack("PING"), check_health=False)
                pinged = True
                continue
            pinged = False
            if message[0] == b"subscribe":
                self._notify.notify()  # messages before the subscription were missed
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
        _, head, gone_until, due_in_ms, *entries = await self._client.read(command)
        self._on_due(due_in_ms)
        page = _Page(head, gone_until, tuple(unpack_commit(entry) for entry in entries))
        if commits_max and after >= gone_until:
            first = page.commits[0].version if page.commits else head + 1
            if first > after + 1:
                self._guard.fail(f"commits {after + 1} to {first - 1} are missing from the change log")
        return page

    async def _back_off(self, failures: int) -> None:
        await self._clock.sleep_ms(backoff_ms(failures, base_ms=20, max_ms=1_000, random=self._random))
