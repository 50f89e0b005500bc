"""One connection to the server, one request at a time.

The one rule: an error states whether the request was sent. `RequestNotSentError`: the server did not get it. `AnswerLostError`:
it may have. The driver's connections are used directly, because its client class retries a failed command by itself (its default
`Retry`), which a commit must never be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from holdfast.stores.errors import AnswerLostError
from holdfast.stores.redis.settings import RedisAddress

OnConnect = Callable[["RedisConnection"], Awaitable[None]]
Argument = bytes | str | int


class RequestNotSentError(Exception):
    """The request did not reach the server, or the server did nothing with it."""


class AccessDeniedError(RequestNotSentError):
    """The server refused the login: user, password or TLS are wrong."""


def pack(*arguments: Argument) -> bytes:
    """One command in the wire format."""
    return b"*%d\r\n" % len(arguments) + pack_arguments(arguments)


def pack_arguments(arguments: Iterable[Argument]) -> bytes:
    """Arguments of a command, without its header."""
    parts = []
    for argument in arguments:
        if not isinstance(argument, bytes):
            # A lone surrogate is not text, yet a key may be requested with one: it compares like any code point and is not found.
            argument = str(argument).encode("utf-8", "surrogatepass")
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)


def new_connection(address: RedisAddress, *, timeout_s: float) -> Any:
    """An unopened driver connection. Protocol 2: nothing is pushed between responses."""
    options: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": timeout_s,
        "socket_timeout": None,  # timeouts are set here: the driver's cost a task per write
        "socket_keepalive": True,
        "protocol": 2,
    }
    if not address.tls:
        return Connection(**options)
    return SSLConnection(
        **options, ssl_ca_certs=address.ca_file, ssl_certfile=address.cert_file, ssl_keyfile=address.key_file
    )


async def close_connection(connection: Any, *, at_once: bool) -> None:
    """Close in any state; `at_once` does not wait for the peer."""
    with suppress(OSError, RedisError):  # it is discarded anyway
        await connection.disconnect(nowait=at_once)


class RedisConnection:
    """Connects when first needed and again after a failure. One request at a time."""

    def __init__(self, address: RedisAddress, *, timeout_ms: float, on_connect: OnConnect | None = None) -> None:
        self._address, self._timeout_s, self._on_connect = address, timeout_ms / 1000, on_connect
        self._connection: Any = None

    async def execute(self, request: bytes, answers: int) -> list[Any]:
        """Send commands in one write and read one reply each; an error reply is returned as an exception.

        Raises `RequestNotSentError` or `AnswerLostError` within the timeout, and what `on_connect` raises.
        """
        sent = False
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._connection is None or _has_ended(self._connection):
                    await self._connect()
                sent = True
                return await self.exchange(request, answers)
        except BaseException as error:
            await self.drop()  # a late reply would be read as the next one's
            raise self._translate(error, sent=sent) from None

    async def exchange(self, request: bytes, answers: int) -> list[Any]:
        """`execute` once connected; for `on_connect`."""
        connection = self._connection
        await connection.send_packed_command(request, check_health=False)
        replies: list[Any] = []
        for _ in range(answers):
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies

    async def drop(self) -> None:
        """Drop the connection; the next request connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection, at_once=True)

    async def close(self) -> None:
        """Close gracefully."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection, at_once=False)

    async def _connect(self) -> None:
        await self.drop()
        self._connection = new_connection(self._address, timeout_s=self._timeout_s)
        await self._connection.connect()
        if self._on_connect is not None:
            await self._on_connect(self)

    def _translate(self, error: BaseException, *, sent: bool) -> BaseException:
        """The error of the request; one that is not about the connection is returned unchanged."""
        where = self._address.shown
        if isinstance(error, AuthenticationError):
            return AccessDeniedError(f"{where} refused the user or password: {error}")
        if isinstance(error, BusyLoadingError):
            return RequestNotSentError(f"{where} is still loading its data: {error}")
        kind = AnswerLostError if sent else RequestNotSentError
        if isinstance(error, TimeoutError):
            failed = "reply" if sent else "accept a connection"
            return kind(f"{where} did not {failed} within {self._timeout_s * 1000:.0f} ms")
        if isinstance(error, (OSError, RedisError)):
            return kind(
                f"the connection to {where} broke: {error}" if sent else f"could not connect to {where}: {error}"
            )
        return error


def _has_ended(connection: Any) -> bool:
    # The driver detects a closed connection only on use, and then a commit's outcome would be unknown. The stream
    # has the state earlier; the driver has no public method for it.
    reader, writer = connection._reader, connection._writer
    return reader is None or writer is None or writer.is_closing() or reader.at_eof()
