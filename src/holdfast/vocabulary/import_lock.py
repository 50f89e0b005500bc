"""Imports in threads, one at a time.

Libraries have modules that import each other. Two threads that enter such a cycle from both ends get a half-initialized module, or
Python's deadlock error; whether they do depends on the load.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

import_lock: Final = RLock()
"""Held by every thread that imports something large while others may do so too."""


@contextmanager
def hide_module(name: str) -> Iterator[None]:
    """Make imports of a module fail during the body, unless it is loaded already. Hold `import_lock`: all threads are affected."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # Python's own marker of a module that cannot be imported
    try:
        yield
    finally:
        del sys.modules[name]
