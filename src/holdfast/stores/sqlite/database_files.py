"""The database's files. Two rules: they are the ones this process opened, and one process writes at a time.

Never open the database file itself here: closing any descriptor of it would drop the locks SQLite holds on it (a POSIX rule).
"""

import fcntl
import os
from pathlib import Path

from holdfast.vocabulary.errors import CorruptError


class DatabaseFiles:
    """Detects a file that was deleted or replaced under open connections, which would keep using the old one.

    While a connection is open SQLite keeps all three files, so another inode at one of the names is never its own doing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names = tuple(f"{path}{suffix}" for suffix in ("", "-wal", "-shm", "-lock"))
        self._known: tuple[tuple[int, int], ...] = ()

    def remember(self) -> None:
        """Record the files' identities. Connections and the lock must be open."""
        self._known = tuple(map(_identity, self._names))

    def check(self) -> None:
        """Raise `CorruptError` if a file is not the one that was opened."""
        for name, known in zip(self._names, self._known, strict=True):
            try:
                if _identity(name) == known:
                    continue
                found = f"{name} was replaced by another file while it was open"
            except FileNotFoundError:
                found = f"{name} was deleted while it was open"
            raise CorruptError(f"SQLite database {self.path}", found)


class WriteLock:
    """An flock beside the database, held around every transaction that writes.

    SQLite has a lock of its own; this one also keeps checkpoints, which run inside COMMIT, apart from other processes' commits:
    up to 3.51.2 a race between the two could lose commits (sqlite.org/wal.html, "the WAL-reset bug"). The system releases it
    when its process dies, however it dies.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(f"{path}-lock")
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_take(self) -> bool:
        """Take the lock if it is free."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._descriptor)


def _identity(name: str) -> tuple[int, int]:
    status = os.stat(name)  # noqa: PTH116 (four times per batch: a Path would cost more than the call)
    return status.st_dev, status.st_ino
