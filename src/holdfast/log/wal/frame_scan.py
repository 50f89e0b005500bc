"""A scan of a WAL file in any condition: every whole frame in it, every frame that is known but lost, and the gaps between.

The one rule: it finds all that can be read and trusts only what has a valid CRC. It changes nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.log.wal.file_reader import WalReader, heads_after, read_frame
from holdfast.log.wal.frames import (
    FRAME_BYTES,
    FRAMES_AT,
    OPENING_AT,
    FileHeader,
    FrameHeader,
    decode_head,
    decode_opening,
    generation_mark,
)
from holdfast.log.wal.recovery import read_header


class ScannedFrame(NamedTuple):
    """A frame's head, where it stands, and its payload (valid until the next step); None if that is damaged."""

    position: int
    head: FrameHeader
    payload: memoryview | None


class FileScan(NamedTuple):
    """The beginning of a file. `mark` finds its frames even if the header is damaged."""

    path: Path
    generation: int
    header: FileHeader | None
    first_lsn: int | None
    mark: bytes


def scan_header(reader: WalReader, generation: int) -> FileScan:
    """Read the head of the file; if it is damaged, learn the salt from the first intact frame."""
    header = read_header(reader, generation)
    if header is not None:
        first_lsn = decode_opening(reader.view(OPENING_AT, FRAMES_AT - OPENING_AT), header)
        return FileScan(reader.path, generation, header, first_lsn, header.mark)
    found = next(heads_after(reader, generation_mark(generation), FRAMES_AT), None)
    mark = found[1].mark if found is not None else generation_mark(generation)
    return FileScan(reader.path, generation, None, None, mark)


def scan_frames(reader: WalReader, mark: bytes) -> Iterator[ScannedFrame]:
    """Every frame of which at least the head is intact, in the order of the file."""
    at = FRAMES_AT
    while True:
        head = decode_head(reader.view(at, FRAME_BYTES), mark)
        if head is None:
            found = next(heads_after(reader, mark, at + 1), None)
            if found is None:
                return
            at, head = found
        whole = read_frame(reader, mark, at)
        yield ScannedFrame(at, head, whole[1] if whole is not None else None)
        # A payload that is not whole may have lost its length as well as its bytes: look right behind the head.
        at += head.size_bytes if whole is not None else FRAME_BYTES
