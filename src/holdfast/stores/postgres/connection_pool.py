"""Connections: how they are made and pooled, and what an error on one means.

The one rule: a connection that failed is dropped, unless the server itself reported an ERROR: then the transaction was rolled back
and the connection is still good.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from holdfast.stores.postgres.settings import PostgresSettings
from holdfast.vocabulary.errors import ClosedError

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Row: TypeAlias = asyncpg.Record

Connect = Callable[[], Awaitable["Connection"]]

# What the driver raises when a server is unreachable, disconnects or refuses.
CONNECTION_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

_GONE: Final = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.NoDataFoundError,
)
_CONTENTION: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


def is_answer(error: BaseException) -> bool:
    """Whether the server reported ERROR: the statement was rolled back and the connection is still good."""
    if not isinstance(error, asyncpg.PostgresError):
        return False
    severity = getattr(error, "severity_en", None) or getattr(error, "severity", None)
    return severity == "ERROR"  # FATAL ends the connection, and may come after the commit


def may_retry(error: BaseException) -> bool:
    """Whether a retry may succeed: the connection broke, or there was contention."""
    return isinstance(error, _CONTENTION) or not is_answer(error)


def is_store_missing(error: BaseException) -> bool:
    """Whether a part of the store was removed: database, schema, tables, functions, or the one row of a table."""
    return isinstance(error, _GONE)


def describe_error(error: BaseException) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


async def dial(url: str, settings: PostgresSettings) -> "Connection":
    """A new connection with the session settings all our statements rely on."""
    session = {
        "application_name": "holdfast",
        # Each statement of a function must see what was committed before it took the head's lock.
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        # The server times out just before the client does: then nothing was done, and the client gets that as the error.
        "statement_timeout": str(settings.timeout_ms * 9 // 10),
        # Every statement has an index. A plan made while a table was small must not stay a sequential scan.
        "enable_seqscan": "off",
        "jit": "off",
    }
    connection: Connection = await asyncpg.connect(url, timeout=settings.timeout_ms / 1000, server_settings=session)
    return connection


class ConnectionPool:
    """At most `count_max` connections, made when needed, the last used first."""

    def __init__(self, connect: Connect, *, count_max: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(count_max)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._closed = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator["Connection"]:
        """A connection for the body alone. A connect error is raised before the body starts."""
        async with self._slots:
            connection = self._take_idle() or await self._new()
            try:
                yield connection
            except BaseException as error:
                if not is_answer(error):
                    self._open.discard(connection)
                    connection.terminate()
                raise
            finally:
                if connection in self._open:
                    self._idle.append(connection)

    def close(self) -> None:
        """Drop every connection, idle or in use."""
        self._closed = True
        for connection in self._open:
            connection.terminate()
        self._open.clear()
        self._idle.clear()

    async def _new(self) -> "Connection":
        connection = await self._connect()
        if self._closed:
            connection.terminate()
            raise ClosedError("PostgreSQL store")
        self._open.add(connection)
        return connection

    def _take_idle(self) -> "Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._open.discard(connection)
        return None
