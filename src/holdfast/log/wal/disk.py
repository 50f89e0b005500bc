"""What the WAL asks of the disk, in one place, so that a test can give it a disk that is full, slow, lying or broken.

The one rule: a failed sync is never tried again. The kernel may have dropped the pages and called them clean.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.log.wal.frames import FRAME_MAGIC, Buffer
from holdfast.vocabulary.alignment import DISK_BLOCK_BYTES
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.native import native

_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
IOV_MAX: Final = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class WalDisk:
    """The real one."""

    # Whether native code may write plain groups without asking: a subclass is asked for each.
    without_interpreter: bool = hasattr(native, "AppendQueue")

    def __init_subclass__(cls) -> None:
        cls.without_interpreter = False

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write at `position`; the answer may be short."""
        return os.pwritev(descriptor, buffers, position)

    def sync(self, descriptor: int) -> None:
        """Return when what was written is on stable storage."""
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # there, fsync stops at the drive's cache
        else:
            os.fdatasync(descriptor)

    def open_blocks(self, path: Path) -> int | None:
        """A descriptor for `write_blocks`; None, or `OSError`: this system cannot do that."""
        if not _DIRECT:
            return None
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DSYNC | _DIRECT)

    def write_blocks(self, descriptor: int, buffers: Sequence[Buffer], memory: memoryview, position: int) -> int:
        """Write all of it at `position`, a block's beginning, and zeros up to the next; durable on return.

        It goes through `memory`, which is aligned, but for what lies right where it is: where in `memory` its last block is.
        """
        if native is not None:
            return native.write_padded(descriptor, buffers, memory, DISK_BLOCK_BYTES, position)
        return write_padded(lambda view, at: os.pwrite(descriptor, view, at), buffers, memory, position)

    def sync_directory(self, directory: Path) -> None:
        """Return when created, renamed and deleted names are on stable storage."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, directory: Path) -> int:
        """What an ordinary user can still write below `directory`."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize


def write_padded(
    write: Callable[[memoryview, int], int], buffers: Sequence[Buffer], memory: memoryview, position: int
) -> int:
    """The pure Python implementation; the native one does not hold the interpreter while it copies and writes."""
    filled = 0
    for part in buffers:
        left = memoryview(part).cast("B")
        while left:
            if filled == len(memory):
                position = _write_fully(write, memory, position)
                filled = 0
            taken = min(len(memory) - filled, len(left))
            memory[filled : filled + taken] = left[:taken]
            filled += taken
            left = left[taken:]
    padding = -filled % DISK_BLOCK_BYTES
    memory[filled : filled + padding] = bytes(padding)
    _write_fully(write, memory[: filled + padding], position)
    return filled - filled % DISK_BLOCK_BYTES


def _write_fully(write: Callable[[memoryview, int], int], view: memoryview, position: int) -> int:
    while view:
        written = write(view, position)
        if written <= 0:
            raise OSError(errno.EIO, "the disk took no bytes and gave no reason")
        view = view[written:]
        position += written
    return position


def write_all(disk: WalDisk, descriptor: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write every byte, in as many calls as the system needs."""
    for start in range(0, len(buffers), IOV_MAX):
        chunk = buffers[start : start + IOV_MAX]
        left = sum(map(bytes_of, chunk))
        while left:
            written = disk.write(descriptor, chunk, position)
            if written <= 0:
                raise OSError(errno.EIO, "the disk took no bytes and gave no reason")
            position += written
            left -= written
            if left:
                chunk = _rest(chunk, written)


def sync_or_stop(disk: WalDisk, descriptor: int, path: Path) -> None:
    """Sync, or raise `CorruptError`: whatever the reason, what is on disk is unknown."""
    try:
        disk.sync(descriptor)
    except OSError as error:
        raise CorruptError(
            f"WAL file {path}", f"sync failed ({error}): what was not acknowledged may be lost; the process must stop"
        ) from error


def invalidate_frames(disk: WalDisk, descriptor: int, positions: Iterable[int]) -> None:
    """Make sure that no frame at `positions` is ever taken for a valid one, whatever is written before it. Sync it."""
    for position in positions:
        write_all(disk, descriptor, (bytes(len(FRAME_MAGIC)),), position)


def close_quietly(descriptor: int) -> None:
    """Close; what mattered was synced before, so an error here does not matter."""
    with suppress(OSError):
        os.close(descriptor)


def bytes_of(part: Buffer) -> int:
    """The size of a buffer."""
    return part.nbytes if type(part) is memoryview else len(part)


def _rest(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    rest: list[Buffer] = []
    for part in buffers:
        size = bytes_of(part)
        if written < size:
            rest.append(memoryview(part).cast("B")[written:] if written else part)
        written = max(0, written - size)
    return rest
