"""A small number for each of many offsets, four bytes each: which fairness key a message has.

The one rule: 0 is nothing. Offsets lie close together, so they are kept in chunks; a chunk without a number is dropped.
"""

from array import array
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
