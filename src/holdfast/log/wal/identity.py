"""The id of a WAL: drawn once, kept in a file beside the frames, so that it moves with them.

Partitions write it into the store: their unpublished records can be recovered from that WAL only. A directory that was emptied gets
a new id, because the records are gone.
"""

import asyncio
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.random import Random

_FILE: Final = "identity"


async def wal_identity(directory: Path, *, random: Random) -> str:
    """The id of the WAL in `directory`, which the caller has open, so that nobody else writes it."""
    return await asyncio.to_thread(_read_or_write, directory / _FILE, random.token())


def known_identity(directory: Path) -> str:
    """The id of a WAL that is not open here; "" if it has none yet. Blocks."""
    try:
        return (directory / _FILE).read_text().strip()
    except FileNotFoundError:
        return ""


def _read_or_write(path: Path, fresh: str) -> str:
    try:
        known = path.read_text()
    except FileNotFoundError:
        return _write(path, fresh)
    except OSError as error:
        raise UnavailableError(f"file {path}", str(error)) from error
    if not known.strip().isalnum():
        raise CorruptError(f"file {path}", f"no WAL id: {known[:80]!r}")
    return known.strip()


def _write(path: Path, name: str) -> str:
    try:
        write_atomic(path, f"{name}\n".encode(), unfinished="identity.new")  # before the store references it
    except OSError as error:
        raise UnavailableError(f"file {path}", str(error)) from error
    return name
