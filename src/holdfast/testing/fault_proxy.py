"""A TCP proxy on loopback that loses what a test selects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from holdfast.vocabulary.clock import Clock

_CHUNK_BYTES: Final = 1 << 16


class FaultProxy:
    """Forwards one upstream address. Connections can be cut, refused, or cut at the request that mentions a marker."""

    def __init__(self, upstream_host: str, upstream_port: int, *, clock: Clock, answer_wait_ms: int = 300) -> None:
        self._upstream = (upstream_host, upstream_port)
        self._clock = clock
        self._answer_wait_ms = answer_wait_ms
        self._reachable = True
        self._lose_answer_to: bytes | None = None
        self._lose_request: bytes | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._closed = False
        self.port = 0
        self.lost = 0  # how many requests or answers were lost, so that a test can see that it happened

    @classmethod
    @asynccontextmanager
    async def running(cls, upstream_host: str, upstream_port: int, *, clock: Clock) -> AsyncIterator["FaultProxy"]:
        """A proxy on a free port of 127.0.0.1."""
        proxy = cls(upstream_host, upstream_port, clock=clock)
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            proxy._closed = True
            server.close()
            await proxy.cut()

    def lose_answer_to(self, marker: str) -> None:
        """Forward the next request that contains `marker`, drop its response for a while, then cut."""
        self._lose_answer_to = marker.encode()

    def lose_request(self, marker: str) -> None:
        """Cut the connection instead of forwarding the next request that holds `marker`."""
        self._lose_request = marker.encode()

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

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: one that is cancelled before its first step would leave its writer open.
        if self._closed or not self._reachable:
            writer.transport.abort()
            return
        link = asyncio.ensure_future(self._serve(reader, writer))
        self._links.add(link)
        link.add_done_callback(lambda _: writer.transport.abort())
        link.add_done_callback(self._links.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):  # a broken connection is this class's trade
            await self._link(reader, writer)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        swallow = asyncio.Event()
        pumps = [
            asyncio.ensure_future(self._requests(reader, up_writer, swallow)),
            asyncio.ensure_future(self._answers(up_reader, writer, swallow)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_writer.transport.abort()  # before any await: a second cancellation must not skip it
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, swallow: asyncio.Event
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if self._lose_request is not None and self._lose_request in chunk:
                self._lose_request = None
                self.lost += 1
                return
            losing = self._lose_answer_to is not None and self._lose_answer_to in chunk
            if losing:
                self._lose_answer_to = None
                self.lost += 1
                swallow.set()
            writer.write(chunk)
            await writer.drain()
            if losing:
                await self._clock.sleep_ms(self._answer_wait_ms)
                return

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, swallow: asyncio.Event
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if not swallow.is_set():
                writer.write(chunk)
                with suppress(ConnectionError):
                    await writer.drain()
