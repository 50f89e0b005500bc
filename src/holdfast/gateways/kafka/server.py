"""Listening: every connection of the face, the memory their requests arrive in, and the one sweep over them.

`bind` reserves the address without accepting, so that a node knows where it can be reached before it says so; `serving_kafka`
accepts for the body. There are no timers per connection: one sweep closes what is idle, stuck or unread.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.connection import KafkaConnection
from holdfast.gateways.kafka.control import learn
from holdfast.log.slabs import Slabs, SlabSettings
from holdfast.vocabulary import sockets
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)

_SCRATCH_BYTES: Final = 64 * KIB
_SLAB_BYTES: Final = MIB
_SWEEP_MS: Final = 5_000
_POLL_MS: Final = 20
_BACKLOG: Final = 1_024


class KafkaServer:
    """The face of one node. Made by `serving_kafka`."""

    def __init__(self, backend: KafkaBackend) -> None:
        self.backend = backend
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.connections: set[KafkaConnection] = set()
        self.requests = self.malformed = 0
        self._slabs = Slabs(SlabSettings(slab_bytes=_SLAB_BYTES, bytes_max=backend.settings.slabs_bytes_max))
        self._used_bytes = 0  # of requests that have begun to arrive and are not answered yet
        self._bytes_max = backend.settings.requests_bytes_max
        self._want_room: set[KafkaConnection] = set()
        self._servers: list[asyncio.Server] = []

    def memory(self, size: int) -> memoryview:
        """Room for a request of `size` bytes."""
        # A view pins its whole slab, so a slab is for what nearly fills it.
        if _SLAB_BYTES // 2 < size <= _SLAB_BYTES:
            slab = self._slabs.take()
            if slab is not None:
                return slab[:size]
        return memoryview(bytearray(size))

    @property
    def used_bytes(self) -> int:
        """Memory of requests arriving or under way."""
        return self._used_bytes

    @property
    def full(self) -> bool:
        """Whether requests arriving or under way hold all the memory they may."""
        return self._used_bytes >= self._bytes_max

    def taken(self, size: int) -> None:
        """A request has begun to arrive."""
        self._used_bytes += size

    def released(self, size: int) -> None:
        """Requests were answered, or their connection is gone."""
        self._used_bytes -= size
        if self._want_room and not self.full:
            wanting, self._want_room = self._want_room, set()
            for connection in wanting:
                connection.memory_freed()

    def queue_for_memory(self, connection: KafkaConnection) -> None:
        """Tell the connection when requests of others are answered."""
        self._want_room.add(connection)

    def joined(self, connection: KafkaConnection) -> bool:
        """Whether there is room for one more connection."""
        if len(self.connections) >= self.backend.settings.connections_max:
            return False
        self.connections.add(connection)
        return True

    def left(self, connection: KafkaConnection) -> None:
        """It is closed."""
        self.connections.discard(connection)
        self._want_room.discard(connection)

    async def accept(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        for each in sockets:
            self._servers.append(await loop.create_server(lambda: KafkaConnection(self), sock=each, backlog=_BACKLOG))

    async def sweep(self) -> None:
        """Close what is idle, stuck or unread, until cancelled."""
        clock = self.backend.clock
        while True:
            await clock.sleep_ms(_SWEEP_MS)
            now_ms = clock.boot_ms()
            for connection in list(self.connections):
                reason = connection.overdue(now_ms)
                if reason is not None:
                    connection.abort(reason)

    async def close_gracefully(self, grace_ms: float = 5_000) -> None:
        """Accept nothing more, answer what is being answered, then hang up."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.stop_reading()
        clock = self.backend.clock
        deadline_ms = clock.boot_ms() + grace_ms
        while any(each.busy for each in self.connections) and clock.boot_ms() < deadline_ms:
            await clock.sleep_ms(_POLL_MS)
        for connection in list(self.connections):
            connection.close()


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to the address, not yet accepting."""
    return sockets.bind(host, port)


@asynccontextmanager
async def serving_kafka(backend: KafkaBackend, sockets: Sequence[socket.socket]) -> AsyncIterator[KafkaServer]:
    """Speak Kafka on the sockets for the body; leaving hangs up at once: call `close_gracefully` before."""
    server = KafkaServer(backend)
    await server.accept(sockets)
    try:
        async with background_tasks(server.sweep(), _learn()):
            yield server
    finally:
        for each in server._servers:
            each.close()
        for connection in list(server.connections):
            connection.close()


async def _learn() -> None:
    """Import kio beside the loop: the first client should not wait for it, and neither should the start."""
    await asyncio.to_thread(learn)
