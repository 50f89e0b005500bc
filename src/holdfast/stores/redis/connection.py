"""One connection to the server, one request at a time.

The one rule: an error states whether the request was sent. `RequestNotSentError`: the server did not get it.
`RedisAnswerLostError`: it may have. The driver's connections are used directly, because its client class repeats a failed command
by itself (its default `Retry`), which a commit must never be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from holdfast.stores.redis.settings import RedisAddress

OnConnect = Callable[["RedisConnection"], Awaitable[None]]
Argument = bytes | str | int


class RequestNotSentError(Exception):
    """The request did not reach the server, or the server said that it did nothing with it."""


class RedisAnswerLostError(Exception):
    """The request was sent; its answer did not come."""


class AccessDeniedError(RequestNotSentError):
    """The server does not let us in: user, password or TLS are wrong."""


def pack(*arguments: Argument) -> bytes:
    """One command as the protocol writes it."""
    return b"*%d\r\n" % len(arguments) + pack_arguments(arguments)


def pack_arguments(arguments: Iterable[Argument]) -> bytes:
    """Arguments of a command whose header is written elsewhere."""
    parts = []
    for argument in arguments:
        if not isinstance(argument, bytes):
            # A lone surrogate is no text, yet it may be asked for; it then compares like any code point and is not found.
            argument = str(argument).encode("utf-8", "surrogatepass")
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)


def new_connection(address: RedisAddress, *, timeout_s: float) -> Any:
    """An unopened driver connection. Protocol 2: every answer is the answer to a request, nothing is pushed between them."""
    options: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": timeout_s,
        "socket_timeout": None,  # timeouts are ours: the driver's cost a task per write
        "socket_keepalive": True,
        "protocol": 2,
    }
    if not address.tls:
        return Connection(**options)
    return SSLConnection(
        **options, ssl_ca_certs=address.ca_file, ssl_certfile=address.cert_file, ssl_keyfile=address.key_file
    )


async def close_connection(connection: Any, *, at_once: bool) -> None:
    """Close whatever state it is in; `at_once` does not wait for the other side."""
    with suppress(OSError, RedisError):  # it is being thrown away
        await connection.disconnect(nowait=at_once)


class RedisConnection:
    """A connection that is made when first needed and made again after a break. Not for two requests at the same time."""

    def __init__(self, address: RedisAddress, *, timeout_ms: float, greet: OnConnect | None = None) -> None:
        self._address, self._timeout_s, self._greet = address, timeout_ms / 1000, greet
        self._connection: Any = None

    async def ask(self, request: bytes, answers: int) -> list[Any]:
        """Send commands in one write and read one answer each; an error answer is given back as an exception.

        Raises `RequestNotSentError` or `RedisAnswerLostError` within the timeout, and whatever the greeting raises.
        """
        sent = False
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._connection is None or _has_ended(self._connection):
                    await self._connect()
                sent = True
                return await self.exchange(request, answers)
        except BaseException as error:
            await self.drop()  # an answer may still come, and would be taken for the next one
            raise self._told(error, sent=sent) from None

    async def exchange(self, request: bytes, answers: int) -> list[Any]:
        """What `ask` does once connected; for greetings."""
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
        """Forget the connection; the next request makes a new one and greets the server again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection, at_once=True)

    async def close(self) -> None:
        """Close for good, properly."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection, at_once=False)

    async def _connect(self) -> None:
        await self.drop()
        self._connection = new_connection(self._address, timeout_s=self._timeout_s)
        await self._connection.connect()
        if self._greet is not None:
            await self._greet(self)

    def _told(self, error: BaseException, *, sent: bool) -> BaseException:
        """What an error means for the request; one that is not about the connection is left as it is."""
        where = self._address.shown
        if isinstance(error, AuthenticationError):
            return AccessDeniedError(f"{where} refused the user or password: {error}")
        if isinstance(error, BusyLoadingError):
            return RequestNotSentError(f"{where} is still loading its data: {error}")
        kind = RedisAnswerLostError if sent else RequestNotSentError
        if isinstance(error, TimeoutError):
            did = "answer" if sent else "let us connect"
            return kind(f"{where} did not {did} within {self._timeout_s * 1000:.0f} ms")
        if isinstance(error, (OSError, RedisError)):
            return kind(
                f"the connection to {where} broke: {error}" if sent else f"could not connect to {where}: {error}"
            )
        return error


def _has_ended(connection: Any) -> bool:
    # The driver notices a closed connection only when it is used, and then a commit's outcome would be unknown. The
    # stream knows beforehand; the driver has no public question for it.
    reader, writer = connection._reader, connection._writer
    return reader is None or writer is None or writer.is_closing() or reader.at_eof()
