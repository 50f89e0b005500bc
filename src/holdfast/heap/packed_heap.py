"""A heap of offsets by a number each, packed into one integer: about 56 bytes for a message, whatever it is ordered by.

The one rule: entries are removed lazily. An offset is in the heap if its bit is set; an entry of it counts if its number is the one
the offset has now. So removing costs nothing, and stale entries go when they come to the top, or when there are too many.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from holdfast.heap.message_id import OFFSET_MAX
from holdfast.heap.offset_bitmap import OffsetBitmap

_SHIFT: Final = 56
_STALE_MIN: Final = 4_096


class HeapImage(NamedTuple):
    """A heap as it is: its entries, stale ones too; its offsets as pieces of a bitmap; the numbers that were changed."""

    entries: list[int]
    members: dict[int, bytes]
    changed: dict[int, int]


class PackedHeap:
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
        heapq.heappush(self._entries, number << _SHIFT | offset)
        if len(self._entries) > 2 * len(self._members) + _STALE_MIN:
            self._sweep()

    def add_run(self, first: int, numbers: Collection[int]) -> None:
        """Add offsets from `first` on, one for each number; none of them was here before."""
        self._members.add_run(first, first + len(numbers))
        entries, push = self._entries, heapq.heappush
        for offset, number in enumerate(numbers, first):
            push(entries, number << _SHIFT | offset)
        if len(entries) > 2 * len(self._members) + _STALE_MIN:
            self._sweep()

    def discard(self, offset: int) -> bool:
        """Remove an offset; whether it was there."""
        if self._changed:
            self._changed.pop(offset, None)
        return self._members.discard(offset)

    def first(self) -> tuple[int, int] | None:
        """The number and offset at the top."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if self._counts(entry):
                return entry >> _SHIFT, entry & OFFSET_MAX
            heapq.heappop(entries)
        return None

    def take(self, count: int) -> list[tuple[int, int]]:
        """Up to `count` numbers and offsets from the top. Their entries are gone: the caller discards them, or adds them again."""
        taken: list[tuple[int, int]] = []
        entries, before, pop = self._entries, -1, heapq.heappop
        members, changed = self._members, self._changed
        while entries and len(taken) < count:
            entry = pop(entries)
            offset = entry & OFFSET_MAX
            if entry != before and offset in members and (not changed or self._counts(entry)):
                taken.append((entry >> _SHIFT, offset))
                before = entry
        return taken

    def peek(self, count: int) -> list[tuple[int, int]]:
        """Up to `count` numbers and offsets from the top; they stay."""
        taken = self.take(count)
        for number, offset in taken:
            heapq.heappush(self._entries, number << _SHIFT | offset)
        return taken

    def changed(self) -> Collection[int]:
        """The offsets that were here before, or were changed."""
        return self._changed.keys()

    def changed_number(self, offset: int) -> int | None:
        """The number of an offset that was here before, or was changed; of others only their entry knows it."""
        return self._changed.get(offset)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Numbers and offsets, in order."""
        before = -1
        for entry in sorted(filter(self._counts, self._entries)):
            if entry != before:
                yield entry >> _SHIFT, entry & OFFSET_MAX
            before = entry

    def from_offset(self, start: int) -> Iterator[int]:
        """The offsets from `start` on, by offset."""
        return self._members.from_offset(start)

    def image(self) -> HeapImage:
        """A copy, in a few milliseconds for a million entries."""
        return HeapImage(self._entries.copy(), self._members.chunks(), self._changed.copy())

    @classmethod
    def restored(cls, image: HeapImage) -> "PackedHeap":
        """The heap of an image, which it takes over."""
        heap = cls()
        heap._entries, heap._changed = image.entries, image.changed
        for number, chunk in image.members.items():
            heap._members.restore(number, chunk)
        return heap

    @classmethod
    def of(cls, entries: Iterable[int], offsets: Iterable[int], changed: dict[int, int]) -> "PackedHeap":
        """The heap of entries that count, each with the offset and the number that it has."""
        heap = cls()
        heap._entries, heap._changed = list(entries), changed
        heapq.heapify(heap._entries)
        for offset in offsets:
            heap._members.add(offset)
        return heap

    def _counts(self, entry: int) -> bool:
        offset = entry & OFFSET_MAX
        return offset in self._members and (
            not self._changed or self._changed.get(offset, entry >> _SHIFT) == entry >> _SHIFT
        )

    def _sweep(self) -> None:
        self._entries = list(set(filter(self._counts, self._entries)))
        heapq.heapify(self._entries)
