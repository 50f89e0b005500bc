"""SimDisk: the disk of one host, on which a WAL is written as on any other, and which loses what was not synced.

The one rule: what `sync` has returned for stays, whatever happens; of the rest, a power failure keeps any sectors and drops any
others. A killed process loses nothing: the system still has its pages. The files are real ones, in a folder of memory.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.log.wal import WalDisk
from holdfast.log.wal.disk import write_padded
from holdfast.log.wal.frames import Buffer
from holdfast.vocabulary.random import SeededRandom

SECTOR_BYTES: Final = 512
SYNC_FAILED: Final = "the simulated disk failed to sync"


class _Write(NamedTuple):
    position: int
    before: bytes
    after: bytes


class SimDisk(WalDisk):
    """Counts on being told of a power failure; `full` and `broken` are faults."""

    def __init__(self, directory: Path, random: SeededRandom, *, blocks: bool = False) -> None:
        """`blocks`: groups are written past the system's cache, and are on the disk when the write returns."""
        self.directory, self._blocks = directory, blocks
        self.full = False  # no space for another file, nor for a group
        self.broken = False  # the next sync fails
        self.slow_ms = 0.0  # what a sync takes longer
        self._rng = random.random
        self._unsynced: dict[int, list[_Write]] = {}  # by inode

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.full and self._rng.random() < 0.5:
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        after = b"".join(buffers)
        before = os.pread(descriptor, len(after), position)
        self._unsynced.setdefault(os.fstat(descriptor).st_ino, []).append(_Write(position, before, after))
        return os.pwrite(descriptor, after, position)

    def sync(self, descriptor: int) -> None:
        if self.broken:
            self.broken = False
            raise OSError(errno.EIO, SYNC_FAILED)
        self._unsynced.pop(os.fstat(descriptor).st_ino, None)

    def sync_ms(self) -> float:
        """How long the next group takes."""
        return 0.2 + 3 * self._rng.random() + self.slow_ms

    def open_blocks(self, path: Path) -> int | None:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC) if self._blocks else None

    def write_blocks(self, descriptor: int, buffers: Sequence[Buffer], memory: memoryview, position: int) -> int:
        last = write_padded(lambda view, at: self.write(descriptor, (view,), at), buffers, memory, position)
        self.sync(descriptor)
        return last

    def sync_directory(self, directory: Path) -> None:
        """Names are durable at once here."""

    def free_bytes(self, directory: Path) -> int:
        return 0 if self.full else 1 << 30

    def lose_power(self) -> int:
        """Of every write that was not synced, keep some sectors; how many writes were affected."""
        unsynced, self._unsynced = self._unsynced, {}
        affected = 0
        for path in sorted(self.directory.iterdir()):
            for_file = unsynced.get(path.stat().st_ino)
            if for_file:
                affected += len(for_file)
                self._tear(path, for_file)
        return affected

    def _tear(self, path: Path, writes: list[_Write]) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for position, before, after in reversed(writes):
                os.pwrite(descriptor, before.ljust(len(after), b"\0"), position)
            kept_share = self._rng.choice((0.0, 0.0, 0.5, 0.9))
            for position, _, after in writes:
                start = position
                while start < position + len(after):
                    end = min(start - start % SECTOR_BYTES + SECTOR_BYTES, position + len(after))
                    if self._rng.random() < kept_share:
                        os.pwrite(descriptor, after[start - position : end - position], start)
                    start = end
        finally:
            os.close(descriptor)

    def wipe(self) -> None:
        """The disk is lost, and replaced by an empty one."""
        self._unsynced.clear()
        shutil.rmtree(self.directory)
        self.directory.mkdir()
