"""Memory of Spark's Python workers, which run many tasks: freed buffers and loaded modules are kept for the next one.

A task allocates and frees buffers of megabytes all the time. Returned to the system, they come back page by page and zeroed: a
quarter of the cost of reading. And after each task Spark runs a full garbage collection over all objects, modules included: tens of
milliseconds. The one rule: only processes that run tasks call this.
"""

import ctypes
import gc
import sys
from contextlib import suppress
from functools import cache
from typing import Final

from holdfast.vocabulary.settings import MIB

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_RETAINED_BYTES: Final = 256 * MIB
_MMAP_THRESHOLD_BYTES: Final = 32 * MIB  # the most it allows


@cache
def retain_freed_memory() -> None:
    """Keep up to 256 MiB of freed memory in this process. glibc only."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_TRIM_THRESHOLD, _RETAINED_BYTES)
            mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


@cache
def freeze_loaded_objects() -> None:
    """Exclude the objects that exist now from garbage collection. For the end of a process's first task."""
    gc.collect()
    gc.freeze()
