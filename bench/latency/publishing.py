"""`python -m bench.latency.publishing PID DIRECTORY`: what any log on objects does beside its requests, and nothing more.

As many bytes as the server with this id wrote become segments in DIRECTORY, packed with LZ4 in blocks and synced. Begins
when there are 8 MiB, as Holdfast with its defaults does, and runs in a process of its own.
"""

import os
import sys
import time
from itertools import count
from pathlib import Path
from typing import Final

import lz4.block

from holdfast.objects.folder_disk import FolderDisk
from holdfast.vocabulary.settings import KIB, MIB

PUBLISHED_BYTES: Final = 8 * MIB  # at a time
SEGMENT_BYTES: Final = 4 * MIB
BLOCK_BYTES: Final = 128 * KIB
PAUSE_S: Final = 0.02
KEPT: Final = 8  # segments, so that the disk does not fill up


def bytes_written(pid: int) -> int:
    """By all write calls of this process."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines())
    return int(fields["wchar"])


def write_segment(path: Path, disk: FolderDisk, block: bytes) -> None:
    packed = [lz4.block.compress(block, store_size=False) for _ in range(SEGMENT_BYTES // BLOCK_BYTES)]
    descriptor = disk.create(path)
    try:
        disk.write(descriptor, packed)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def publish(pid: int, directory: Path) -> None:
    """As long as the server runs."""
    disk, block, numbers = FolderDisk(), os.urandom(BLOCK_BYTES), count()
    published = bytes_written(pid)
    print("ready", flush=True)
    while True:
        time.sleep(PAUSE_S)
        if bytes_written(pid) - published < PUBLISHED_BYTES:
            continue
        published += PUBLISHED_BYTES
        for _ in range(PUBLISHED_BYTES // SEGMENT_BYTES):
            number = next(numbers)
            write_segment(directory / f"{number}.segment", disk, block)
            (directory / f"{number - KEPT}.segment").unlink(missing_ok=True)


if __name__ == "__main__":
    publish(int(sys.argv[1]), Path(sys.argv[2]))
