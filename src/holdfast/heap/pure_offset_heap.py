"""A heap of offsets in Python: what `packed_heap` stands on without the C extension, and what the tests compare that with.

The one rule: entries are removed lazily. An offset is in the heap if its bit is set; an entry of it counts if its number is the one
the offset has now. So removing costs nothing, and stale entries go when they come to the top, or when there are too many.
"""

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from struct import Struct
from typing import Final

from holdfast.heap.message_id import OFFSET_MAX
from holdfast.heap.offset_bitmap import OffsetBitmap

SHIFT: Final = 56
_ROW: Final = Struct("=QQQ")  # the upper and the lower half of a number, and its offset
ROW_BYTES: Final = _ROW.size
_WORD: Final = (1 << 64) - 1
_BIAS: Final = 1 << 63
_PRIORITY_MAX: Final = (1 << 63) - 1
_STALE_MIN: Final = 4_096
_SAMPLED: Final = 4_096
_BUCKETS: Final = 256
_OFFSETS_MAX: Final = 1 << 30
_ALL: Final = (1 << 128 + SHIFT) - 1


def entry_rows(entries: Sequence[int]) -> bytes:
    """Entries, a number and an offset in one integer each, as rows of three words."""
    return b"".join([_ROW.pack(each >> SHIFT + 64, each >> SHIFT & _WORD, each & OFFSET_MAX) for each in entries])


def entry_list(rows: bytes | bytearray) -> list[int]:
    """The entries of rows."""
    return [(high << 64 | low) << SHIFT | offset for high, low, offset in _ROW.iter_unpack(rows)]


class PureOffsetHeap:
    """Offsets, the least number first, then the least offset."""

    __slots__ = ("_changed", "_entries", "_members")

    def __init__(self) -> None:
        self._entries: list[int] = []
        self._members = OffsetBitmap()
        self._changed: dict[int, int] = {}  # numbers of offsets that may have other entries, too

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, offset: int) -> bool:
        return offset in self._members

    def add(self, offset: int, number: int, *, again: bool) -> None:
        """Add an offset, or change its number. `again`: it was here before."""
        self._members.add(offset)
        if again:
            self._changed[offset] = number
        heapq.heappush(self._entries, number << SHIFT | offset)
        self._sweep()

    def add_run(self, first: int, priorities: Sequence[int], least_first: bool) -> None:
        """Add offsets from `first` on, by the rank of a priority each; none of them was here before."""
        self._members.add_run(first, first + len(priorities))
        for offset, priority in enumerate(priorities, first):
            heapq.heappush(self._entries, _mirrored(priority, least_first) << SHIFT | offset)
        self._sweep()

    def discard(self, offset: int) -> bool:
        """Remove an offset; whether it was there."""
        self._changed.pop(offset, None)
        return self._members.discard(offset)

    def discard_pairs(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Remove the offsets that pairs begin with; the pairs whose offset was there."""
        return [pair for pair in pairs if self.discard(pair[0])]

    def first(self) -> tuple[int, int] | None:
        """The number and offset at the top."""
        while self._entries:
            entry = self._entries[0]
            if self._counts(entry):
                return entry >> SHIFT, entry & OFFSET_MAX
            heapq.heappop(self._entries)
        return None

    def take(self, count: int) -> list[tuple[int, int]]:
        """Up to `count` numbers and offsets from the top. Their entries are gone: the caller discards them, or adds them again."""
        taken: list[tuple[int, int]] = []
        before = -1
        while self._entries and len(taken) < count:
            entry = heapq.heappop(self._entries)
            if entry != before and self._counts(entry):
                taken.append((entry >> SHIFT, entry & OFFSET_MAX))
                before = entry
        return taken

    def take_granted(self, count: int, least_first: bool) -> tuple[tuple[int, int], ...]:
        """`take`, as the offsets and priorities of a heap that is ordered by ranks."""
        return tuple([(offset, _mirrored(rank, least_first, back=True)) for rank, offset in self.take(count)])

    def peek(self, count: int) -> list[tuple[int, int]]:
        """Up to `count` numbers and offsets from the top; they stay."""
        taken = self.take(count)
        for number, offset in taken:
            heapq.heappush(self._entries, number << SHIFT | offset)
        return taken

    def bound(self, count: int) -> tuple[int, int] | None:
        """The number and offset that about `count` entries are not above, by a sample; None: all of them."""
        used = len(self._entries)
        if count >= used:
            return None
        size = min(used, _SAMPLED)
        found = sorted(self._entries[at * used // size] for at in range(size))[count * size // used]
        return found >> SHIFT, found & OFFSET_MAX

    def bounds(self, count: int, buckets: int) -> tuple[tuple[int, int], ...]:
        """The bounds of so many parts of `count` entries, in order; one that has all of them is above every entry."""
        used = len(self._entries)
        if not 1 <= count <= _OFFSETS_MAX or not 1 <= buckets <= _BUCKETS:
            raise ValueError("1 to 256 buckets of some")
        size = min(used, _SAMPLED)
        sample = sorted(self._entries[at * used // size] for at in range(size))
        parts = [count * (at + 1) // buckets for at in range(buckets)]
        found = [_ALL if part >= used else sample[part * size // used] for part in parts]
        return tuple([(each >> SHIFT, each & OFFSET_MAX) for each in found])

    def offsets_within(self, bound: tuple[int, int] | None, part: int, parts: int) -> list[int]:
        """Offsets of the entries that are not above a bound, in no order.

        What is below an entry that is above it is above it, too, and is not looked at. A part has one of so many subtrees, the
        first one also what they hang on.
        """
        if not 0 <= part < parts or parts & parts - 1:
            raise ValueError("one of parts that are a power of two")
        entries, most = self._entries, _ALL if bound is None else bound[0] << SHIFT | bound[1]
        found = [] if part else [entry for entry in entries[: parts - 1] if entry <= most]
        later = [parts - 1 + part]
        while later:
            at = later.pop()
            if at < len(entries) and entries[at] <= most:
                found.append(entries[at])
                later += (2 * at + 2, 2 * at + 1)
        return [entry & OFFSET_MAX for entry in found if self._counts(entry)]

    def words_within(
        self, bounds: tuple[tuple[int, int], ...], places: dict[int, int], start: int, first: int, stop: int
    ) -> bytes:
        """The entries from `first` to `stop` that are not above the last bound, as words `place << 8 | bucket`.

        The bucket is that of the first bound an entry is not above; the place that of `places`, or its offset. Those whose place
        is before `start` are left out.
        """
        most = [number << SHIFT | offset for number, offset in bounds]
        if not 1 <= len(most) <= _BUCKETS:
            raise ValueError("1 to 256 bounds")
        words = array("Q")
        for entry in self._entries[first:stop]:
            bucket = bisect_left(most, entry)
            if bucket < len(most) and self._counts(entry):
                offset = entry & OFFSET_MAX
                place = places.get(offset, offset)
                if place >= start:
                    words.append(place << 8 | bucket)
        return words.tobytes()

    def entry_count(self) -> int:
        """How many entries there are, stale ones too."""
        return len(self._entries)

    def entries(self) -> bytes:
        """All entries, stale ones too, as rows of three words."""
        return entry_rows(self._entries)

    def chunks(self) -> dict[int, bytes]:
        """The offsets as pieces of a bitmap."""
        return self._members.chunks()

    def take_over(self, entries: bytes | bytearray, chunks: dict[int, bytes], changed: dict[int, int]) -> None:
        """Be the heap of `entries`, `chunks` and `changed_numbers`; it was empty."""
        self._entries, self._changed = entry_list(entries), changed
        heapq.heapify(self._entries)
        for number, chunk in chunks.items():
            self._members.restore(number, chunk)

    def offsets_from(self, start: int, most: int) -> list[int]:
        """Up to `most` offsets from `start` on, in order."""
        return list(islice(self._members.from_offset(start), most))

    def changed_numbers(self) -> dict[int, int]:
        """The numbers of offsets that were here before, or were changed."""
        return self._changed

    def _counts(self, entry: int) -> bool:
        offset = entry & OFFSET_MAX
        return offset in self._members and self._changed.get(offset, entry >> SHIFT) == entry >> SHIFT

    def _sweep(self) -> None:
        if len(self._entries) > 2 * len(self._members) + _STALE_MIN:
            self._entries = list(set(filter(self._counts, self._entries)))
            heapq.heapify(self._entries)


def _mirrored(number: int, least_first: bool, *, back: bool = False) -> int:
    """The rank of a priority, or `back`."""
    if least_first:
        return number - _BIAS if back else number + _BIAS
    return _PRIORITY_MAX - number


def pack_heap_entries(entries: bytes | bytearray, first: int, count: int) -> bytes:
    """Some of the entries as a frame of a snapshot: columns of big-endian words, offsets, and the halves of their numbers."""
    rows = list(_ROW.iter_unpack(entries[first * _ROW.size : (first + count) * _ROW.size]))
    words = [row[at] for at in (2, 1, 0) for row in rows]
    return Struct(f">{len(words)}Q").pack(*words)


def read_heap_entries(body: bytes) -> bytes:
    """The entries of such a frame."""
    count, rest = divmod(len(body), _ROW.size)
    if rest:
        raise ValueError(f"{len(body)} bytes in 3 columns")
    words = Struct(f">{3 * count}Q").unpack(body)
    if max(words[:count], default=0) > OFFSET_MAX:
        raise ValueError("an offset has 56 bits")
    return b"".join(map(_ROW.pack, words[2 * count :], words[count : 2 * count], words[:count]))
