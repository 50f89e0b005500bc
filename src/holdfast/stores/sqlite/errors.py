"""What SQLite's errors mean to a caller, in one table: wait and retry, or call the operator."""

import sqlite3
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import CorruptError, UnavailableError

# What a person can do about it; anything else is shown as SQLite says it.
_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write; see the system's log",
    sqlite3.SQLITE_BUSY: "another program holds it locked; end that program's transaction",
    sqlite3.SQLITE_READONLY: "it has become read-only; see its permissions and its mount",
    sqlite3.SQLITE_CANTOPEN: "a file beside it cannot be opened; see the directory's permissions",
}
# Our statements do not change, so "no such table" and its like mean that somebody changed the schema under us.
_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT)


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's error code without its details (SQLITE_IOERR for SQLITE_IOERR_FSYNC)."""
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def corrupt(found: str) -> sqlite3.DatabaseError:
    """What SQLite would raise, for damage it cannot see."""
    error = sqlite3.DatabaseError(found)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def database(path: Path) -> str:
    """How errors name the database."""
    return f"SQLite database {path}"


def to_store_error(error: sqlite3.Error, path: Path) -> UnavailableError | CorruptError:
    """What to raise for `error`, which left nothing changed."""
    code = primary_code(error)
    if code in _CORRUPT:
        return CorruptError(database(path), str(error))
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    advice = _ADVICE.get(code)
    return UnavailableError(database(path), f"{error} ({name})" + (f": {advice}" if advice else ""))
