"""Buffer pool: recycled, page-aligned memory for large O_DIRECT reads, so that no read pays for clearing new pages.

A released buffer serves the next read that it fits: segments have many sizes, and a buffer up to twice too large is cheaper than a
new one. Thread-safe.
"""

import mmap
import threading
import weakref
from typing import Final

from holdfast.vocabulary.tracked_memory import anonymous_mmap, tracked_view

_SMALLEST_BITS: Final = 20  # sizes are rounded up to an eighth of a power of two, from 1 MiB on
_TOO_LARGE: Final = 2


class BufferPool:
    """Buffers that return to the pool when their last view is gone; at most `idle_bytes_max` are kept."""

    def __init__(self, idle_bytes_max: int) -> None:
        self._idle_bytes_max = idle_bytes_max
        self._idle: list[mmap.mmap] = []  # released last, last
        self._lent: dict[int, weakref.ref[object]] = {}
        self._lock = threading.RLock()  # the collector may release a view while this thread holds the lock
        self.idle_bytes = 0

    def take(self, size: int) -> memoryview:
        """At least `size` bytes of exclusive memory, page-aligned."""
        with self._lock:
            memory = self._fitting(size)
        return self._lend(memory if memory is not None else anonymous_mmap(size_class(size)))

    def _fitting(self, size: int) -> mmap.mmap | None:
        """The smallest that fits; of equals the last released."""
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
        view, self._lent[key] = tracked_view(memory, lambda _: self._on_released(key, memory))
        return view

    def _on_released(self, key: int, memory: mmap.mmap) -> None:
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
