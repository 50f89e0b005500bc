"""Durable files: written whole or not at all, and still there after a power cut.

The one rule: data first, then the name, then the directory. A reader finds the old file or the new one, never a part of either.
Errors are the operating system's own (`OSError`); the caller adds what the file means.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path


def write_atomic(path: Path, body: bytes, *, mode: int = 0o644, durable: bool = True, unfinished: str = "") -> None:
    """Replace `path` by `body`. The unfinished file is named `unfinished`, or after the process; it is removed on failure.

    Not `durable`: whole or absent for readers, but a power cut may lose it. For what can be made again.
    """
    temporary = path.with_name(unfinished or f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        temporary.unlink()  # left by a process of the same id that was killed; O_EXCL below must not find it
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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
