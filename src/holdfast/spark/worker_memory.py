"""A task's process has many tasks: what it has freed, and what it has loaded, is kept for the next ones.

A task takes and frees buffers of megabytes again and again. Given back to the system each time, they come back page by page and
cleared: a quarter of what reading costs. After each task Spark looks for cycles among all objects, modules too: tens of
milliseconds before the next one begins. The one rule: only processes that run tasks call this.
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
    """From now on this process keeps up to 256 MiB of what it frees. Other C libraries than glibc do as they like."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_TRIM_THRESHOLD, _RETAINED_BYTES)
            mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


@cache
def freeze_loaded_objects() -> None:
    """At the end of this process's first task: what is there now stays, and is not looked through any more."""
    gc.collect()
    gc.freeze()
