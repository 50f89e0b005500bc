"""Reading WAL files: a window that slides over a file, frames that follow each other, frames found by their mark.

The one rule: plain reads, no memory map; a bad sector is then an error with a position, not a signal that ends the process, and a
file that is taken into use again cannot change under data already handed out. Judging what is found is `recovery.py`'s work.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from crc32c import crc32c

from holdfast.log.wal.disk import close_quietly
from holdfast.log.wal.frames import FRAME_BYTES, ORIGIN_BYTES, FrameHeader, decode_head, decode_origin
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.settings import MIB

SECTOR_BYTES: Final = 4096


class WalReader:
    """A file, seen through a window of `window_bytes`. A context manager."""

    def __init__(self, path: Path, *, window_bytes: int = 4 * MIB, skip_bad_sectors: bool = False) -> None:
        self.path = path
        self.bad_sectors: list[int] = []  # positions that could not be read and count as zeros
        self._window_bytes = window_bytes
        self._skip = skip_bad_sectors
        self._descriptor = -1
        self._buffer = bytearray()
        self._at = 0
        self._filled = 0

    def __enter__(self) -> "WalReader":
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        close_quietly(self._descriptor)

    def view(self, position: int, size: int) -> memoryview:
        """The bytes from `position` on, fewer at the end of the file. Valid until the next call."""
        start = position - self._at
        if start < 0 or start + size > self._filled:
            self._fill(position, size)
            start = 0
        return memoryview(self._buffer)[start : min(start + size, self._filled)]

    def find(self, pattern: bytes, position: int) -> Iterator[int]:
        """Where `pattern` stands, from `position` on, in order."""
        while len(self.view(position, len(pattern))) == len(pattern):
            found = self._buffer.find(pattern, position - self._at, self._filled)
            if found < 0:
                position = self._at + self._filled - len(pattern) + 1
                continue
            position = self._at + found
            yield position  # the caller may move the window; `view` above brings it back
            position += 1

    def _fill(self, position: int, size: int) -> None:
        wanted = max(size, self._window_bytes)
        if len(self._buffer) < wanted:
            self._buffer = bytearray(wanted)
        self._at, self._filled = position, 0
        while self._filled < wanted:
            try:
                got = os.preadv(
                    self._descriptor, [memoryview(self._buffer)[self._filled : wanted]], position + self._filled
                )
            except OSError as error:
                got = self._skip_sector(error, position + self._filled, wanted - self._filled)
            if got == 0:
                break
            self._filled += got

    def _skip_sector(self, error: OSError, position: int, wanted: int) -> int:
        """Read up to the bad sector if there is something before it; otherwise take it for zeros."""
        if not self._skip:
            raise CorruptError(f"WAL file {self.path} at byte {position}", f"unreadable: {error}") from error
        size = min(wanted, SECTOR_BYTES - position % SECTOR_BYTES)
        into = memoryview(self._buffer)[self._filled : self._filled + size]
        try:
            return os.preadv(self._descriptor, [into], position)
        except OSError:
            self.bad_sectors.append(position)
            into[:] = bytes(size)
            return size


def read_frame(reader: WalReader, mark: bytes, at: int) -> tuple[FrameHeader, memoryview] | None:
    """The frame at `at`, with its payload until the next read; None if no whole frame stands here."""
    header = decode_head(reader.view(at, FRAME_BYTES), mark)
    if header is None:
        return None
    if header.is_copy:
        origin = decode_origin(reader.view(at + FRAME_BYTES, ORIGIN_BYTES))
        if origin is None:
            return None
        header = header._replace(origin_lsn=origin)
    payload = reader.view(at + header.payload_at, header.payload_bytes)
    if len(payload) != header.payload_bytes or crc32c(payload) != header.payload_crc:
        return None
    return header, payload


def walk(reader: WalReader, mark: bytes, at: int, lsn: int) -> Iterator[tuple[int, FrameHeader, memoryview]]:
    """The frames from `at` on, as long as each follows the one before; the first has `lsn`."""
    while (found := read_frame(reader, mark, at)) is not None and found[0].lsn == lsn:
        yield at, *found
        at += found[0].size_bytes
        lsn += 1


def heads_after(reader: WalReader, mark: bytes, at: int) -> Iterator[tuple[int, FrameHeader]]:
    """Every intact head of a frame from `at` on, wherever it stands."""
    for position in reader.find(mark, at):
        header = decode_head(reader.view(position, FRAME_BYTES), mark)
        if header is not None:
            yield position, header
