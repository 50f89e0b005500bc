"""A heap of offsets by a number each, 24 bytes for an entry, whatever it is ordered by.

The work is done by the C extension where it was built (`src/_native/offset_heap.c`), elsewhere by `pure_offset_heap`, which says
what its methods do. Both are equal, and so are their images.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.heap import pure_offset_heap
from holdfast.heap.message_id import OFFSET_MAX
from holdfast.heap.pure_offset_heap import SHIFT, entry_list, entry_rows
from holdfast.vocabulary.native import native

if TYPE_CHECKING:
    from holdfast._native import OffsetHeap
elif native is not None:
    OffsetHeap = native.OffsetHeap
else:
    OffsetHeap = pure_offset_heap.PureOffsetHeap

_TOGETHER: Final = 4_096

pack_heap_entries: Final = pure_offset_heap.pack_heap_entries if native is None else native.pack_heap_entries
read_heap_entries: Final = pure_offset_heap.read_heap_entries if native is None else native.read_heap_entries


class HeapImage(NamedTuple):
    """A heap as it is: its entries, stale ones too; its offsets as pieces of a bitmap; the numbers that were changed.

    Entries are rows of three words, as `OffsetHeap.entries` returns them; of a fair index they are integers, see `entry_rows`.
    """

    entries: bytes | bytearray | list[int]
    members: dict[int, bytes]
    changed: dict[int, int]


class PackedHeap(OffsetHeap):
    """Offsets, the least number first, then the least offset."""

    __slots__ = ()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Numbers and offsets, in order."""
        return iter(self.peek(len(self)))

    def changed(self) -> Collection[int]:
        """The offsets that were here before, or were changed."""
        return self.changed_numbers().keys()

    def changed_number(self, offset: int) -> int | None:
        """The number of an offset that was here before, or was changed; of others only their entry knows it."""
        return self.changed_numbers().get(offset)

    def from_offset(self, start: int) -> Iterator[int]:
        """The offsets from `start` on, by offset."""
        while some := self.offsets_from(start, _TOGETHER):
            yield from some
            start = some[-1] + 1

    def image(self) -> HeapImage:
        """A copy, in a few milliseconds for a million entries."""
        return HeapImage(self.entries(), self.chunks(), self.changed_numbers().copy())

    @classmethod
    def restored(cls, image: HeapImage) -> "PackedHeap":
        """The heap of an image, which it takes over."""
        heap = cls()
        rows = entry_rows(image.entries) if isinstance(image.entries, list) else image.entries
        heap.take_over(rows, image.members, image.changed)
        return heap

    @classmethod
    def of(cls, entries: Iterable[int], changed: dict[int, int]) -> "PackedHeap":
        """The heap of entries that count, a number and an offset in one integer each, and the numbers that were changed."""
        heap = cls()
        for entry in set(entries):
            offset = entry & OFFSET_MAX
            heap.add(offset, entry >> SHIFT, again=offset in changed)
        return heap


__all__ = ["HeapImage", "PackedHeap", "entry_list", "entry_rows", "pack_heap_entries", "read_heap_entries"]
