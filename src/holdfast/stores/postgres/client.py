"""PostgresClient: queries to one PostgreSQL, retried when a connection breaks, never on a store that went backwards.

The one rule: what may run twice is retried (`query`); what may not (`query_once`) distinguishes "not sent", an
`UnavailableError`, from "sent, no response", an `AnswerLostError`. Network timeouts use real time, whatever clock is passed in.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

from holdfast.stores.errors import AnswerLostError
from holdfast.stores.postgres.connection_pool import (
    CONNECTION_ERRORS,
    ConnectionPool,
    describe_error,
    dial,
    is_answer,
    is_store_missing,
    may_retry,
)
from holdfast.stores.postgres.settings import PostgresSettings
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms

if TYPE_CHECKING:
    from holdfast.stores.postgres.connection_pool import Connection, Row

_TRIES_MAX: Final = 3
_IDENTITY: Final = "SELECT version, incarnation, pg_is_in_recovery() AS is_standby FROM {schema}.head"


class PostgresClient:
    """One PostgreSQL server, or the primary of several."""

    def __init__(
        self, url: str, settings: PostgresSettings, *, service: str, guard: VersionGuard, clock: Clock, random: Random
    ) -> None:
        self.guard = guard
        self.settings = settings
        self.service = service
        self._url, self._clock, self._random = url, clock, random
        self._identity = settings.sql(_IDENTITY)
        self.reads = ConnectionPool(self.connect, count_max=settings.connections_max)
        # Commits and keep-alives must not queue behind a long scan.
        self.commits = ConnectionPool(self.connect, count_max=1)
        self.renewals = ConnectionPool(self.connect, count_max=1)

    def close(self) -> None:
        """Drop every connection."""
        for connections in (self.reads, self.commits, self.renewals):
            connections.close()

    async def connect(self) -> "Connection":
        """A new connection, checked: after a break, another store may answer at the same address."""
        self.guard.check()
        connection = await dial(self._url, self.settings)
        try:
            await self.identify(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def identify(self, connection: "Connection") -> None:
        """Check that this is the same store, and not behind the versions already observed."""
        known_version = self.guard.check()
        row = await connection.fetchrow(self._identity)
        if row is None:
            self.fail_store_missing("its tables are empty")
        if row["is_standby"]:
            raise UnavailableError(self.service, "the server is a standby; put the primary, or all hosts, into the URL")
        self.guard.observe(row["version"], known_version=known_version, incarnation=row["incarnation"])

    def fail_store_missing(self, found: str) -> NoReturn:
        """The store's schema or tables are missing: stop every holder."""
        self.guard.fail(f"schema {self.settings.schema} is missing: {found}")

    async def query(self, sql: str, *args: object, via: ConnectionPool | None = None) -> "list[Row]":
        """Run a query that may run twice. `UnavailableError` after a few attempts or the timeout."""
        try:
            return await self._query(via or self.reads, sql, args, tries_max=_TRIES_MAX, once=False)
        except AnswerLostError as lost:
            raise self._unavailable(str(lost)) from lost

    async def query_one(self, sql: str, *args: object, via: ConnectionPool | None = None) -> "Row":
        """Call one of our functions: each returns one row with the store's version and incarnation."""
        known_version = self.guard.check()
        rows = await self.query(sql, *args, via=via)
        self.guard.observe(rows[0]["version"], known_version=known_version, incarnation=rows[0]["incarnation"])
        return rows[0]

    async def query_once(self, sql: str, *args: object, via: ConnectionPool) -> "list[Row]":
        """Run a query that must not run twice: retried only if the server reported a rollback."""
        return await self._query(via, sql, args, tries_max=_TRIES_MAX, once=True)

    async def _query(
        self, via: ConnectionPool, sql: str, args: tuple[object, ...], *, tries_max: int, once: bool
    ) -> "list[Row]":
        self.guard.check()
        tried: list[str] = []
        sent = False
        try:
            async with asyncio.timeout(self.settings.timeout_ms / 1000):
                while True:
                    sent = False
                    try:
                        async with via.use() as connection:
                            sent = True
                            return await connection.fetch(sql, *args)
                    except CONNECTION_ERRORS as error:
                        tried.append(describe_error(error))
                        if is_store_missing(error):
                            self.fail_store_missing(tried[-1])
                        if once and sent and not is_answer(error):
                            raise AnswerLostError(tried[-1]) from error
                        if len(tried) >= tries_max or not may_retry(error):
                            raise self._unavailable("; ".join(dict.fromkeys(tried))) from error
                    await self._clock.sleep_ms(backoff_ms(len(tried) - 1, base_ms=20, max_ms=500, random=self._random))
        except TimeoutError as error:
            tried.append(f"no answer within {self.settings.timeout_ms} ms")
            if once and sent:
                raise AnswerLostError(tried[-1]) from error
            raise self._unavailable("; ".join(dict.fromkeys(tried))) from error

    def _unavailable(self, tried: str) -> UnavailableError:
        return UnavailableError(self.service, f"{tried}; check that the server is running, reachable and the primary")
