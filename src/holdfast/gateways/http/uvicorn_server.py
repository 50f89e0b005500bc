"""uvicorn with limits: on connections, and deadlines for the head of a request, an unread response and idling.

Importing this imports uvicorn and h11.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.gateways.http.asgi import Application
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.problems import HEADERS_TOO_LARGE, MALFORMED, PROBLEM_MEDIA_TYPE, encode_problem, problem
from holdfast.gateways.http.settings import HttpSettings
from holdfast.security.tls import CurrentContext
from holdfast.security.tls_listener import TlsListener
from holdfast.vocabulary.sockets import BACKLOG

_HEADERS_TOO_LARGE: Final = 431


class UvicornServer(Server):
    """uvicorn's server, started and stopped by its owner, who handles signals and sockets."""

    def __init__(self, application: Application, settings: HttpSettings, request_counters: RequestCounters) -> None:
        self._sockets: list[socket.socket] = []
        self._settings, self._counters = settings, request_counters
        self._tls: TlsListener | None = None

        class BoundConnection(HttpConnection):
            limits, counters = settings, request_counters

        config = Config(
            application,
            http=BoundConnection,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            h11_max_incomplete_event_size=settings.head_bytes_max,
            timeout_graceful_shutdown=None,
        )
        # A line for each malformed request would let anybody fill the log; they are counted instead.
        uvicorn_log = logging.getLogger("uvicorn.error")
        uvicorn_log.setLevel(logging.ERROR)
        uvicorn_log.addFilter(_is_not_cancellation)
        config.load()
        super().__init__(config)
        self._grace_s = settings.stop_ms / 1000
        self.lifespan = config.lifespan_class(config)

    async def start(self, sockets: Sequence[socket.socket], *, tls: CurrentContext | None) -> None:
        """Accept on the sockets."""
        self._sockets = list(sockets)
        await self.tick()
        if tls is None:
            await self.startup(sockets=self._sockets)
            return
        self._tls = TlsListener(
            self._connection,
            tls,
            connections=lambda: self._counters.connections,
            connections_max=self._settings.connections_max,
            handshake_ms=self._settings.head_ms,
        )
        self.servers: list[asyncio.Server] = []  # uvicorn's own
        self.started = True
        self._tls.start(self._sockets)

    def _connection(self) -> asyncio.Protocol:
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    @property
    def accepting(self) -> bool:
        """Whether it accepts connections."""
        return self._accepts_tls or any(each.is_serving() for each in getattr(self, "servers", ()))

    @property
    def _accepts_tls(self) -> bool:
        return self._tls is not None and self._tls.accepting

    async def tick(self) -> None:
        """Once a second: update the date in responses."""
        await self.on_tick(0)

    async def drain(self) -> None:
        """Accept no more connections and finish requests in flight, for `stop_ms` at most."""
        await self._stop_tls()
        try:
            async with asyncio.timeout(self._grace_s):
                await self.shutdown(sockets=self._sockets)
        except TimeoutError:
            logging.getLogger(__name__).warning("aborting requests still in flight after %g s", self._grace_s)

    async def _stop_tls(self) -> None:
        if self._tls is not None:
            self._tls.stop()
            await self._tls.stopped()

    async def abort_connections(self) -> None:
        """Close all connections at once."""
        await self._stop_tls()
        for each in getattr(self, "servers", ()):
            each.close()
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by the process."""
        yield


def _is_not_cancellation(record: logging.LogRecord) -> bool:
    """A request that is cancelled by a stop is no failure, so it gets no traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class HttpConnection(H11Protocol):
    """One connection, with a deadline for everything the client may delay."""

    limits: HttpSettings
    counters: RequestCounters

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.timeout_keep_alive = self.limits.idle_ms // 1000 or 1
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.counters.connections += 1
        if self.counters.connections > self.limits.connections_max:
            self._abort()
        else:
            self._head_timer = self.loop.call_later(self.limits.head_ms / 1000, self._abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.counters.connections -= 1
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and not self._busy:
            self._head_timer = self.loop.call_later(self.limits.head_ms / 1000, self._abort)
        super().data_received(data)
        if self._busy and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    @property
    def _busy(self) -> bool:
        """Whether a request's head has arrived and its response is not finished."""
        return self.cycle is not None and not self.cycle.response_complete

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.write_ms / 1000, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # Closing waits until the client has read everything; a client that never does is aborted.
        if self.transport.get_write_buffer_size():
            self._write_timer = self.loop.call_later(self.limits.write_ms / 1000, self._abort)

    def send_400_response(self, msg: str) -> None:
        """The request is not valid HTTP."""
        self.counters.malformed += 1
        error = sys.exc_info()[1]
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        kind = HEADERS_TOO_LARGE if hint == _HEADERS_TOO_LARGE else MALFORMED
        problem_details = problem(
            kind,
            f"the headers exceed the limit of {self.limits.head_bytes_max} bytes"
            if kind is HEADERS_TOO_LARGE
            else str(error),
        )
        body = encode_problem(problem_details)
        headers = [("content-type", PROBLEM_MEDIA_TYPE), ("content-length", str(len(body))), ("connection", "close")]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=problem_details.status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _abort(self) -> None:
        self.counters.aborted += 1
        self.transport.abort()
