"""Frames of a connection: bytes in, whole requests out, within the memory that all connections share.

Nothing large is copied: small frames come through a buffer that all connections share (an idle connection owns none), a large one
is received straight into memory of its own, from which the WAL writes it and fetches serve it.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Final, Protocol

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.connection_throttle import ConnectionThrottle
from holdfast.gateways.kafka.produce_runs import ProduceRuns
from holdfast.gateways.kafka.unsupported import UnsupportedRequests
from holdfast.kafka.wire import INT32, MalformedRequestError
from holdfast.security.connection_rates import Admission
from holdfast.vocabulary.histogram import Latencies
from holdfast.vocabulary.settings import KIB

_SMALL_BYTES: Final = 64 * KIB  # requests up to this size never wait for memory: records must not delay a heartbeat
_FRAME_BYTES_MIN: Final = 8


class ConnectionHost(Protocol):
    """What connections share."""

    backend: KafkaBackend
    scratch: memoryview
    used_bytes: int  # of requests arriving, queued or in flight
    bytes_max: int
    requests: int
    malformed: int
    latencies: Latencies
    unsupported: UnsupportedRequests
    produce_runs: ProduceRuns
    throttle: ConnectionThrottle

    @property
    def full(self) -> bool:
        """Whether requests hold all the memory they may."""
        ...

    def memory(self, size: int) -> memoryview:
        """Memory for a request of `size` bytes."""
        ...

    def taken(self, size: int) -> None:
        """A request has begun to arrive."""
        ...

    def released(self, size: int) -> None:
        """Requests were answered, or their connection is gone."""
        ...

    def queue_for_memory(self, connection: "FrameReceiver") -> None:
        """Call the connection's `memory_freed` once requests of others are answered."""
        ...

    def admission(self, host: str) -> Admission:
        """Whether a new connection of a host is served, and when."""
        ...

    def joined(self, connection: "FrameReceiver", peer: str) -> bool:
        """Add a connection; False: there are too many."""
        ...

    def left(self, connection: "FrameReceiver") -> None:
        """Remove a closed connection."""
        ...


class FrameReceiver(asyncio.BufferedProtocol, ABC):
    """The receiving half of a connection. A base class, not a part: it stands in the way of every byte."""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self._backend, self._settings = server.backend, server.backend.settings
        self._request_bytes_max = self._settings.request_bytes_max
        self._length = b""  # up to three bytes of a frame's length
        self._frame: memoryview | None = None  # a frame that is arriving
        self._filled = 0
        self._held: tuple[int, bytes] | None = None  # a large frame that may not begin yet: its size and first bytes
        self._muted: asyncio.TimerHandle | None = None  # until a client that is beyond a quota is read again
        self._unparsed: memoryview | None = None  # requests that wait until those before them are answered
        self._bytes = 0  # of requests arriving, queued or in flight
        self._closing = False
        self.frame_at_ms = server.backend.clock.boot_ms()

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
                    self._frame_received(frame)
            else:
                self._received(self._server.scratch[:nbytes])
        except MalformedRequestError as error:
            self._fail(error)
        self._update_flow_control()

    @property
    def waits_for_memory(self) -> bool:
        """Whether a large request waits until others are answered, or gone."""
        return self._held is not None and self._muted is None

    def memory_freed(self) -> None:
        """Requests of other connections were answered."""
        if self._held is not None and self._muted is None:
            if self._server.full:
                self._server.queue_for_memory(self)  # others were faster
                return
            (size, beginning), self._held = self._held, None
            self._frame_begun(size, beginning)
        self._update_flow_control()

    def _received(self, data: memoryview) -> None:
        if self._length:
            data, self._length = memoryview(self._length + data), b""
        at, end = 0, len(data)
        while end - at >= 4:
            if taken := self._take_run(data, at):
                at += taken
                continue
            (size,) = INT32.unpack_from(data, at)
            if not _FRAME_BYTES_MIN <= size <= self._request_bytes_max:
                allowed = f"between {_FRAME_BYTES_MIN} and {self._request_bytes_max}"
                raise MalformedRequestError("request size", size, allowed)
            if not self._accepts_requests():
                self._unparsed = data[at:] if data.readonly else memoryview(bytes(data[at:]))
                return
            at += 4
            available = min(size, end - at)
            if available < size > _SMALL_BYTES and (self._server.full or self._muted is not None):
                self._held = size, bytes(data[at:])
                return
            if not self._frame_begun(size, data[at : at + available]):
                return
            at += available
        if at < end:
            self._length = bytes(data[at:])

    def _parse_on(self) -> None:
        """Requests were answered: there may be room for those that were received and not looked at."""
        try:
            while self._unparsed is not None and self._accepts_requests():
                data, self._unparsed = self._unparsed, None
                self._received(data)
        except MalformedRequestError as error:
            self._fail(error)

    def _frame_begun(self, size: int, beginning: memoryview | bytes) -> bool:
        """Whether the frame is already complete. Its size counts from now on."""
        self._bytes += size
        self._server.taken(size)
        available = len(beginning)
        frame = self._server.memory(size)
        frame[:available] = beginning
        if available == size:
            self._frame_received(frame)
            return True
        self._frame, self._filled = frame, available
        self.frame_at_ms = self._backend.clock.boot_ms()
        return False

    @abstractmethod
    def _accepts_requests(self) -> bool:
        """Whether another request may be in flight."""

    @abstractmethod
    def _take_run(self, data: memoryview, at: int) -> int:
        """Take whole requests at `at` that can be handled together; how many bytes they were."""

    @abstractmethod
    def _frame_received(self, frame: memoryview) -> None:
        """A whole request, without its length. `MalformedRequestError`."""

    @abstractmethod
    def _fail(self, error: BaseException) -> None:
        """Close the connection for what it sent."""

    @abstractmethod
    def _update_flow_control(self) -> None:
        """Pause or resume reading."""
