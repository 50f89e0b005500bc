"""Folders of this process on the local disk, removed with it; those of processes that were killed are removed by the next.

The one rule: a folder is alive as long as its lock is held. The system gives a lock up when its process dies, however it dies.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "holdfast-checkpoints-"
LOCK: Final = "lock"


class LocalFolder:
    """A new folder below `parent`; empty: where temporary files are."""

    def __init__(self, parent: str = "") -> None:
        above = Path(parent or tempfile.gettempdir())
        above.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(above)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        atexit.register(self.remove)

    def remove(self) -> None:
        """Remove it. Removing it twice does nothing."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1
            atexit.unregister(self.remove)


def _remove_abandoned(above: Path) -> None:
    """A folder that has no lock yet is one that another process is making."""
    for lock in above.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # another user's, or gone
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
