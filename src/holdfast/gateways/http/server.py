"""The HTTP server: uvicorn on sockets that are bound already, in the caller's event loop.

The application is imported and built on a thread; connections wait in the sockets' backlog until then. Limits on connections
are in `uvicorn_server`.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from holdfast.gateways.http.asgi import Application
from holdfast.gateways.http.backend import HttpBackend
from holdfast.security.tls import CurrentContext
from holdfast.vocabulary.import_lock import import_lock
from holdfast.vocabulary.sockets import listen
from holdfast.vocabulary.tasks import Notify, background_tasks

if TYPE_CHECKING:
    from holdfast.gateways.http.uvicorn_server import UvicornServer
    from holdfast.pipeline.service.service import PipelineService

_log: Final = logging.getLogger(__name__)

ApplicationFactory = Callable[[HttpBackend, "PipelineService"], Application]


class HttpServer:
    """The HTTP gateway of one node. Created by `serving_http`."""

    def __init__(
        self, backend: HttpBackend, sockets: Sequence[socket.socket], factory: ApplicationFactory | None = None
    ) -> None:
        self.backend, self._factory = backend, factory
        self.listening = asyncio.Event()
        self._sockets = sockets
        self._stop, self._stopped = Notify(), asyncio.Event()
        self._inner: UvicornServer | None = None

    @property
    def accepting(self) -> bool:
        """Whether new connections are served."""
        return self._inner is not None and self._inner.accepting

    async def run(self) -> None:
        """Build the application on a thread, then serve until stopped."""
        inner, pipelines = await asyncio.to_thread(_build, self.backend, self._factory)
        self._inner = inner
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(pipelines.running())
            await self._serve(inner, await self._certificates(stack))
        await asyncio.Event().wait()  # a background task must not end before its body

    async def _certificates(self, stack: AsyncExitStack) -> CurrentContext | None:
        settings = self.backend.settings
        if settings.tls is None:
            return None
        tls = await asyncio.to_thread(CurrentContext, settings.tls)
        following = tls.follow("HTTP", clock=self.backend.clock, reload_ms=settings.tls_reload_ms)
        await stack.enter_async_context(background_tasks(following))
        return tls

    async def _serve(self, inner: "UvicornServer", tls: CurrentContext | None) -> None:
        try:
            await inner.start(self._sockets, tls=tls)
            self.listening.set()
            while not await self._stop.wait_ms(self.backend.clock, 1_000):
                await inner.tick()
            await inner.drain()
        finally:
            await inner.abort_connections()
            self._stopped.set()

    async def close_gracefully(self) -> None:
        """Accept no more connections, finish requests in flight, then close."""
        if not self.listening.is_set():
            return
        self.backend.stopping.set()
        self._stop.notify()
        await self._stopped.wait()


def _build(backend: HttpBackend, factory: ApplicationFactory | None) -> "tuple[UvicornServer, PipelineService]":
    with import_lock:
        from holdfast.gateways.http.application import make_application
        from holdfast.gateways.http.uvicorn_server import UvicornServer

        pipelines = backend.open_pipelines()
        application = (factory or make_application)(backend, pipelines)
    return UvicornServer(application, backend.settings, backend.counters), pipelines


@asynccontextmanager
async def serving_http(
    backend: HttpBackend, sockets: Sequence[socket.socket], *, factory: ApplicationFactory | None = None
) -> AsyncIterator[HttpServer]:
    """Serve HTTP on the sockets for the body; leaving aborts all connections: call `close_gracefully` before.

    `factory` builds the application, on a thread; by default all routes.
    """
    listen(sockets)
    server = HttpServer(backend, sockets, factory)
    async with background_tasks(server.run()):
        yield server
