"""Tracked memory: views of a buffer, and a callback when the last of them is garbage.

The one rule: a buffer is reused only after every view of it is gone, so live data is never overwritten. A view of ten bytes retains
the whole buffer.
"""

import ctypes
import mmap
import weakref
from collections.abc import Callable
from contextlib import suppress


def tracked_view(
    memory: mmap.mmap, on_release: Callable[[weakref.ref[object]], None], *, at: int = 0, size: int | None = None
) -> tuple[memoryview, weakref.ref[object]]:
    """A view of `size` bytes of `memory` from `at` on, and a weak reference that the caller keeps.

    `on_release` is called, on any thread, when no view is left.
    """
    # Every view and slice keeps `buffer` alive, and `buffer` can have a weak reference, which views cannot.
    buffer = (ctypes.c_ubyte * (len(memory) - at if size is None else size)).from_buffer(memory, at)
    return memoryview(buffer).cast("B"), weakref.ref(buffer, on_release)


def retained_bytes(view: memoryview) -> int:
    """How much memory a view retains, including what it does not show."""
    return memoryview(view.obj).nbytes


def anonymous_mmap(size: int) -> mmap.mmap:
    """Private memory, in huge pages where the system has them: a page fault costs more than the page."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # the default is shared, which is slower
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
