"""Disks for tests that interfere with writes and syncs."""

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.log.wal import WalDisk
from holdfast.log.wal.disk import write_padded
from holdfast.log.wal.frames import Buffer


class CacheOnlyDisk(WalDisk):
    """A system that cannot write past its page cache."""

    def open_blocks(self, path: Path) -> int | None:
        return None


class BlockDisk(WalDisk):
    """Blocks are laid out as past the page cache, and go through `write` and `sync`, where a subclass can interfere."""

    def open_blocks(self, path: Path) -> int | None:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write_blocks(self, descriptor: int, buffers: Sequence[Buffer], memory: memoryview, position: int) -> int:
        last = write_padded(lambda view, at: self.write(descriptor, [view], at), buffers, memory, position)
        self.sync(descriptor)
        return last
