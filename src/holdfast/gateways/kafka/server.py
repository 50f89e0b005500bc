"""The listening server: its connections, the memory their requests arrive in, and one sweep over them.

There are no timers per connection: the sweep closes those that are idle, stalled or not read. `vocabulary.sockets.bind` makes the
sockets; `serving_kafka` accepts on them.

With TLS, `security.tls_listener` accepts: handshakes count as connections. Certificates that have changed are used by connections
from then on; open ones stay as they are.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.connection import KafkaConnection
from holdfast.gateways.kafka.connection_throttle import ConnectionThrottle
from holdfast.gateways.kafka.frames import FrameReceiver
from holdfast.gateways.kafka.produce_runs import ProduceRuns
from holdfast.gateways.kafka.stalled_requests import StalledRequests
from holdfast.gateways.kafka.unsupported import UnsupportedRequests
from holdfast.kafka.codec import import_kio
from holdfast.log.slabs import Slabs, SlabSettings
from holdfast.security.connection_rates import ADMITTED, Admission
from holdfast.security.tls import CurrentContext
from holdfast.security.tls_listener import TlsListener
from holdfast.vocabulary.histogram import Histogram, Latencies
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.sockets import hung_up
from holdfast.vocabulary.tasks import LoopTurns, Notify, background_tasks

_log: Final = logging.getLogger(__name__)

_SCRATCH_BYTES: Final = 64 * KIB
_SLAB_BYTES: Final = MIB
_SWEEP_MS: Final = 5_000
_REVOKED_MS: Final = 500
_LOOKED_AT: Final = 1_000  # connections in one turn of the loop
_POLL_MS: Final = 20
_STALLED_POLL_MS: Final = 50
_BACKLOG: Final = 1_024


class KafkaServer:
    """The Kafka gateway of one node. Made by `serving_kafka`."""

    def __init__(self, backend: KafkaBackend) -> None:
        self.backend = backend
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.connections: set[KafkaConnection] = set()
        self.requests = self.malformed = 0
        self.latencies = Latencies()  # by API, from the arrival of a request to its response
        self.unsupported = UnsupportedRequests()
        self.produce_runs = ProduceRuns(backend, self)
        self.throttle = ConnectionThrottle(backend.meters, backend.clock)
        self._slabs = Slabs(SlabSettings(slab_bytes=_SLAB_BYTES, bytes_max=backend.settings.slabs_bytes_max))
        self.used_bytes = 0  # of requests arriving, queued or in flight
        self.bytes_max = backend.settings.requests_bytes_max
        self._waiting_for_memory: dict[FrameReceiver, None] = {}  # first come, first served
        self._memory_wanted = Notify()
        self._stalled = StalledRequests(backend.settings.stalled_ms)
        self._listeners: list[asyncio.Server] = []
        self.tls: TlsListener | None = None
        self._closed = False

    def memory(self, size: int) -> memoryview:
        """Memory for a request of `size` bytes."""
        # A view pins its whole slab, so a slab is for requests that nearly fill it.
        if _SLAB_BYTES // 2 < size <= _SLAB_BYTES:
            slab = self._slabs.take()
            if slab is not None:
                return slab[:size]
        return memoryview(bytearray(size))

    @property
    def requests_together(self) -> Histogram:
        """Produce requests appended with one call."""
        return self.produce_runs.requests_together

    @property
    def unsupported_by_api(self) -> Mapping[str, int]:
        """Requests that ApiVersions does not list, by API."""
        return self.unsupported.by_api

    @property
    def throttled_ms(self) -> Mapping[str, int]:
        """How long clients had to pause, by quota."""
        return self.backend.meters.throttled_ms

    @property
    def throttled_connections(self) -> Mapping[str, int]:
        """Connections of addresses beyond their rate, by what became of them."""
        return self.throttle.throttled

    @property
    def full(self) -> bool:
        """Whether requests hold all the memory they may."""
        return self.used_bytes >= self.bytes_max

    def taken(self, size: int) -> None:
        """A request has begun to arrive."""
        self.used_bytes += size

    def released(self, size: int) -> None:
        """Requests were answered, or their connection is gone."""
        self.used_bytes -= size
        if self._waiting_for_memory and not self.full:
            waiting, self._waiting_for_memory = self._waiting_for_memory, {}
            for connection in waiting:
                connection.memory_freed()

    def queue_for_memory(self, connection: FrameReceiver) -> None:
        """Call the connection's `memory_freed` once requests of others are answered."""
        self._waiting_for_memory[connection] = None
        if connection.waits_for_memory:
            self._memory_wanted.notify()

    def admission(self, host: str) -> Admission:
        """Whether a new connection of a host is served, and when. With TLS, that was decided before the handshake."""
        return ADMITTED if self._closed or self.tls is not None else self.throttle.decide(host)

    def joined(self, connection: FrameReceiver, peer: str) -> bool:
        """Add a connection; False: there are too many, or it was accepted just when the server closed."""
        if self._closed:
            return False
        if len(self.connections) >= self.backend.settings.connections_max:
            _log.warning("connection from %s rejected: %d connections are open", peer, len(self.connections))
            return False
        self.connections.add(cast(KafkaConnection, connection))
        return True

    def left(self, connection: FrameReceiver) -> None:
        """Remove a closed connection."""
        self.connections.discard(cast(KafkaConnection, connection))
        self._waiting_for_memory.pop(connection, None)

    async def accept(self, sockets: Sequence[socket.socket], tls: CurrentContext | None = None) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        if tls is None:
            for each in sockets:
                made = await loop.create_server(lambda: KafkaConnection(self), sock=each, backlog=_BACKLOG)
                self._listeners.append(made)
            return
        self.tls = TlsListener(
            lambda: KafkaConnection(self),
            tls,
            connections=lambda: len(self.connections),
            connections_max=self.backend.settings.connections_max,
            handshake_ms=self.backend.settings.handshake_ms,
            gate=self.throttle,
        )
        self.tls.start(sockets)

    async def sweep(self) -> None:
        """Close idle, stalled and unread connections, until cancelled."""
        clock = self.backend.clock
        while True:
            await clock.sleep_ms(_SWEEP_MS)
            now_ms = clock.boot_ms()
            self.backend.responses.refresh(now_ms)
            self.throttle.drop_idle()
            for connection in list(self.connections):
                reason = connection.close_reason(now_ms)
                if reason is not None:
                    connection.abort(reason)
            self.close_gone()

    def close_gone(self) -> None:
        """Close connections whose clients have hung up while they were not read, which is why nobody was told."""
        unread = {fd: each for each in self.connections if (fd := each.unread_fd) is not None}
        for fd in hung_up(unread):
            unread[fd].abort("its client is gone")

    async def end_revoked(self) -> None:
        """Close connections whose credentials are no longer good, also those that wait for records, until cancelled.

        So are those that wait for messages of a heap that their client may no longer read.

        They are looked at when users, keys or ACLs have changed. Those that have expired meanwhile go with the next sweep.
        """
        seen: int | None = None
        while self.backend.security is not None:
            await self.backend.clock.sleep_ms(_REVOKED_MS)
            version = self.backend.security.control.version
            if version != seen:
                seen = version
                await self._abort_revoked()

    async def _abort_revoked(self) -> None:
        turns, open_now = LoopTurns(), list(self.connections)
        for first in range(0, len(open_now), _LOOKED_AT):
            for connection in open_now[first : first + _LOOKED_AT]:
                if connection.is_revoked:
                    connection.abort("its credentials were revoked")
                elif connection.is_denied:
                    connection.abort("it waits for what its client may no longer read")
            await turns.next()

    async def relieve(self) -> None:
        """Make room for responses that wait for it, until cancelled."""
        clock, responses = self.backend.clock, self.backend.responses
        while True:
            await responses.wanted.wait()
            while responses.relieve(clock.boot_ms()):
                await clock.sleep_ms(_POLL_MS)

    async def close_stalled(self) -> None:
        """Close connections whose requests make no progress while others wait for their memory, until cancelled."""
        clock = self.backend.clock
        while True:
            await self._memory_wanted.wait()
            while self.full and any(each.waits_for_memory for each in self._waiting_for_memory):
                excess_bytes = self.used_bytes - self.bytes_max
                for connection in self._stalled.find(self.connections, excess_bytes, clock.boot_ms()):
                    connection.close_unread(
                        f"its requests make no progress, {self.used_bytes} of at most {self.bytes_max} bytes in use"
                    )
                await clock.sleep_ms(_STALLED_POLL_MS)

    async def close_gracefully(self, grace_ms: float = 5_000) -> None:
        """Accept nothing more, finish the requests in flight, then close."""
        self._stop_accepting()
        for connection in list(self.connections):
            connection.stop_reading()
        clock = self.backend.clock
        deadline_ms = clock.boot_ms() + grace_ms
        while any(each.busy for each in self.connections) and clock.boot_ms() < deadline_ms:
            await clock.sleep_ms(_POLL_MS)
        self._close_connections()

    def close(self) -> None:
        """Accept nothing more and close every connection."""
        self._stop_accepting()
        self._close_connections()

    def _stop_accepting(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self.tls is not None:
            self.tls.stop()
        self.throttle.close()

    def _close_connections(self) -> None:
        self._closed = True
        for connection in list(self.connections):
            connection.close()


@asynccontextmanager
async def serving_kafka(backend: KafkaBackend, sockets: Sequence[socket.socket]) -> AsyncIterator[KafkaServer]:
    """Serve Kafka's protocol on the sockets for the body; leaving closes at once: call `close_gracefully` before."""
    server, settings = KafkaServer(backend), backend.settings
    tls = None if settings.tls is None else await asyncio.to_thread(CurrentContext, settings.tls)
    reloads = () if tls is None else (tls.follow("Kafka", clock=backend.clock, reload_ms=settings.tls_reload_ms),)
    await server.accept(sockets, tls)
    try:
        # kio is imported on a thread: neither the start nor the first client should wait for it.
        async with background_tasks(
            server.sweep(),
            server.end_revoked(),
            server.relieve(),
            server.close_stalled(),
            asyncio.to_thread(import_kio),
            *reloads,
        ):
            yield server
    finally:
        server.close()
        if server.tls is not None:
            await server.tls.stopped()
        await backend.remote_reads.close()
        backend.large_requests.close()
