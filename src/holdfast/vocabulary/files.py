"""Durable files: written whole or not at all, and still there after a power cut.

The one rule: data first, then the name, then the directory. A reader finds the old file or the new one, never a part of either.
Errors are the operating system's own (`OSError`); the caller adds what the file means.
"""

import itertools
import os
import sys
from contextlib import suppress
from pathlib import Path

_numbers = itertools.count()


def write_atomic(path: Path, body: bytes, *, mode: int = 0o644, durable: bool = True, unfinished: str = "") -> None:
    """Replace `path` by `body`. The unfinished file is named `unfinished`, or after the process; it is removed on failure.

    Not `durable`: whole or absent for readers, but a power cut may lose it. For what can be made again.
    """
    temporary, descriptor = _create(path, mode, unfinished)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            if durable:
                file.flush()
                sync_file(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def _create(path: Path, mode: int, unfinished: str) -> tuple[Path, int]:
    """A new file beside `path`. Its name is this call's own: another writer of the same path, in this process or in a container
    with the same process id, must not get hold of a file that is half written."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    if unfinished:  # the caller's name, for which it is the only writer: what is there was left by a killed process
        temporary = path.with_name(unfinished)
        with suppress(FileNotFoundError):
            temporary.unlink()
        return temporary, os.open(temporary, flags, mode)
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_numbers)}")
        with suppress(FileExistsError):
            return temporary, os.open(temporary, flags, mode)


def sync_file(descriptor: int) -> None:
    """Have the device keep what was written. macOS needs F_FULLFSYNC for that: its fsync stops at the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Have the device keep the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
