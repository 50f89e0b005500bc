"""Imports beside the loop, one thread at a time.

Libraries have modules that import each other. Two threads that meet in such a circle get one of them half made, or Python's
deadlock error; whether they meet depends on the load.
"""

from threading import RLock
from typing import Final

importing: Final = RLock()
"""Held by every thread that imports something large while others may do so too."""
