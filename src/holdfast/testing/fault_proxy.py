"""A TCP proxy on loopback that loses, delays or refuses what a test selects."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal

from holdfast.vocabulary.clock import Clock

_CHUNK_BYTES: Final = 1 << 16


class _Link:
    """One connection. `opening`: the first bytes its client sent, by which a test can tell whose it is."""

    __slots__ = ("opening", "swallow")

    def __init__(self) -> None:
        self.opening = b""
        self.swallow = False


class FaultProxy:
    """Forwards one upstream address. Connections can be cut, refused, held, answered by itself, or cut at the request that
    mentions a marker."""

    def __init__(self, upstream_host: str, upstream_port: int, *, clock: Clock, answer_wait_ms: int = 300) -> None:
        self._upstream = (upstream_host, upstream_port)
        self._clock = clock
        self._answer_wait_ms = answer_wait_ms
        self._reachable = True
        self._lose_answer_to: bytes | None = None
        self._lose_request: bytes | None = None
        self._held: dict[Literal["requests", "answers"], set[bytes]] = {"requests": set(), "answers": set()}
        self._released = asyncio.Event()
        self._response: bytes | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._closed = False
        self.port = 0
        self.lost = 0  # how many requests or answers were lost, so that a test can see that it happened

    @classmethod
    @asynccontextmanager
    async def running(cls, upstream_host: str, upstream_port: int, *, clock: Clock) -> AsyncIterator["FaultProxy"]:
        """A proxy on a free port of 127.0.0.1."""
        proxy = cls(upstream_host, upstream_port, clock=clock)
        proxy._listen()
        try:
            yield proxy
        finally:
            proxy._closed = True
            await proxy.set_listening(False)

    def _listen(self) -> None:
        # By hand: a server of asyncio that is closed while it accepts leaves that connection open.
        self._listening = listening = socket.create_server(("127.0.0.1", self.port), backlog=100)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def lose_answer_to(self, marker: str) -> None:
        """Forward the next request that contains `marker`, drop its response for a while, then cut."""
        self._lose_answer_to = marker.encode()

    def lose_request(self, marker: str) -> None:
        """Cut the connection instead of forwarding the next request that holds `marker`."""
        self._lose_request = marker.encode()

    def hold(self, *, requests: bool = False, answers: bool = False, opening: str = "") -> None:
        """Forward nothing in these directions until `release`: a network that drops packets, and delivers them later.

        `opening`: only on connections whose first bytes mention it.
        """
        for direction, wanted in (("requests", requests), ("answers", answers)):
            if wanted:
                self._held[direction].add(opening.encode())  # type: ignore[index]

    def release(self) -> None:
        """Forward what was held."""
        for held in self._held.values():
            held.clear()
        released, self._released = self._released, asyncio.Event()
        released.set()

    def respond(self, response: bytes | None) -> None:
        """Answer every request with these bytes, and close; None: forward again."""
        self._response = response

    async def set_listening(self, listening: bool) -> None:
        """Whether there is anybody at the port: if not, connections are refused by the system, and present ones are cut."""
        if listening and self._listening is None:
            self._listen()
        elif not listening:
            if self._listening is not None:
                asyncio.get_running_loop().remove_reader(self._listening)
                self._listening.close()
                self._listening = None
            await self.cut()

    async def set_reachable(self, reachable: bool) -> None:
        """Refuse (accept and close at once) or serve new connections; refusing also cuts the present ones."""
        self._reachable = reachable
        if not reachable:
            await self.cut()

    async def cut(self) -> None:
        """Abort every connection."""
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # who connected is gone
            return
        connection.setblocking(False)
        if self._closed or not self._reachable:
            connection.close()
            return
        link = asyncio.ensure_future(self._serve(connection))
        self._links.add(link)
        # Not in the coroutine alone: one that is cancelled before its first step would leave it open.
        link.add_done_callback(lambda _: connection.close())
        link.add_done_callback(self._links.discard)

    async def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, asyncio.CancelledError):  # a broken connection is this class's trade
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                await self._link(reader, writer)
            finally:
                writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        link = _Link()
        pumps = [
            asyncio.ensure_future(self._requests(reader, up_writer, writer, link)),
            asyncio.ensure_future(self._answers(up_reader, writer, link)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_writer.transport.abort()  # before any await: a second cancellation must not skip it
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _until_released(self, direction: Literal["requests", "answers"], link: _Link) -> None:
        while any(marker in link.opening for marker in self._held[direction]):
            await self._released.wait()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter, link: _Link
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            link.opening = link.opening or chunk
            await self._until_released("requests", link)
            if self._response is not None:
                self.lost += 1
                back.write(self._response)
                await back.drain()
                back.close()
                await back.wait_closed()
                return
            if self._lose_request is not None and self._lose_request in chunk:
                self._lose_request = None
                self.lost += 1
                return
            losing = self._lose_answer_to is not None and self._lose_answer_to in chunk
            if losing:
                self._lose_answer_to = None
                self.lost += 1
                link.swallow = True
            writer.write(chunk)
            await writer.drain()
            if losing:
                await self._clock.sleep_ms(self._answer_wait_ms)
                return

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._until_released("answers", link)
            if not link.swallow:
                writer.write(chunk)
                with suppress(ConnectionError):
                    await writer.drain()
