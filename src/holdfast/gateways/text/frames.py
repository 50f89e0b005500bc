"""Frames of the text protocol: a length (u32, little-endian) and so many bytes. No I/O.

The one rule: a frame of an invalid length is answered and drained, so that the frames after it are understood.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

_LENGTH: Final = Struct("<I")
HEADER_BYTES: Final = _LENGTH.size


class InvalidFrame(NamedTuple):
    """A frame of an invalid length, whose bytes are dropped."""

    length: int


class FrameParser:
    """Frames from bytes as they come, up to `bytes_max` each."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._drain = 0  # bytes of an invalid frame that are still to come

    @property
    def held_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._buffer)

    @property
    def incomplete(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer) or self._drain > 0

    def feed(self, data: bytes) -> list[bytes | InvalidFrame]:
        """The frames that are complete with these bytes; an invalid one as soon as its length is known."""
        buffer = self._buffer
        buffer += data
        found: list[bytes | InvalidFrame] = []
        at, end = 0, len(buffer)
        while True:
            if self._drain:
                dropped = min(self._drain, end - at)
                self._drain -= dropped
                at += dropped
            if end - at < HEADER_BYTES:
                break
            (length,) = _LENGTH.unpack_from(buffer, at)
            if not 0 < length <= self._bytes_max:
                found.append(InvalidFrame(length))
                at += HEADER_BYTES
                self._drain = length
                continue
            if end - at < HEADER_BYTES + length:
                break
            found.append(bytes(memoryview(buffer)[at + HEADER_BYTES : at + HEADER_BYTES + length]))
            at += HEADER_BYTES + length
        del buffer[:at]
        return found


def encode_frames(bodies: Iterable[bytes]) -> bytes:
    """Frames with these bodies, one after another."""
    return b"".join(part for body in bodies for part in (_LENGTH.pack(len(body)), body))
