"""Accepting with TLS: handshakes under way count as connections, and have a deadline.

The one rule: whoever has not finished the handshake gives way. Where all connections are taken, the oldest handshake is dropped for
a new one, so that clients who connect and say nothing keep nobody out.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from holdfast.security.tls import CurrentContext
from holdfast.vocabulary.sockets import listen

_log: Final = logging.getLogger(__name__)

_GOODBYE_S: Final = (
    1.0  # how long a closing connection waits for the other end's close_notify, which idle clients never send
)
_BACKLOG: Final = 1_024
_PAUSE_S: Final = 0.2  # after a failed accept: too many open files, as a rule


class _Handshake(asyncio.Protocol):
    """What the transport has until the handshake is done; then the server's own protocol takes over."""

    def __init__(self, connected: Callable[[], asyncio.BaseProtocol]) -> None:
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._connected()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class AcceptGate(Protocol):
    """Which accepted connections are served, and when: a handshake is work, so it is asked before."""

    def admit(self, accepted: socket.socket, host: str) -> int | None:
        """How long a connection waits before its handshake, in ms; None: the gate closes it instead."""
        ...

    async def wait_ms(self, delay_ms: int) -> None:
        """Wait as long as `admit` says."""
        ...


class TlsListener:
    """Accepts on sockets for a server that counts its own connections. Made by `accepting_tls`."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        tls: CurrentContext,
        *,
        connections: Callable[[], int],
        connections_max: int,
        handshake_ms: int,
        gate: AcceptGate | None = None,
    ) -> None:
        self._protocol, self._tls = protocol, tls
        self._connections, self._connections_max = connections, connections_max
        self._handshake_ms, self._gate = handshake_ms, gate
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}  # the oldest first
        self.failed = self.dropped = 0

    @property
    def handshakes(self) -> int:
        """Handshakes under way."""
        return len(self._handshakes)

    @property
    def accepting(self) -> bool:
        """Whether it has been started, and not stopped."""
        return bool(self._sockets)

    def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept on the sockets until `stop`."""
        listen(sockets, backlog=_BACKLOG)
        self._sockets = list(sockets)
        for each in sockets:
            each.setblocking(False)
            self._watch(each)

    def stop(self) -> None:
        """Accept no more, close the sockets, and end the handshakes under way."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        for accepted in self._handshakes.values():
            _end(accepted)

    async def stopped(self) -> None:
        """Wait for the end of what `stop` has ended."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _watch(self, bound: socket.socket) -> None:
        if bound in self._sockets:
            asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            accepted, address = bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.warning("cannot accept connections: %s", error.strerror or error)
            loop.remove_reader(bound)
            loop.call_later(_PAUSE_S, self._watch, bound)
            return
        delay_ms = 0 if self._gate is None else self._gate.admit(accepted, str(address[0]))
        if delay_ms is None:
            return
        if not self._has_room():
            self.dropped += 1
            accepted.close()
            return
        task = loop.create_task(self._shake_hands(accepted, delay_ms))
        self._tasks.add(task)
        self._handshakes[task] = accepted
        task.add_done_callback(self._ended)

    def _has_room(self) -> bool:
        if self._connections() + len(self._handshakes) < self._connections_max:
            return True
        if not self._handshakes:
            return False
        _end(self._handshakes.pop(next(iter(self._handshakes))))
        self.dropped += 1
        return True

    async def _shake_hands(self, accepted: socket.socket, delay_ms: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._gate is not None and delay_ms:
            await self._gate.wait_ms(delay_ms)

        def connected() -> asyncio.BaseProtocol:
            self._handshakes.pop(task, None)  # from now on the server counts it
            return self._protocol()

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Handshake(connected),
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._handshake_ms / 1000,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except (OSError, ssl.CertificateError) as error:
            # No line in the log: anybody could fill it.
            self.failed += 1
            _log.debug("TLS handshake failed: %s", error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("accepting with TLS failed", exc_info=task.exception())


def _end(accepted: socket.socket) -> None:
    """End a handshake: its transport reads the end of the connection, and closes."""
    with suppress(OSError):  # it has ended
        accepted.shutdown(socket.SHUT_RDWR)


@asynccontextmanager
async def accepting_tls(listener: TlsListener, sockets: Sequence[socket.socket]) -> AsyncIterator[TlsListener]:
    """Accept on the sockets for the body."""
    listener.start(sockets)
    try:
        yield listener
    finally:
        listener.stop()
        await listener.stopped()
