"""Listening: uvicorn on sockets that are bound already, in a loop that is somebody else's.

Connections wait in the sockets' backlog until the application is there; it is imported and built on a thread. uvicorn bounds little
by itself, so a connection here has a deadline for a request's head, for an unread answer and for being idle, and there are only so
many of them.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from holdfast.gateways.http.asgi import Application
from holdfast.gateways.http.backend import HttpBackend
from holdfast.vocabulary.import_lock import import_lock
from holdfast.vocabulary.sockets import listen
from holdfast.vocabulary.tasks import Notify, background_tasks

if TYPE_CHECKING:
    from holdfast.gateways.http.uvicorn_server import UvicornServer
    from holdfast.pipeline.service.service import PipelineService

_log: Final = logging.getLogger(__name__)

ApplicationFactory = Callable[[HttpBackend, "PipelineService"], Application]


class HttpServer:
    """The face of one node. Made by `serving_http`."""

    def __init__(
        self, backend: HttpBackend, sockets: Sequence[socket.socket], make: ApplicationFactory | None = None
    ) -> None:
        self.backend, self._make = backend, make
        self.listening = asyncio.Event()
        self._sockets = sockets
        self._stop, self._stopped = Notify(), asyncio.Event()
        self._inner: UvicornServer | None = None

    @property
    def accepting(self) -> bool:
        """Whether somebody who connects now is answered."""
        return self._inner is not None and self._inner.accepting

    async def run(self) -> None:
        """Build the application beside the loop, then answer until told to stop."""
        inner, pipelines = await asyncio.to_thread(_build, self.backend, self._make)
        self._inner = inner
        async with pipelines.running():
            await self._serve(inner)
        await asyncio.Event().wait()  # whoever runs us beside a body ends us with it

    async def _serve(self, inner: "UvicornServer") -> None:
        try:
            await inner.start(self._sockets)
            self.listening.set()
            while not await self._stop.wait_ms(self.backend.clock, 1_000):
                await inner.tick()
            await inner.drain()
        finally:
            inner.abort_connections()
            self._stopped.set()

    async def close_gracefully(self) -> None:
        """Accept nothing more, answer what is under way, then hang up."""
        if not self.listening.is_set():
            return
        self._stop.notify()
        await self._stopped.wait()


def _build(backend: HttpBackend, make: ApplicationFactory | None) -> "tuple[UvicornServer, PipelineService]":
    with import_lock:
        from holdfast.gateways.http.application import make_application
        from holdfast.gateways.http.uvicorn_server import UvicornServer

        pipelines = backend.open_pipelines()
        application = (make or make_application)(backend, pipelines)
    return UvicornServer(application, backend.settings, backend.counters), pipelines


@asynccontextmanager
async def serving_http(
    backend: HttpBackend, sockets: Sequence[socket.socket], *, make: ApplicationFactory | None = None
) -> AsyncIterator[HttpServer]:
    """Speak HTTP on the sockets for the body; leaving hangs up at once: call `close_gracefully` before.

    `make` builds what answers, on a thread; by default all routes.
    """
    listen(sockets)
    server = HttpServer(backend, sockets, make)
    async with background_tasks(server.run()):
        yield server
