"""Opening a WAL directory: lock it, check it, repair a torn tail, prepare a file to append to. Everything here blocks.

The one rule (docs/safety.md, rule 7): frames that are not proven synced are written again and synced before they are visible. After
a failed sync the system may show bytes that are in its memory only.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.log.wal.disk import NO_SPACE, WalDisk, close_quietly, invalidate_frames, sync_or_stop, write_all
from holdfast.log.wal.file_reader import WalReader
from holdfast.log.wal.files import DirectoryLock, OpenFile, WalFiles
from holdfast.log.wal.frames import FRAME_BYTES, MARK, NO_TOPIC, WalFrame, encode_head
from holdfast.log.wal.recovery import LiveFile, TornTail, scan_directory
from holdfast.log.wal.settings import WalSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import CorruptError, UnavailableError

PENDING_REPAIRS: Final = "repair-*.pending"
MARK_FRAME: Final = WalFrame(NO_TOPIC, 0, 0, 0, 0, (), MARK)


@dataclass(slots=True)
class OpenedWal:
    """A WAL directory that is ours: what was in it and where to go on."""

    lock: DirectoryLock
    files: WalFiles
    recovered: list[LiveFile]
    torn: TornTail | None
    current: OpenFile
    current_live: LiveFile
    next_lsn: int
    next_generation: int

    def abandon(self) -> None:
        """Give it back without having used it."""
        close_quietly(self.current.descriptor)
        self.lock.release()


def open_directory(files: WalFiles, *, settings: WalSettings, disk: WalDisk) -> OpenedWal:
    """Take the directory, or say why not: in use, damaged, or full."""
    directory = files.directory
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    disk.sync_directory(directory.parent)
    lock = DirectoryLock(directory)
    lock.take()
    try:
        return _open(lock, files, settings, disk)
    except OSError as error:
        lock.release()
        if error.errno in NO_SPACE:
            raise no_space(directory, disk, settings.file_bytes) from error
        raise UnavailableError(f"WAL {directory}", str(error)) from error
    except BaseException:
        lock.release()
        raise


def no_space(directory: Path, disk: WalDisk, wanted_bytes: int) -> UnavailableError:
    """The error of an append when the disk is full."""
    try:
        free = f"{disk.free_bytes(directory)} bytes are free"
    except OSError as error:
        free = f"how much is free is unknown ({error})"
    return UnavailableError(
        f"WAL {directory}",
        f"the disk is full: {wanted_bytes} bytes are wanted, {free}; nothing was written, send it again",
    )


def _open(lock: DirectoryLock, files: WalFiles, settings: WalSettings, disk: WalDisk) -> OpenedWal:
    directory = files.directory
    if pending := sorted(directory.glob(PENDING_REPAIRS)):
        raise CorruptError(
            f"WAL {directory}", f"the repair {pending[0].name} was interrupted: run `holdfast wal repair` again"
        )
    files.clear_unfinished()
    verdict = scan_directory(directory, read_bytes=settings.read_bytes)
    if verdict.damage is not None:
        raise verdict.damage.error(directory)
    for path in verdict.unused:
        files.retire(path)
    generation, next_lsn = verdict.next_generation, verdict.next_lsn
    last = verdict.files[-1] if verdict.files else None
    if last is not None and last.header.file_bytes - last.end >= FRAME_BYTES:
        current = OpenFile(last.path, last.header, os.open(last.path, os.O_RDWR | os.O_CLOEXEC), last.end)
    else:
        current = files.prepare(generation)
        generation += 1
    try:
        if last is not None:
            _repair_torn_tail(last, verdict.torn, disk)
        if last is None or current.path != last.path:
            files.begin(current, next_lsn)
            last = LiveFile(current.path, current.header, next_lsn, next_lsn)
        elif last.frames and not last.marked:
            write_mark(disk, current, next_lsn)
            failpoints.reached("wal.mark-synced")
            next_lsn += 1
    except BaseException:
        close_quietly(current.descriptor)
        raise
    return OpenedWal(lock, files, verdict.files, verdict.torn, current, last, next_lsn, generation)


def write_mark(disk: WalDisk, file: OpenFile, lsn: int) -> None:
    """Append and sync a frame that proves: everything below `lsn` was synced."""
    write_all(disk, file.descriptor, (encode_head(file.mark, lsn, lsn - 1, MARK_FRAME, 0),), file.position)
    sync_or_stop(disk, file.descriptor, file.path)
    file.position += FRAME_BYTES


def _repair_torn_tail(last: LiveFile, torn: TornTail | None, disk: WalDisk) -> None:
    descriptor = os.open(last.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if torn is not None:
            # Otherwise a new frame as long as the torn one would make the frames behind it valid again.
            invalidate_frames(disk, descriptor, torn.positions)
            sync_or_stop(disk, descriptor, last.path)
            failpoints.reached("wal.torn-tail-invalidated")
        if not last.marked:
            _rewrite_unsynced(last, descriptor, disk)
            failpoints.reached("wal.tail-synced")
    finally:
        close_quietly(descriptor)


def _rewrite_unsynced(last: LiveFile, descriptor: int, disk: WalDisk) -> None:
    with WalReader(last.path) as reader:
        position = last.unproven
        while position < last.end:
            part = reader.view(position, min(last.end - position, 1 << 22))
            write_all(disk, descriptor, (part,), position)
            position += len(part)
    sync_or_stop(disk, descriptor, last.path)
