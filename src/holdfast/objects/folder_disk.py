"""The system calls of the folder engine in one place, so that a test can record their order and make each of them fail."""

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from holdfast.contracts.objects import Buffer
from holdfast.objects.direct_io import DIRECT_FROM_BYTES, write_direct
from holdfast.vocabulary.files import sync_directory, sync_file

_PARTS_MAX: Final = 1_024  # limit of one writev (IOV_MAX)


class FolderDisk:
    """The host's file systems. Every method blocks; failures are `OSError`."""

    def create(self, path: Path) -> int:
        """A descriptor of a new, empty file."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> int:
        """Append all parts; return how many bytes they were."""
        pending = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        size = sum(view.nbytes for view in pending)
        at, written = 0, write_direct(descriptor, pending) if size >= DIRECT_FROM_BYTES else 0
        while True:
            while at < len(pending) and written >= pending[at].nbytes:
                written -= pending[at].nbytes
                at += 1
            if written:
                pending[at] = pending[at][written:]
            if at == len(pending):
                return size
            written = os.writev(descriptor, list(islice(pending, at, at + _PARTS_MAX)))

    def sync(self, descriptor: int) -> None:
        """Make everything written to the file durable."""
        sync_file(descriptor)

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """A second name for a file; fails if the name is taken. This is what makes a put atomic and if-absent."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def make_folder(self, path: Path) -> None:
        """Create one folder, unless it exists."""
        try:
            path.mkdir()
        except FileExistsError:
            if not path.is_dir():
                raise

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        sync_directory(path)
