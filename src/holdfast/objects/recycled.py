"""Recycled memory for large reads: page-aligned, as O_DIRECT asks for, and warm, so that no page is cleared for every read.

Sizes are rounded up to classes an eighth of a power of two apart, so that what came back fits the next read. Safe on any thread.
"""

import mmap
import threading
import weakref
from collections import defaultdict
from typing import Final

from holdfast.vocabulary.lending import anonymous, lend

_SMALLEST_BITS: Final = 20  # classes begin at 1 MiB


class Recycled:
    """Memory that comes back when the last view of it is gone; at most `idle_bytes_max` of it is kept."""

    def __init__(self, idle_bytes_max: int) -> None:
        self._idle_bytes_max = idle_bytes_max
        self._idle: defaultdict[int, list[mmap.mmap]] = defaultdict(list)
        self._lent: dict[int, weakref.ref[object]] = {}
        self._lock = threading.RLock()  # a view may be dropped by the collector while this thread is in here
        self.idle_bytes = 0

    def take(self, size: int) -> memoryview:
        """At least `size` bytes that nobody else sees, beginning at a page."""
        wanted = size_class(size)
        with self._lock:
            idle = self._idle[wanted]
            memory = idle.pop() if idle else None
            if memory is not None:
                self.idle_bytes -= wanted
        if memory is None:
            memory = anonymous(wanted)
        return self._lend(memory)

    def _lend(self, memory: mmap.mmap) -> memoryview:
        key = id(memory)
        view, self._lent[key] = lend(memory, lambda _: self._came_back(key, memory))
        return view

    def _came_back(self, key: int, memory: mmap.mmap) -> None:
        with self._lock:
            del self._lent[key]
            size = len(memory)
            if self.idle_bytes + size <= self._idle_bytes_max:
                self._idle[size].append(memory)
                self.idle_bytes += size


def size_class(size: int) -> int:
    """`size`, rounded up by at most an eighth of itself."""
    step = 1 << max(_SMALLEST_BITS, (size - 1).bit_length() - 1) >> 3
    return -(-size // step) * step
