"""A small number for each of many offsets, four bytes each: which fairness key a message has.

The one rule: 0 is nothing. Offsets lie close together, so they are kept in chunks; a chunk without a number is dropped.
"""

import sys
from array import array
from collections.abc import Iterator
from typing import Final

_CHUNK: Final = 4_096


class OffsetTable:
    """Numbers by offset, from 1 to 2^32 - 1."""

    __slots__ = ("_chunks", "_used")

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self._used: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(self._used.values())

    def get(self, offset: int) -> int:
        """The number of an offset; 0: none."""
        chunk = self._chunks.get(offset // _CHUNK)
        return 0 if chunk is None else chunk[offset % _CHUNK]

    def set(self, offset: int, number: int) -> None:
        """Give an offset a number; 0 takes it away."""
        at = offset // _CHUNK
        chunk = self._chunks.get(at)
        if chunk is None:
            if not number:
                return
            chunk = self._chunks[at] = array("I", bytes(4 * _CHUNK))
            self._used[at] = 0
        place = offset % _CHUNK
        self._used[at] += bool(number) - bool(chunk[place])
        chunk[place] = number
        if not self._used[at]:
            del self._chunks[at], self._used[at]

    def numbered(self, start: int = 0) -> Iterator[tuple[int, int]]:
        """Offsets from `start` on that have a number, by offset, with it."""
        for at in sorted(at for at in self._chunks if at >= start // _CHUNK):
            first = at * _CHUNK
            for offset, number in enumerate(self._chunks[at].tolist(), first):
                if number and offset >= start:
                    yield offset, number

    def chunks(self) -> dict[int, bytes]:
        """A copy: 4,096 numbers of four bytes each, big-endian, by which chunk they are."""
        return {at: _big_endian(chunk[:]).tobytes() for at, chunk in self._chunks.items()}

    def restore(self, at: int, chunk: bytes) -> None:
        """A chunk of a copy. `ValueError`: it is none."""
        numbers = array("I")
        numbers.frombytes(chunk)
        if len(numbers) != _CHUNK:
            raise ValueError(f"{len(numbers)} numbers in chunk {at}")
        self._chunks[at] = _big_endian(numbers)
        self._used[at] = _CHUNK - self._chunks[at].count(0)


def _big_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
