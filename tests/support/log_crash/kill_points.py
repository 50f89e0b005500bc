"""How a process dies here: at the n-th time it comes to a labelled step, by SIGKILL, with a disk that forgets what was not synced.

`Steps` is installed as the handler of all failpoints, and called by the wrappers of store, objects and disk.
`CachedDisk` keeps what the WAL writes in this process's memory until it
is synced, so that a kill loses what a power cut would lose. What of it reaches the disk all the same is a choice (`LEFTOVERS`).
"""

import errno
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tests.support.wal_disks import CacheOnlyDisk

from holdfast.vocabulary.clock import Clock

Buffer = bytes | bytearray | memoryview
LEFTOVERS: Final = ("lost", "torn", "kept")  # nothing of it, half of it, all of it
CUT: Final = (
    "cut"  # all but the last record's last bytes (the very last is a zero, as on the disk): a frame without its end
)
SETTLE_S: Final = 0.1


class CachedDisk(CacheOnlyDisk):
    """A disk with a cache that dies with the process. `sync` empties the cache; syncing the medium is not needed for that."""

    def __init__(self, leftovers: str, clock: Clock) -> None:
        self.steps: Callable[[str], None] = lambda _: None
        self.lying = False  # a planted bug: sync says it is done and does nothing
        self.full_until_ms = 0
        self._leftovers, self._clock = leftovers, clock
        self._lock = threading.Lock()
        self._pending: dict[tuple[int, int], tuple[int, list[tuple[int, bytes]]]] = {}

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        self._step("before write")
        if self._writing() and self._clock.boot_ms() < self.full_until_ms:
            raise OSError(errno.ENOSPC, "full on purpose")
        data = b"".join(buffers)
        with self._lock:
            key = _file_of(descriptor)
            if key not in self._pending:
                self._pending[key] = os.dup(descriptor), []
            self._pending[key][1].append((position, data))
        return len(data)

    def sync(self, descriptor: int) -> None:
        self._step("before sync")
        if self.lying and self._writing():
            return
        with self._lock:
            own, writes = self._pending.pop(_file_of(descriptor), (-1, []))
            for position, data in writes:
                os.pwrite(own, data, position)
            if own >= 0:
                os.close(own)

    def free_bytes(self, directory: object) -> int:
        return 0 if self._writing() and self._clock.boot_ms() < self.full_until_ms else 1 << 40

    def sync_directory(self, directory: object) -> None:
        """Names survive a kill by themselves."""

    def die(self) -> None:
        """Leave of the cache what is to be left."""
        with self._lock:
            if self._leftovers == "lost":
                return
            for own, writes in self._pending.values():
                for position, data in writes:
                    kept = {"torn": len(data) // 2, "kept": len(data), CUT: len(data) - 4}[self._leftovers]
                    os.pwrite(own, data[:kept], position)

    def _writing(self) -> bool:
        return threading.current_thread().name == "wal-writer"

    def _step(self, label: str) -> None:
        if self._writing():
            self.steps(label)


def _file_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


class Steps:
    """Counts steps, and ends or stops the process at one of them. `busy` says when it must not be stopped."""

    def __init__(
        self, say: Callable[[str], None], disk: CachedDisk, *, die_at: str | None = None, stop_at: str | None = None
    ) -> None:
        self._say, self._disk = say, disk
        self._die_at, self._stop_at = _parsed(die_at), _parsed(stop_at)
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.busy: Callable[[], bool] = lambda: False

    def __call__(self, label: str) -> None:
        with self._lock:
            self._seen[label] += 1
            if (label, self._seen[label]) == self._die_at:
                self._say(f"died {label}:{self._seen[label]}")
                self._disk.die()
                os.kill(os.getpid(), signal.SIGKILL)
            if self._stop_at is not None and label == self._stop_at[0] and self._seen[label] >= self._stop_at[1]:
                self._stop()

    def _stop(self) -> None:
        # On SQLite, who is stopped inside a write holds everybody up: nothing under way, and a moment for its threads to end.
        if not self.busy():
            self._stop_at = None
            threading.Event().wait(SETTLE_S)
            self._say(f"stopped {os.getpid()}")
            os.kill(os.getpid(), signal.SIGSTOP)


def _parsed(at: str | None) -> tuple[str, int] | None:
    if at is None:
        return None
    label, _, count = at.rpartition(":")
    return label, int(count)
