"""Doorbell: how a process that committed tells the others to look at the change log.

Each open store listens on a datagram socket of its own in a directory beside the database; whoever commits sends one byte to
every socket there. Rings carry nothing and may be lost: `store.py` looks from time to time anyway.
"""

import hashlib
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

COMMITTED: Final = b"c"
SESSION_OPENED: Final = b"s"

_NAME_CHARS: Final = 12
_TRIES: Final = 5
_PATH_BYTES_MAX: Final = 100  # the system's limit for a socket's path is 104 or 108


class CommitNotifier:
    """This process's own bell, and the way to ring the others'. Opening and ringing block; they run on the writer's thread."""

    def __init__(self, path: Path, name: str) -> None:
        self._directory = directory_for(path)
        self._own = name[:_NAME_CHARS]
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listener.setblocking(False)
        self._sender.setblocking(False)
        self.listening = False

    def open(self) -> str | None:
        """Listen. If that cannot be, say why: the store works without, only later."""
        failed = ""
        for _ in range(_TRIES):
            try:
                self._listen()
            except FileNotFoundError as error:
                failed = str(error)  # the last one to leave took the directory away, just now
            except OSError as error:
                failed = str(error)
                break
            else:
                self.listening = True
                return None
        return f"no doorbell, so other processes' changes are seen at the next tick: {failed}"

    def _listen(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        found = self._directory.lstat()
        # Below the shared temporary directory anybody may have made it first.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{self._directory} belongs to somebody else")
        self._directory.chmod(0o700)
        own = self._directory / self._own
        self.listener.bind(str(own))
        own.chmod(0o600)

    def notify(self, what: bytes) -> None:
        """Ring every bell but our own. Bells that nobody listens to any more are removed."""
        with suppress(OSError), os.scandir(self._directory) as bells:
            for bell in bells:
                if bell.name != self._own:
                    self._ring_one(bell.path, what)

    def _ring_one(self, bell: str, what: bytes) -> None:
        try:
            self._sender.sendto(what, bell)
        except ConnectionRefusedError:  # its process is gone
            with suppress(OSError):
                Path(bell).unlink()
        except OSError:
            pass  # a full queue rings already; whatever else it is, the tick will do

    def heard(self) -> bytes:
        """All rings since the last call."""
        rings = b""
        with suppress(BlockingIOError):
            while notify := self.listener.recv(16):
                rings += notify
        return rings

    def close(self) -> None:
        self.listener.close()
        self._sender.close()
        if self.listening:
            with suppress(OSError):
                (self._directory / self._own).unlink()
            with suppress(OSError):  # not empty: others still listen
                self._directory.rmdir()


def directory_for(path: Path) -> Path:
    """Where the bells of the database at `path` (its real path) are, the same for every process."""
    beside = Path(f"{path}-bells")
    if len(os.fsencode(beside)) + 1 + _NAME_CHARS <= _PATH_BYTES_MAX:
        return beside
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"holdfast-{os.geteuid()}-{digest}"
