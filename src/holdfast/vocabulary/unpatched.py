"""Names as they were before gevent replaced them, for what has to run on an operating system's thread.

The one rule: gevent is never imported here. It may replace names at any time, so they are looked up when they are used.
"""

import sys
from importlib import import_module
from typing import Any


def unpatched(module: str, name: str) -> Any:
    """A name of a module of the standard library."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(import_module(module), name)
