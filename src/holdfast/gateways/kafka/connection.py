"""One client's connection: frames in, answers out, in the order of the requests.

Requests that overlap (Produce) are under way together; every other request waits until those before it are answered, as in Kafka,
because it may build on them. Whatever is not a request closes the connection with one log line, and harms nobody else.

Receiving copies nothing that is large: small frames come through a buffer all connections share (an idle connection owns none),
a large one is received straight into memory of its own, from which the WAL writes it and fetches serve it.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from struct import Struct
from typing import Final, Protocol, cast

from holdfast.gateways.kafka.api import Api, ClientInfo, RequestContext, ResponseChunks
from holdfast.gateways.kafka.api_table import APIS
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.control import decode, encode
from holdfast.kafka.wire import INT32, MalformedRequestError, WireReader
from holdfast.vocabulary.settings import KIB

_log: Final = logging.getLogger(__name__)

_HEAD: Final = Struct(">hhi")  # key, version, correlation id
_ANSWER: Final = Struct(">ii")
_ANSWER_FLEXIBLE: Final = Struct(">iix")
_PRODUCE, _API_VERSIONS = 0, 18
_SMALL_BYTES: Final = (
    64 * KIB
)  # requests up to this size never wait for room: a heartbeat should not stand behind records


class _InFlightRequest:
    """A request from its arrival to its answer."""

    __slots__ = ("answer", "api", "body", "call", "done", "size", "task")

    def __init__(self, api: Api, call: RequestContext, body: memoryview, size: int) -> None:
        self.api, self.call, self.body, self.size = api, call, body, size
        self.task: asyncio.Future[ResponseChunks | None] | None = None
        self.answer: ResponseChunks | BaseException | None = None
        self.done = False


class ConnectionHost(Protocol):
    """What a connection shares with the others."""

    backend: KafkaBackend
    scratch: memoryview
    requests: int
    malformed: int

    @property
    def full(self) -> bool:
        """Whether requests under way hold all the memory they may."""
        ...

    def memory(self, size: int) -> memoryview:
        """Room for a request of `size` bytes."""
        ...

    def taken(self, size: int) -> None:
        """A request has begun to arrive."""
        ...

    def released(self, size: int) -> None:
        """Requests were answered, or their connection is gone."""
        ...

    def queue_for_memory(self, connection: "KafkaConnection") -> None:
        """Tell the connection when requests of others are answered."""
        ...

    def joined(self, connection: "KafkaConnection") -> bool:
        """Whether there is room for one more connection."""
        ...

    def left(self, connection: "KafkaConnection") -> None:
        """It is closed."""
        ...


class KafkaConnection(asyncio.BufferedProtocol):
    """A protocol of the server's loop."""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self._backend, self._settings = server.backend, server.backend.settings
        self._transport: asyncio.Transport | None = None
        self._peer = ClientInfo("", 0)
        self._rest = b""  # up to three bytes of a length
        self._frame: memoryview | None = None  # a frame that has begun
        self._filled = 0
        self._held: tuple[int, bytes] | None = (
            None  # a large frame for which there is no room yet: its size, and its beginning
        )
        self._waiting: deque[_InFlightRequest] = deque()
        self._under_way: deque[_InFlightRequest] = deque()
        self._bytes = 0  # of requests arriving, waiting or under way
        self._paused = self._clogged = self._stopping = self._closing = self._pumping = False
        self.active_at_ms = self.frame_at_ms = self.clogged_at_ms = server.backend.clock.boot_ms()

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self._peer = ClientInfo(str(host), int(port))
        transport.set_write_buffer_limits(self._settings.buffered_bytes_max)
        if not self._server.joined(self):
            _log.warning("connection from %s refused: %d are open", host, self._settings.connections_max)
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._server.left(self)
        for request in self._under_way:
            if request.task is not None and request.api.long_poll:
                request.task.cancel()  # nobody waits any more; the others finish what they began
        self._server.released(self._bytes)
        self._waiting.clear()
        self._frame = self._held = None

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        return self._server.scratch if frame is None else frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        try:
            if self._frame is not None:
                self._filled += nbytes
                if self._filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._arrived(frame)
            else:
                self._received(self._server.scratch[:nbytes])
        except MalformedRequestError as error:
            self._refuse(error)
        self._update_flow_control()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._clogged = True
        self.clogged_at_ms = self._backend.clock.boot_ms()

    def resume_writing(self) -> None:
        self._clogged = False
        self._pump()
        self._update_flow_control()

    # ── frames ──

    def _received(self, data: memoryview) -> None:
        if self._rest:
            data, self._rest = memoryview(self._rest + data), b""
        at, end = 0, len(data)
        while end - at >= 4:
            (size,) = INT32.unpack_from(data, at)
            if not 8 <= size <= self._settings.request_bytes_max:
                raise MalformedRequestError("bytes of a request", size, f"8 to {self._settings.request_bytes_max}")
            at += 4
            there = min(size, end - at)
            if there < size > _SMALL_BYTES and self._server.full:
                self._held = size, bytes(data[at:])
                return
            if not self._begun(size, data[at : at + there]):
                return
            at += there
        self._rest = bytes(data[at:])

    def _begun(self, size: int, beginning: memoryview | bytes) -> bool:
        """Whether the frame that begins so is a whole one. It counts from now on."""
        self._bytes += size
        self._server.taken(size)
        there = len(beginning)
        frame = self._server.memory(size)
        frame[:there] = beginning
        if there == size:
            self._arrived(frame)
            return True
        self._frame, self._filled = frame, there
        self.frame_at_ms = self._backend.clock.boot_ms()
        return False

    def _arrived(self, frame: memoryview) -> None:
        """A whole request."""
        key, version, correlation = _HEAD.unpack_from(frame)
        api = APIS.get(key)
        if api is None:
            raise MalformedRequestError("api key", key, "one that ApiVersions lists")
        if not api.supports(version) and key != _API_VERSIONS:
            low, high = api.versions
            raise MalformedRequestError(f"version of {api.name}", version, f"{low} to {high}")
        if key != _PRODUCE and len(frame) > self._settings.control_bytes_max:
            raise MalformedRequestError(
                f"bytes of a request for {api.name}", len(frame), f"at most {self._settings.control_bytes_max}"
            )
        header = WireReader(frame, flexible=False, at=_HEAD.size)
        client_id = header.string() or ""
        if api.supports(version):
            header.flexible = api.is_flexible(version)
            header.tags()
        call = RequestContext(api, version, correlation, client_id, self._peer, self._backend)
        self.active_at_ms = self._backend.clock.boot_ms()
        self._waiting.append(_InFlightRequest(api, call, frame[header.at :], len(frame)))
        self._pump()

    # ── requests ──

    def _pump(self) -> None:
        """Start what may start, and send what is answered."""
        if self._pumping:
            return  # a request was answered while it was begun
        self._pumping = True
        try:
            while self._start() and self._send_answers():
                pass
        finally:
            self._pumping = False

    def _start(self) -> bool:
        waiting, under_way = self._waiting, self._under_way
        while waiting and not self._clogged and not self._closing:
            if under_way and not (waiting[0].api.pipelined and under_way[-1].api.pipelined):
                break
            request = waiting.popleft()
            under_way.append(request)
            self._server.requests += 1
            if request.api.direct is None:
                request.task = asyncio.ensure_future(_answer(request))
                request.task.add_done_callback(partial(self._finished, request))
                continue
            try:
                request.api.direct(request.call, request.body, partial(self._answered, request))
            except Exception as error:
                self._answered(request, error)
        return not self._closing

    def _finished(self, request: _InFlightRequest, task: "asyncio.Future[ResponseChunks | None]") -> None:
        if task.cancelled():
            self._answered(request, asyncio.CancelledError())
        else:
            self._answered(request, task.exception() or task.result())

    def _answered(self, request: _InFlightRequest, answer: ResponseChunks | BaseException | None) -> None:
        if request.done:
            return
        request.done, request.answer = True, answer
        if self._closing or self._pumping:
            return  # nobody is left to be told, or whoever pumps will see it
        if self._under_way[0].done:
            self._send_answers()
            self._pump()
        self._update_flow_control()

    def _send_answers(self) -> bool:
        """Send what is answered, in order; whether that made room for more."""
        under_way = self._under_way
        sent = False
        while under_way and under_way[0].done and not self._closing:
            self._send(under_way.popleft())
            sent = True
        return sent

    def _send(self, request: _InFlightRequest) -> None:
        self._bytes -= request.size
        self._server.released(request.size)
        answer, transport = request.answer, self._transport
        assert transport is not None
        if isinstance(answer, asyncio.CancelledError):
            self.close()
            return
        if isinstance(answer, BaseException):
            self._refuse(answer, request.call)
            return
        if answer is None:
            return  # acks=0
        # The answer to ApiVersions has the oldest header always: its reader does not know yet what we speak.
        flexible = request.api.is_flexible(request.call.version) and request.api.key != _API_VERSIONS
        head = _ANSWER_FLEXIBLE if flexible else _ANSWER
        size = head.size - 4 + sum(map(len, answer))
        transport.writelines([head.pack(size, request.call.correlation), *answer])

    # ── limits ──

    def _update_flow_control(self) -> None:
        """Read on, or stop reading, as there is room for more requests."""
        settings = self._settings
        # What is arriving is never waited for by itself: only what is there will be answered and make room.
        there = self._bytes - (len(self._frame) if self._frame is not None else 0)
        full = (
            self._clogged
            or self._stopping
            or self._held is not None
            or len(self._waiting) + len(self._under_way) >= settings.requests_in_flight_max
            or there >= settings.in_flight_bytes_max
            or (self._server.full and there > 0)
        )
        if full != self._paused and self._transport is not None and not self._closing:
            self._paused = full
            if full:
                self._transport.pause_reading()
                self._server.queue_for_memory(self)
            else:
                self._transport.resume_reading()

    def memory_freed(self) -> None:
        """Other connections' requests are answered: perhaps there is room now."""
        if self._held is not None:
            if self._server.full:
                self._server.queue_for_memory(self)  # others were faster
                return
            (size, beginning), self._held = self._held, None
            self._begun(size, beginning)
        self._update_flow_control()

    def overdue(self, now_ms: int) -> str | None:
        """Why this connection should be closed, if it should."""
        settings = self._settings
        if self._clogged and now_ms - self.clogged_at_ms > settings.write_ms:
            return f"answers were left unread for {settings.write_ms} ms"
        if self._frame is not None and not self._paused and now_ms - self.frame_at_ms > settings.frame_ms:
            return f"a request took more than {settings.frame_ms} ms to arrive"
        busy = self._waiting or self._under_way or self._frame is not None or self._held is not None
        if not busy and now_ms - self.active_at_ms > settings.idle_ms:
            return f"no request for {settings.idle_ms} ms"
        return None

    @property
    def busy(self) -> bool:
        """Whether something is being answered that a polite stop should wait for."""
        return any(
            not request.api.long_poll for request in self._under_way
        )  # what waits behind a long poll will wait on

    def stop_reading(self) -> None:
        """Take no more requests."""
        self._stopping = True
        self._update_flow_control()

    def close(self) -> None:
        """Hang up, after what was answered is sent."""
        if self._transport is not None and not self._closing:
            self._closing = True
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Hang up at once."""
        _log.info("closing connection from %s:%d: %s", self._peer.host, self._peer.port, reason)
        if self._transport is not None:
            self._closing = True
            self._transport.abort()

    def _refuse(self, error: BaseException, call: RequestContext | None = None) -> None:
        """What came is not a request, or answering it failed in a way nobody foresaw."""
        where = f"{self._peer.host}:{self._peer.port}"
        if isinstance(error, MalformedRequestError):
            self._server.malformed += 1
            _log.warning("closing connection from %s: %s", where, error)
        else:
            software = f", {self._peer.software}" if self._peer.software else ""
            asked = f"{call.api.name} v{call.version} of {call.client_id!r}{software}" if call else "a request"
            _log.error("closing connection from %s: %s failed", where, asked, exc_info=error)
        self.close()


async def _answer(request: _InFlightRequest) -> ResponseChunks | None:
    api, call, body = request.api, request.call, request.body
    if api.raw is not None:
        return await api.raw(call, body)
    assert api.control is not None
    answer = await api.control(call, decode(api.key, call.version, body))
    return (encode(api.key, call.version, answer),)
