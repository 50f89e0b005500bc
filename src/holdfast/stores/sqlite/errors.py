"""SQLite's errors as errors of the contract, in one table: retry later, or call the operator."""

import sqlite3
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import CorruptError, UnavailableError

# What an operator can do. Other errors are shown as SQLite words them.
_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "disk full; free some space",
    sqlite3.SQLITE_IOERR: "disk I/O failed; check the system log",
    sqlite3.SQLITE_BUSY: "locked by another program; end its transaction",
    sqlite3.SQLITE_READONLY: "read-only; check its permissions and its mount",
    sqlite3.SQLITE_CANTOPEN: "a file beside it cannot be opened; check the directory's permissions",
}
# Our statements are fixed, so "no such table" and the like mean that another program changed the schema.
_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT)


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's error code without its details (SQLITE_IOERR for SQLITE_IOERR_FSYNC)."""
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def corrupt(found: str) -> sqlite3.DatabaseError:
    """What SQLite would raise, for damage that it cannot detect."""
    error = sqlite3.DatabaseError(found)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def database(path: Path) -> str:
    """The database's name in errors."""
    return f"SQLite database {path}"


def to_store_error(error: sqlite3.Error, path: Path) -> UnavailableError | CorruptError:
    """The contract's error for `error`, which changed nothing."""
    code = primary_code(error)
    if code in _CORRUPT:
        return CorruptError(database(path), str(error))
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    advice = _ADVICE.get(code)
    return UnavailableError(database(path), f"{error} ({name})" + (f": {advice}" if advice else ""))
