"""Background tasks of an open store: follow the change log, end overdue sessions, prune.

Each runs until the store is closed or found to have gone backwards; then every call fails.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from holdfast.stores.change_feed import ChangeFeed
from holdfast.stores.postgres.change_log import read_page
from holdfast.stores.postgres.client import PostgresClient
from holdfast.stores.postgres.connection_pool import CONNECTION_ERRORS, is_store_missing
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

if TYPE_CHECKING:
    from holdfast.stores.postgres.connection_pool import Connection

_REAP: Final = "SELECT * FROM {schema}.reap()"
_PRUNE: Final = "SELECT {schema}.prune($1, $2, $3) AS more"
_PRUNE_ROWS_MAX: Final = 5_000
_REAP_JITTER_MS: Final = 60  # half of the window over which processes spread one reaping


class PostgresBackgroundTasks:
    """The tasks of one open store."""

    def __init__(self, client: PostgresClient, feed: ChangeFeed, *, clock: Clock, random: Random) -> None:
        self._client, self._feed, self._clock, self._random = client, feed, clock, random
        self._changed = Notify()
        self._due = Notify()

    async def follow_log(self) -> None:
        """Publish commits to the feed while there are watchers: at each notification, and at a slow tick in case one is lost."""
        attempt = 0
        while self._client.guard.fault is None:
            try:
                async with self._listening() as connection:
                    watched = False
                    while True:
                        if watched != self._feed.watched:
                            watched = not watched
                            await self._set_listening(connection, watched)
                        if watched:
                            await self._read_all(connection)
                        else:
                            await self._check_head(connection)
                        attempt = 0
                        await self._changed.wait_ms(self._clock, self._random.jitter(self._client.settings.tick_ms))
            except CorruptError:
                return
            except (*CONNECTION_ERRORS, UnavailableError) as error:
                if is_store_missing(error):
                    self._stop(str(error))
                    return
            await self._clock.sleep_ms(backoff_ms(attempt, base_ms=20, max_ms=2_000, random=self._random))
            attempt += 1

    async def reap_when_due(self) -> None:
        """End overdue sessions when no commit does. Sleeps until the next deadline; a new, shorter one wakes it."""
        attempt = 0
        sql = self._client.settings.sql(_REAP)
        while True:
            pause_ms = float(self._client.settings.tick_ms)
            try:
                row = await self._client.query_one(sql)
                if row["next_due_ms"] is not None:
                    # A random delay, so that one process reaps and the others find it done.
                    pause_ms = min(pause_ms, row["next_due_ms"] + self._random.jitter(_REAP_JITTER_MS, share=0.9))
                attempt = 0
            except CorruptError:
                return
            except UnavailableError:
                pause_ms = backoff_ms(attempt, base_ms=50, max_ms=pause_ms, random=self._random)
                attempt += 1
            await self._due.wait_ms(self._clock, pause_ms)

    async def prune(self) -> None:
        """Prune the change log and expired commit ids, in small steps."""
        settings = self._client.settings
        sql = settings.sql(_PRUNE)
        while True:
            await self._clock.sleep_ms(self._random.jitter(settings.prune_every_ms, share=0.5))
            try:
                while (
                    await self._client.query(
                        sql, settings.log_commits_kept, settings.commit_ids_kept_ms, _PRUNE_ROWS_MAX
                    )
                )[0]["more"]:
                    pass
            except CorruptError:
                return
            except UnavailableError:
                pass  # next time

    def wake(self) -> None:
        """Read the log now: a watcher was added."""
        self._changed.notify()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator["Connection"]:
        async with self._timeout():
            connection = await self._client.connect()
        try:
            connection.add_termination_listener(lambda _: self._changed.notify())
            async with self._timeout():
                await connection.add_listener(f"{self._client.settings.channel}_due", self._on_due)
            self._due.notify()  # notifications before LISTEN were missed
            yield connection
        finally:
            connection.terminate()

    async def _set_listening(self, connection: "Connection", listening: bool) -> None:
        # Without watchers, commits of other processes do not wake this one.
        change = connection.add_listener if listening else connection.remove_listener
        async with self._timeout():
            await change(self._client.settings.channel, self._on_commit)
        if listening:
            # The log is not read without watchers. Older commits are read from the log; the feed starts here.
            self._feed.restart_at(max(self._feed.head, self._client.guard.version))

    def _on_commit(self, *_: object) -> None:
        self._changed.notify()

    def _on_due(self, *_: object) -> None:
        self._due.notify()

    def _timeout(self) -> asyncio.Timeout:
        return asyncio.timeout(self._client.settings.timeout_ms / 1000)

    async def _check_head(self, connection: "Connection") -> None:
        async with self._timeout():
            await self._client.identify(connection)

    async def _read_all(self, connection: "Connection") -> None:
        feed = self._feed
        while True:
            async with self._timeout():
                page, head = await read_page(self._client, feed.head, connection)
            if page.gone_until > feed.head:
                feed.restart_at(page.gone_until)
                continue
            for commit in page.commits:
                feed.publish(commit)
            if feed.head >= head:
                return

    def _stop(self, found: str) -> None:
        with suppress(CorruptError):  # the guard fails every watcher and call
            self._client.fail_store_missing(found)
