"""Kafka requests by hand, for what no client sends: damaged, duplicated, out of order.

Only what the tests need: Produce 7, Fetch 4, ApiVersions 0 and InitProducerId 0, which every broker still supports.
"""

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.batches import Record, encode
from holdfast.vocabulary.clock import RealClock

TIMEOUT_S = 20
NOT_READY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def request(api: int, version: int, number: int, body: bytes) -> bytes:
    """A frame with a header of the first kind."""
    frame = struct.pack(">hhi", api, version, number) + text("by hand") + body
    return struct.pack(">i", len(frame)) + frame


def batch(*values: bytes, compression: str = "none") -> bytes:
    """One batch with these values, one record each."""
    now_ms = RealClock().now_ms()
    return encode([Record(at, now_ms, None, value) for at, value in enumerate(values)], compression=compression)


def produce(number: int, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> bytes:
    """Produce 7: one partition, its batches as given."""
    part = struct.pack(">ii", partition, len(records)) + records
    topics = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + part
    return request(ApiKey.PRODUCE, 7, number, struct.pack(">hhi", -1, acks, 10_000) + topics)


def fetch(
    number: int, topic: str, offset: int, *, wait_ms: int = 0, bytes_max: int = 2**20, partition: int = 0
) -> bytes:
    """Fetch 4: one partition from `offset` on, at least one byte."""
    part = struct.pack(">iqi", partition, offset, bytes_max)
    topics = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + part
    return request(ApiKey.FETCH, 4, number, struct.pack(">iiiib", -1, wait_ms, 1, bytes_max, 0) + topics)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to `fetch`."""

    number: int
    error: int
    high_watermark: int
    records: bytes


@dataclass(frozen=True, slots=True)
class Produced:
    """The answer to `produce`."""

    number: int
    error: int
    base_offset: int


class Wire:
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def answer(self) -> bytes:
        """The next frame, without its size; nothing when the broker has closed the connection."""
        size = self._read(4)
        return self._read(int.from_bytes(size, "big")) if size else b""

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            try:
                more = self._socket.recv(count - len(found))
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            found += more
        return found

    def produced(self) -> Produced:
        answer = self.answer()
        (number, _, name) = struct.unpack_from(">iih", answer)
        error, base_offset = struct.unpack_from(">hq", answer, 10 + name + 8)
        return Produced(number, error, base_offset)

    def fetched(self) -> Fetched:
        answer = self.answer()
        number, _, _, name = struct.unpack_from(">iiih", answer)
        error, high, _, aborted = struct.unpack_from(">hqqi", answer, 14 + name + 8)
        assert aborted <= 0
        return Fetched(number, error, high, answer[14 + name + 8 + 22 + 4 :])

    def producer_id(self) -> tuple[int, int]:
        """A new producer: its id and epoch. A broker that has just started may not be ready."""
        for _ in range(1_000):
            self.send(request(ApiKey.INIT_PRODUCER_ID, 0, 1, struct.pack(">hi", -1, 60_000)))
            _, _, error, producer_id, epoch = struct.unpack(">iihqh", self.answer())
            if error == ErrorCode.NONE:
                return producer_id, epoch
            assert error in NOT_READY, f"error {error}"
        raise AssertionError("the broker assigns no producer ids")

    def versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and highest version of each API that the broker advertises."""
        self.send(request(ApiKey.API_VERSIONS, 0, 1, b""))
        answer = self.answer()
        _, error, count = struct.unpack_from(">ihi", answer)
        assert error == ErrorCode.NONE
        listed = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
        return {key: (lowest, highest) for key, lowest, highest in listed}
