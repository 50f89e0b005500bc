"""The listening server: its connections, the memory of their requests, one sweep over them, and the verbs that need no routing."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from holdfast.cursors.cursor import CursorRecord
from holdfast.gateways.text.backend import TextBackend
from holdfast.gateways.text.connection import TextConnection
from holdfast.gateways.text.errors import EMPTY, OK
from holdfast.gateways.text.record_reads import ReadRecords
from holdfast.gateways.text.records import decode_payloads, encode_records
from holdfast.gateways.text.requests import NO_SECURITY, Request, RequestError, Verb
from holdfast.gateways.text.settings import TextCounters
from holdfast.gateways.text.state import metrics_json, state_json
from holdfast.gateways.text.topic_routes import TopicRoutes
from holdfast.gateways.text.unfinished_frames import UnfinishedFrames
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.security.tls import CurrentContext, TlsFiles, authorities
from holdfast.security.tls_listener import TlsListener
from holdfast.vocabulary.histogram import Latencies
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)

_SWEEP_MS: Final = 1_000
_POLL_MS: Final = 20
_BACKLOG: Final = 1_024


class TextServer:
    """The text gateway of one node. Made by `serving_text`."""

    def __init__(self, backend: TextBackend) -> None:
        self.backend = backend
        self.routing = TopicRoutes(backend)
        self.connections: set[TextConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.used_bytes = 0  # of requests that are not answered
        self._unfinished = UnfinishedFrames[TextConnection](backend.settings.unfinished_bytes_max)
        self._waiting_for_memory: set[TextConnection] = set()
        self._listeners: list[asyncio.Server] = []
        self.tls: TlsListener | None = None
        self._closed = False

    # ── requests ──

    async def answer(self, request: Request) -> bytes:
        """The answer to a request other than PUT, GET and what nodes settle among themselves."""
        routing = self.routing
        match request.verb:
            case Verb.REGISTER:
                await routing.register(request.topic)
                return OK
            case Verb.PUTS:
                payloads = decode_payloads(request.payload)
                errors = await routing.put(request.topic, payloads, forwarded=True) if payloads else []
                for error in errors:
                    if error is not None:
                        raise error  # all or none were appended
                return OK
            case Verb.READ:
                partition, offset, bytes_max = request.numbers
                return (await routing.read(request.topic, partition, offset, bytes_max)).encode()
            case Verb.FETCH:
                return await self._fetch(request)
            case Verb.STATE:
                return await state_json(self.backend, request.topic)
            case Verb.METRICS:
                return metrics_json(self.backend, len(self.connections))
            case _:
                raise RequestError(NO_SECURITY)

    async def _fetch(self, request: Request) -> bytes:
        partition, offset, *most = request.numbers
        settings = self.backend.settings
        bytes_max = settings.fetch_bytes_max if most else 1
        found = await self.routing.fetch(request.topic, partition, offset, bytes_max=bytes_max)
        while not found.records and found.next_offset > offset and found.next_offset < found.end_offset:  # a gap
            found = await self.routing.fetch(request.topic, partition, found.next_offset, bytes_max=bytes_max)
        if not found.records:
            if not found.start_offset <= offset <= found.end_offset:
                raise OffsetOutOfRangeError(
                    f"{request.topic}:{partition}", offset, found.start_offset, found.end_offset
                )
            return EMPTY
        if not most:
            first = found.records[0]
            return b"OK %d " % (first.offset + 1) + first.value
        records = _within(found, max(1, most[0]), settings.fetch_bytes_max)
        return b"OK %d %d " % (records[-1].offset + 1, len(records)) + encode_records(records)

    def encode(self, records: Iterable[CursorRecord]) -> bytes:
        """Records for another node."""
        return encode_records(records)

    # ── memory ──

    @property
    def full(self) -> bool:
        """Whether requests hold all the memory they may."""
        return self.used_bytes >= self.backend.settings.requests_bytes_max

    def taken(self, size: int) -> None:
        """A request has arrived."""
        self.used_bytes += size

    def released(self, size: int) -> None:
        """Requests were answered, or their connection is gone."""
        self.used_bytes -= size
        if self._waiting_for_memory and not self.full:
            waiting, self._waiting_for_memory = self._waiting_for_memory, set()
            for connection in waiting:
                connection.memory_freed()

    @property
    def latencies(self) -> Latencies:
        """What requests took, by verb."""
        return self.backend.latencies

    @property
    def counters(self) -> TextCounters:
        """What it has counted."""
        return self.backend.counters

    @property
    def unfinished_bytes(self) -> int:
        """Of requests that have not arrived whole."""
        return self._unfinished.size_bytes

    def unfinished(self, connection: TextConnection, held_bytes: int, *, began: bool) -> None:
        """A connection holds so many bytes of a frame that has not arrived whole; where that is too much, one is closed."""
        closed = self._unfinished.update(connection, held_bytes, began=began)
        if closed is not None:
            self.backend.counters.unfinished_closed += 1
            closed.close_unfinished()

    def queue_for_memory(self, connection: TextConnection) -> None:
        """Call the connection's `memory_freed` once requests of others are answered."""
        self._waiting_for_memory.add(connection)

    # ── connections ──

    def joined(self, connection: TextConnection) -> bool:
        """Add a connection; False: there are too many, or it was accepted just when the server closed."""
        if self._closed:
            return False
        if len(self.connections) >= self.backend.settings.connections_max:
            self.backend.counters.connections_refused += 1
            _log.warning("text connection refused: %d are open", len(self.connections))
            return False
        self.connections.add(connection)
        self.backend.counters.connections_accepted += 1
        return True

    def left(self, connection: TextConnection) -> None:
        """Remove a closed connection; what it has begun goes on."""
        self.connections.discard(connection)
        self._waiting_for_memory.discard(connection)
        self._unfinished.forget(connection)
        if connection.task is not None and not connection.task.done():
            self._tasks.add(connection.task)
            connection.task.add_done_callback(self._tasks.discard)

    async def accept(self, sockets: Sequence[socket.socket], tls: CurrentContext | None = None) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        if tls is not None:
            self.tls = TlsListener(
                lambda: TextConnection(self),
                tls,
                connections=lambda: len(self.connections),
                connections_max=self.backend.settings.connections_max,
                handshake_ms=self.backend.settings.handshake_ms,
            )
            self.tls.start(sockets)
            return
        for each in sockets:
            self._listeners.append(await loop.create_server(lambda: TextConnection(self), sock=each, backlog=_BACKLOG))

    async def sweep(self) -> None:
        """Close idle, stalled and unread connections, until cancelled."""
        clock = self.backend.clock
        while True:
            await clock.sleep_ms(_SWEEP_MS)
            for connection in list(self.connections):
                reason = connection.close_reason(clock.boot_ms())
                if reason is not None:
                    connection.abort(reason)

    async def close_gracefully(self, grace_ms: float = 5_000) -> None:
        """Accept nothing more, finish the requests in flight, then close."""
        self._stop_accepting()
        for connection in list(self.connections):
            connection.stop_reading()
        clock = self.backend.clock
        deadline_ms = clock.boot_ms() + grace_ms
        while (self.routing.settling or any(each.busy for each in self.connections)) and clock.boot_ms() < deadline_ms:
            await clock.sleep_ms(_POLL_MS)
        for connection in list(self.connections):
            connection.close()

    def _stop_accepting(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self.tls is not None:
            self.tls.stop()

    async def close(self) -> None:
        """Accept nothing more, close every connection, and wait for what they had begun to end."""
        self._closed = True
        self._stop_accepting()
        tasks = {each.task for each in self.connections if each.task is not None} | self._tasks
        for connection in list(self.connections):
            connection.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.tls is not None:
            await self.tls.stopped()
        await self.routing.close()


def _within(found: ReadRecords, count: int, bytes_max: int) -> list[CursorRecord]:
    """The first records: at least one, at most so many, and no more bytes than one answer may have."""
    records: list[CursorRecord] = []
    for record in found.records[:count]:
        bytes_max -= len(record.value)
        if records and bytes_max < 0:
            break
        records.append(record)
    return records


@asynccontextmanager
async def serving_text(backend: TextBackend, sockets: Sequence[socket.socket]) -> AsyncIterator[TextServer]:
    """Serve the text protocol on the sockets for the body; leaving closes at once: call `close_gracefully` before."""
    server, settings, clock = TextServer(backend), backend.settings, backend.clock
    followed: list[Coroutine[None, None, None]] = []
    own = None
    if settings.tls is not None:
        own = await asyncio.to_thread(CurrentContext, settings.tls)
        others = await asyncio.to_thread(CurrentContext, authorities(settings.tls_ca), TlsFiles.client_context)
        server.routing.forward_with(others)
        for name, tls in (("text protocol", own), ("connections to other text ports", others)):
            followed.append(tls.follow(name, clock=clock, reload_ms=settings.tls_reload_ms))
    await server.accept(sockets, own)
    try:
        async with background_tasks(server.sweep(), *followed):
            yield server
    finally:
        await server.close()
