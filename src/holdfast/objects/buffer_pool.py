"""Recycled memory for large reads: page-aligned, as O_DIRECT asks for, and warm, so that no page is cleared for every read.

What came back serves the next read that fits it well: segments are of many sizes, and one that is twice too large is better than a
fresh one. Safe on any thread.
"""

import mmap
import threading
import weakref
from typing import Final

from holdfast.vocabulary.tracked_memory import anonymous_mmap, tracked_view

_SMALLEST_BITS: Final = 20  # sizes are rounded up to an eighth of a power of two, from 1 MiB on
_TOO_LARGE: Final = 2


class BufferPool:
    """Memory that comes back when the last view of it is gone; at most `idle_bytes_max` of it is kept."""

    def __init__(self, idle_bytes_max: int) -> None:
        self._idle_bytes_max = idle_bytes_max
        self._idle: list[mmap.mmap] = []  # what came back last is the last
        self._lent: dict[int, weakref.ref[object]] = {}
        self._lock = threading.RLock()  # a view may be dropped by the collector while this thread is in here
        self.idle_bytes = 0

    def take(self, size: int) -> memoryview:
        """At least `size` bytes that nobody else sees, beginning at a page."""
        with self._lock:
            memory = self._fitting(size)
        return self._lend(memory if memory is not None else anonymous_mmap(size_class(size)))

    def _fitting(self, size: int) -> mmap.mmap | None:
        """The smallest that will do, of those the youngest."""
        best = None
        for memory in self._idle:
            if size <= len(memory) <= _TOO_LARGE * size and (best is None or len(memory) <= len(best)):
                best = memory
        if best is not None:
            self._idle.remove(best)
            self.idle_bytes -= len(best)
        return best

    def _lend(self, memory: mmap.mmap) -> memoryview:
        key = id(memory)
        view, self._lent[key] = tracked_view(memory, lambda _: self._came_back(key, memory))
        return view

    def _came_back(self, key: int, memory: mmap.mmap) -> None:
        with self._lock:
            del self._lent[key]
            self._idle.append(memory)
            self.idle_bytes += len(memory)
            while self.idle_bytes > self._idle_bytes_max:
                self.idle_bytes -= len(self._idle.pop(0))


def size_class(size: int) -> int:
    """`size`, rounded up by at most an eighth of itself."""
    step = 1 << max(_SMALLEST_BITS, (size - 1).bit_length() - 1) >> 3
    return -(-size // step) * step
