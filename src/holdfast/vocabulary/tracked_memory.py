"""Lending memory: views of it go anywhere, and it comes back by itself when the last of them is gone.

The one rule: nobody has to give anything back, so live data is never overwritten. A view of ten bytes keeps all that was lent.
"""

import ctypes
import mmap
import weakref
from collections.abc import Callable
from contextlib import suppress


def tracked_view(
    memory: mmap.mmap, on_release: Callable[[weakref.ref[object]], None], *, at: int = 0, size: int | None = None
) -> tuple[memoryview, weakref.ref[object]]:
    """A view of `size` bytes of `memory` from `at` on, and a reference to be kept.

    `came_back` is called, on any thread, when no view is left.
    """
    # Every view and slice keeps `loan` alive, and `loan` can be watched, which views cannot.
    buffer = (ctypes.c_ubyte * (len(memory) - at if size is None else size)).from_buffer(memory, at)
    return memoryview(buffer).cast("B"), weakref.ref(buffer, on_release)


def retained_bytes(view: memoryview) -> int:
    """How much memory a view keeps, beyond what it shows."""
    return memoryview(view.obj).nbytes


def anonymous_mmap(size: int) -> mmap.mmap:
    """Memory of this process alone, in large pages where the system has them: a page fault costs more than the page."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # the default is shared, which is slower
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
