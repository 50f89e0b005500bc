"""The name of a WAL: drawn once, kept in a file beside the frames, so that it goes where they go.

Partitions write it into the store: only who has that WAL can bring back their unpublished records. A directory that was emptied
gets a new name, because what was in it is gone.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.random import Random

_FILE: Final = "identity"


async def wal_identity(directory: Path, *, random: Random) -> str:
    """The name of the WAL in `directory`, which the caller has open (so that nobody else names it meanwhile)."""
    return await asyncio.to_thread(_read_or_write, directory / _FILE, random.token())


def _read_or_write(path: Path, fresh: str) -> str:
    try:
        known = path.read_text()
    except FileNotFoundError:
        _write(path, fresh)
        return fresh
    except OSError as error:
        raise UnavailableError(f"file {path}", str(error)) from error
    if not known.strip().isalnum():
        raise CorruptError(f"file {path}", f"no name of a WAL: {known[:80]!r}")
    return known.strip()


def _write(path: Path, name: str) -> None:
    """Whole or not at all, and durable before anything in the store speaks of it."""
    unfinished = path.with_suffix(".new")
    try:
        with unfinished.open("w") as file:
            file.write(name + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnavailableError(f"file {path}", str(error)) from error
