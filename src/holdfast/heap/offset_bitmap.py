"""A set of offsets as bits, in pieces that go when they are empty: an eighth of a byte for each, where a set takes sixty."""

from collections.abc import Iterator
from typing import Final

_CHUNK_BITS: Final = 13
_CHUNK_BYTES: Final = (1 << _CHUNK_BITS) // 8
_IN_CHUNK: Final = (1 << _CHUNK_BITS) - 1
_BITS: Final = tuple(1 << bit for bit in range(8))


class OffsetBitmap:
    """A set of offsets."""

    __slots__ = ("_chunks", "_counts", "_length")

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}
        self._counts: dict[int, int] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, offset: int) -> bool:
        chunk = self._chunks.get(offset >> _CHUNK_BITS)
        return chunk is not None and bool(chunk[(offset & _IN_CHUNK) >> 3] & _BITS[offset & 7])

    def __iter__(self) -> Iterator[int]:
        return self.from_offset(0)

    def from_offset(self, start: int) -> Iterator[int]:
        """The offsets from `start` on, in order."""
        for number in sorted(each for each in self._chunks if each >= start >> _CHUNK_BITS):
            base = number << _CHUNK_BITS
            bits = int.from_bytes(self._chunks[number], "little")
            if start > base:
                bits = bits >> (start - base) << (start - base)
            while bits:
                lowest = bits & -bits
                yield base + lowest.bit_length() - 1
                bits ^= lowest

    def chunks(self) -> dict[int, bytes]:
        """A copy of the pieces: 8192 bits each, by their number, the least offset in the least bit."""
        return {number: bytes(chunk) for number, chunk in self._chunks.items()}

    def restore(self, number: int, chunk: bytes) -> None:
        """Take over a piece of `chunks`."""
        count = int.from_bytes(chunk, "little").bit_count()
        if len(chunk) != _CHUNK_BYTES or not count:
            raise ValueError(f"piece {number} has {len(chunk)} bytes and {count} offsets")
        self._chunks[number], self._counts[number] = bytearray(chunk), count
        self._length += count

    def add(self, offset: int) -> bool:
        """Add an offset; whether it is new."""
        number, at, bit = offset >> _CHUNK_BITS, (offset & _IN_CHUNK) >> 3, _BITS[offset & 7]
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = bytearray(_CHUNK_BYTES)
            self._counts[number] = 0
        elif chunk[at] & bit:
            return False
        chunk[at] |= bit
        self._counts[number] += 1
        self._length += 1
        return True

    def add_run(self, first: int, end: int) -> None:
        """Add the offsets from `first` up to `end`, without it."""
        while first < end:
            number = first >> _CHUNK_BITS
            until = min(end, (number + 1) << _CHUNK_BITS)
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = bytearray(_CHUNK_BYTES)
                self._counts[number] = 0
            at, last = first & _IN_CHUNK, (until - 1) & _IN_CHUNK
            span = slice(at >> 3, (last >> 3) + 1)
            before = int.from_bytes(chunk[span], "little")
            after = before | ((1 << (last - at + 1)) - 1) << (at & 7)
            chunk[span] = after.to_bytes(span.stop - span.start, "little")
            added = (before ^ after).bit_count()
            self._counts[number] += added
            self._length += added
            first = until

    def discard(self, offset: int) -> bool:
        """Remove an offset; whether it was there."""
        number, at, bit = offset >> _CHUNK_BITS, (offset & _IN_CHUNK) >> 3, _BITS[offset & 7]
        chunk = self._chunks.get(number)
        if chunk is None or not chunk[at] & bit:
            return False
        chunk[at] ^= bit
        self._length -= 1
        if self._counts[number] == 1:
            del self._chunks[number], self._counts[number]
        else:
            self._counts[number] -= 1
        return True
