"""Connections to the text ports of other nodes, for requests that are forwarded.

The one rule: one request at a time on a connection, so that nobody waits for somebody else's. Idle connections are kept and used
again. Failing before the request was sent is an `UnavailableError`; afterwards what became of the request is unknown. A node that
is frozen, or gone without a word, holds nobody up for longer than `request_ms`.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import Final

from holdfast.gateways.text.errors import OK, LostAnswerError
from holdfast.gateways.text.frames import encode_frames
from holdfast.gateways.text.requests import FORWARDED
from holdfast.gateways.text.settings import TextSettings
from holdfast.security.tls import CurrentContext
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.host_port import split_host_port
from holdfast.vocabulary.settings import MIB

_LENGTH: Final = Struct("<I")
_REPLY_BYTES_MAX: Final = 128 * MIB  # a record and its batch are far smaller
_STREAM_BYTES: Final = 256 * 1024


class NodeConnection:
    """One connection to another node."""

    def __init__(
        self,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        node: int,
        request_ms: int,
    ) -> None:
        self.address, self._request_ms = address, request_ms
        self._reader, self._writer = reader, writer
        self._prefix = f"{FORWARDED} {node} ".encode()
        self.broken = False

    @property
    def usable(self) -> bool:
        """Whether the next request may be sent on it."""
        return not self.broken and not self._writer.is_closing() and not self._reader.at_eof()

    async def ask(self, request: bytes) -> bytes:
        """Forward a request; the answer. `LostAnswerError`: it did not come in time, or the connection was lost before."""
        return await self._answered(self._prefix + request)

    async def log_in(self, token: str) -> bytes:
        """The answer to AUTH."""
        return await self._answered(b"AUTH " + token.encode())

    async def _answered(self, request: bytes) -> bytes:
        try:
            async with asyncio.timeout(self._request_ms / 1000):
                return await self._exchange(request)
        except TimeoutError:
            self.close()
            raise LostAnswerError(f"no answer from {self.address} in {self._request_ms} ms") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise LostAnswerError(
                f"the connection to {self.address} was lost: {error or type(error).__name__}"
            ) from None
        except BaseException:  # cancelled: its answer would be taken for that of the next request
            self.close()
            raise

    async def _exchange(self, request: bytes) -> bytes:
        self._writer.write(encode_frames((request,)))
        await self._writer.drain()
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if length > _REPLY_BYTES_MAX:
            raise ConnectionError(f"an answer of {length} bytes")
        return await self._reader.readexactly(length)

    def close(self) -> None:
        """Use it no more."""
        self.broken = True
        with suppress(RuntimeError):  # the loop may be closed
            self._writer.transport.abort()


class NodeConnections:
    """The connections of one gateway to all others."""

    def __init__(self, settings: TextSettings, *, node: int, token: str = "") -> None:
        self._settings, self._node, self._token = settings, node, token
        self.tls: CurrentContext | None = None
        self._idle: dict[str, list[NodeConnection]] = defaultdict(list)
        self._open: set[NodeConnection] = set()
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def acquire(self, address: str) -> NodeConnection:
        """A connection of one's own, until `release`. `UnavailableError`: the node cannot be reached."""
        slots = self._slots.setdefault(address, asyncio.Semaphore(self._settings.forward_connections_max))
        request_ms = self._settings.request_ms
        try:
            async with asyncio.timeout(request_ms / 1000):
                await slots.acquire()
        except TimeoutError:
            raise UnavailableError(f"node at {address}", f"no connection was free in {request_ms} ms") from None
        try:
            idle = self._idle[address]
            while idle:
                connection = idle.pop()
                if connection.usable:
                    return connection
                self._discard(connection)
            return await self._connect(address)
        except BaseException:
            slots.release()
            raise

    def release(self, connection: NodeConnection) -> None:
        """Give it back, to be used again unless it is broken."""
        if connection.usable:
            self._idle[connection.address].append(connection)
        else:
            self._discard(connection)
        self._slots[connection.address].release()

    @asynccontextmanager
    async def connection(self, address: str) -> AsyncIterator[NodeConnection]:
        """A connection for the body."""
        connection = await self.acquire(address)
        try:
            yield connection
        finally:
            self.release(connection)

    async def _connect(self, address: str) -> NodeConnection:
        found = split_host_port(address)
        if found is None or found.port is None:
            raise UnavailableError(f"node at {address}", "its text address is invalid")
        tls = None if self.tls is None else self.tls.context
        try:
            async with asyncio.timeout(self._settings.connect_ms / 1000):
                reader, writer = await asyncio.open_connection(found.host, found.port, limit=_STREAM_BYTES, ssl=tls)
        except TimeoutError:
            raise UnavailableError(f"node at {address}", f"not reached in {self._settings.connect_ms} ms") from None
        except OSError as error:
            raise UnavailableError(f"node at {address}", str(error)) from None
        connection = NodeConnection(address, reader, writer, node=self._node, request_ms=self._settings.request_ms)
        self._open.add(connection)
        if self._token:
            await self._log_in(connection)
        return connection

    async def _log_in(self, connection: NodeConnection) -> None:
        """Prove to another node that this is one. Nothing was forwarded yet, so failing is `UnavailableError`."""
        try:
            answer = await connection.log_in(self._token)
        except BaseException as error:
            self._discard(connection)
            if isinstance(error, LostAnswerError):
                raise UnavailableError(f"node at {connection.address}", str(error)) from None
            raise
        if answer != OK:
            self._discard(connection)
            raise UnavailableError(f"node at {connection.address}", "it refuses this node's login")

    def _discard(self, connection: NodeConnection) -> None:
        self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Close all of them."""
        for connection in list(self._open):
            self._discard(connection)
        self._idle.clear()
