"""Blocks: the end of the current file, written past the page cache, and on stable storage when the write returns.

A group ends somewhere in a block. The next group writes that block again from its beginning, with the same bytes before its own
and zeros behind them: a device that tears a write leaves whole sectors, old or new, and both hold what was acknowledged. Where the
system cannot do this the writer goes the way through the cache, as it always could; nothing but speed depends on it.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.log.wal.append_queue import PendingAppend
from holdfast.log.wal.disk import WalDisk, close_quietly
from holdfast.log.wal.files import OpenFile
from holdfast.log.wal.frames import Buffer
from holdfast.vocabulary.alignment import DISK_BLOCK_BYTES
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tracked_memory import anonymous_mmap

if TYPE_CHECKING:
    from holdfast._native import AppendQueue as NativeQueue

_MEMORY_BYTES: Final = 4 * MIB
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


class DirectWriter:
    """What a writer needs to write blocks of one file after another. Used by one thread."""

    def __init__(self, disk: WalDisk) -> None:
        self._disk = disk
        self._memory: memoryview | None = None
        self._descriptor: int | None = None
        self._file: OpenFile | None = None
        self._last = b""  # what the block that `_at` lies in holds before it
        self._at = -1

    def write(self, file: OpenFile, buffers: Sequence[Buffer], size: int) -> bool:
        """Write `size` bytes at the file's position, durably; False: not supported; the file may hold a part of it."""
        if file is not self._file:
            self._change(file)
        at = file.position
        start = at - at % DISK_BLOCK_BYTES
        whole = at - start + size
        if self._descriptor is None or start + whole + -whole % DISK_BLOCK_BYTES > file.header.file_bytes:
            return False
        if at != self._at:
            self._last = os.pread(file.descriptor, at - start, start)
        if self._memory is None:
            self._memory = memoryview(anonymous_mmap(_MEMORY_BYTES))
        try:
            last = self._disk.write_blocks(self._descriptor, [self._last, *buffers], self._memory, start)
        except OSError as error:
            self._at = -1
            if error.errno not in _UNSUPPORTED:
                raise
            self.close()
            return False
        self._last = bytes(self._memory[last : last + whole % DISK_BLOCK_BYTES])
        self._at = at + size
        return True

    def serve(
        self, queue: "NativeQueue", file: OpenFile, lsn: int, group_bytes_max: int
    ) -> tuple[int, int, list[PendingAppend], list[int]] | None:
        """Let `queue` write plain groups behind what was written last; None: something else was, and the file's next group is ours.

        The LSN after them, and an errno with the appends of the group that failed and where they were to begin.
        """
        if file is not self._file or self._descriptor is None or self._memory is None or file.position != self._at:
            return None
        header = file.header
        position, self._last, lsn, error, failed, heads = queue.serve(
            self._descriptor, self._memory, self._last, file.position, header.file_bytes, file.mark, lsn,
            header.generation, file.replicated, group_bytes_max,
        )  # fmt: skip
        file.position = self._at = position
        if error:
            self._at = -1
        return lsn, error, failed, heads

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            close_quietly(self._descriptor)
            self._descriptor = None

    def _change(self, file: OpenFile) -> None:
        self.close()
        self._file, self._at = file, -1
        with suppress(OSError):
            self._descriptor = self._disk.open_blocks(file.path)
