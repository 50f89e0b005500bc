"""Rewriting: the frames a repair keeps, copied into fresh WAL files that follow the undamaged ones.

The one rule: every file is whole and synced before its name is given back; the caller renames them all, or none. LSNs are given
anew, so that they have no holes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.log.wal.disk import WalDisk, close_quietly, write_all
from holdfast.log.wal.files import OpenFile, live_name
from holdfast.log.wal.frames import (
    FRAME_BYTES,
    FRAMES_AT,
    OPENING_AT,
    FileHeader,
    WalFrame,
    encode_file_header,
    encode_head,
    encode_opening,
    salt_of,
)
from holdfast.log.wal.startup import write_mark
from holdfast.log.wal.triage import KEEP, Triage, TriagedFrame
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


def copy_kept_frames(
    found: Triage, number: int, *, clock: Clock, random: Random, disk: WalDisk
) -> list[tuple[str, str]]:
    """Write the kept frames; answer the renames (from, to) that make the files live. There is at least one file."""
    directory = found.damage.path.parent
    # Each frame came from one of these files, so the largest of them has space for any.
    file_bytes = max(path.stat().st_size for _, path in found.files) + FRAME_BYTES
    kept = _kept(found)
    item = next(kept, None)
    lsn = found.first_lsn or (item.sighting.head.lsn if item is not None else 1)
    renames: list[tuple[str, str]] = []
    while item is not None or not renames:
        generation = found.next_generation + len(renames)
        header = FileHeader(generation, salt_of(random.token()), file_bytes, clock.now_ms())
        making = directory / f"repair-{number}-{generation}.tmp"
        with _creating(making, header, disk) as file:
            write_all(disk, file.descriptor, (encode_opening(header, lsn, clock.now_ms()),), OPENING_AT)
            while item is not None and _size(item) + FRAME_BYTES <= file.left_bytes:
                _add(file, item, lsn, disk)
                lsn += 1
                item = next(kept, None)
            write_mark(disk, file, lsn)
            lsn += 1
        renames.append((making.name, live_name(generation)))
    return renames


def _kept(found: Triage) -> Iterator[TriagedFrame]:
    return (item for item in found if item.fate == KEEP)


def _size(item: TriagedFrame) -> int:
    return FRAME_BYTES + item.sighting.head.payload_bytes


def _add(file: OpenFile, item: TriagedFrame, lsn: int, disk: WalDisk) -> None:
    payload = item.sighting.payload
    assert payload is not None
    head = item.sighting.head
    frame = WalFrame(head.topic_id, head.partition, head.epoch, head.base_offset, head.count, (payload,), head.kind)
    # Each frame counts as synced on its own: the file becomes live only when all of it is.
    buffers = (encode_head(file.mark, lsn, lsn - 1, frame, len(payload)), payload)
    write_all(disk, file.descriptor, buffers, file.position)
    file.position += _size(item)


@contextmanager
def _creating(path: Path, header: FileHeader, disk: WalDisk) -> Iterator[OpenFile]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, header.file_bytes)
        write_all(disk, descriptor, (encode_file_header(header),), 0)
        yield OpenFile(path, header, descriptor, FRAMES_AT)
        disk.sync(descriptor)
    finally:
        close_quietly(descriptor)
