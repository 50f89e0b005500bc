"""Imports beside the loop, one thread at a time.

Libraries have modules that import each other. Two threads that meet in such a circle get one of them half made, or Python's
deadlock error; whether they meet depends on the load.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

import_lock: Final = RLock()
"""Held by every thread that imports something large while others may do so too."""


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Have imports of a module fail during the body, unless it is there already. Under `importing`: all threads see it so."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # how Python itself says: there is none
    try:
        yield
    finally:
        del sys.modules[name]
