"""Commit notifier: wakes the other processes after a commit, so that they read the change log.

Each open store listens on its own datagram socket in a directory beside the database; a committer sends one byte to every socket
there. Notifications carry no data and may be lost: `store.py` also polls.
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
    """This process's own socket, and the way to reach the others'. `open` and `notify` block; they run on the writer's thread."""

    def __init__(self, path: Path, name: str) -> None:
        self._directory = directory_for(path)
        self._own = name[:_NAME_CHARS]
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listener.setblocking(False)
        self._sender.setblocking(False)
        self.listening = False

    def open(self) -> str | None:
        """Listen. Returns a note if that fails: the store then relies on polling."""
        failed = ""
        for _ in range(_TRIES):
            try:
                self._listen()
            except FileNotFoundError as error:
                failed = str(error)  # the last process to close has just removed the directory
            except OSError as error:
                failed = str(error)
                break
            else:
                self.listening = True
                return None
        return f"no notifications, so changes by other processes are seen at the next tick: {failed}"

    def _listen(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        found = self._directory.lstat()
        # In the shared temporary directory another user may have created it first.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{self._directory} belongs to another user")
        self._directory.chmod(0o700)
        own = self._directory / self._own
        self.listener.bind(str(own))
        own.chmod(0o600)

    def notify(self, what: bytes) -> None:
        """Notify every socket but our own. Sockets of dead processes are removed."""
        with suppress(OSError), os.scandir(self._directory) as sockets:
            for each in sockets:
                if each.name != self._own:
                    self._send_to(each.path, what)

    def _send_to(self, address: str, what: bytes) -> None:
        try:
            self._sender.sendto(what, address)
        except ConnectionRefusedError:  # its process is gone
            with suppress(OSError):
                Path(address).unlink()
        except OSError:
            pass  # a full queue wakes its reader anyway; in all other cases the tick does

    def drain(self) -> bytes:
        """All notifications since the last call."""
        received = b""
        with suppress(BlockingIOError):
            while datagram := self.listener.recv(16):
                received += datagram
        return received

    def close(self) -> None:
        self.listener.close()
        self._sender.close()
        if self.listening:
            with suppress(OSError):
                (self._directory / self._own).unlink()
            with suppress(OSError):  # not empty: others still listen
                self._directory.rmdir()


def directory_for(path: Path) -> Path:
    """The directory of the sockets for the database at `path` (its real path), the same for every process."""
    beside = Path(f"{path}-bells")
    if len(os.fsencode(beside)) + 1 + _NAME_CHARS <= _PATH_BYTES_MAX:
        return beside
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"holdfast-{os.geteuid()}-{digest}"
