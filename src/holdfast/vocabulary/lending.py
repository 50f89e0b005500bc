"""Lending memory: views of it go anywhere, and it comes back by itself when the last of them is gone.

The one rule: nobody has to give anything back, so live data is never overwritten. A view of ten bytes keeps all of it.
"""

import ctypes
import mmap
import weakref
from collections.abc import Callable


def lend(
    memory: bytearray | mmap.mmap, came_back: Callable[[weakref.ref[object]], None]
) -> tuple[memoryview, weakref.ref[object]]:
    """A view of `memory`, and a reference to be kept: `came_back` is called, on any thread, when no view is left."""
    # Every view and slice keeps `loan` alive, and `loan` can be watched, which neither views nor bytearrays allow.
    loan = (ctypes.c_ubyte * len(memory)).from_buffer(memory)
    return memoryview(loan).cast("B"), weakref.ref(loan, came_back)


def lent_bytes(view: memoryview) -> int:
    """How much memory a view keeps, beyond what it shows."""
    return memoryview(view.obj).nbytes
