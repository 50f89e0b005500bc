"""Opens a database file: checks that it is durable, then migrates its schema and views.

Several processes may open a new file at once: the one that holds the write lock does the work, the others find it done.
"""

import hashlib
import os
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from holdfast.stores.sqlite import host
from holdfast.stores.sqlite.errors import database
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

ConnectionClass = type[sqlite3.Connection]

APPLICATION_ID: Final = 0x484F4C44  # "HOLD", in the file's header
SQLITE_MIN: Final = (3, 35, 0)
_PACKAGE: Final = files("holdfast.stores.sqlite")
_FULL: Final = 2
# Releases before these have the race that `database_files.WriteLock` avoids.
_WAL_RESET_FIXED: Final = ((3, 44, 6), (3, 50, 7), (3, 51, 3))


def check_file_system(path: Path) -> None:
    """Create the directory, and refuse a path that cannot be a database."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(path, error) from None
    if path.is_dir():
        raise InvalidError("database path", str(path), "a file, not a directory")
    try:
        _create_private(path)
    except OSError as error:
        raise not_writable(path, error) from None


def _create_private(path: Path) -> None:
    """Create the file for its owner alone, if it is not there; SQLite gives its other files the same mode.

    A database is never opened beside SQLite: closing it would give up every lock that this process has on it. So an empty file is
    made under another name and linked.
    """
    if path.exists():
        return
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # 0600
    os.close(descriptor)
    try:
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()


def not_writable(path: Path, error: Exception) -> InvalidError:
    """The error for a path that cannot be written."""
    return InvalidError("database path", str(path), f"writable by this process ({error})")


def connect(path: Path, *, connection_class: ConnectionClass, timeout_ms: int) -> sqlite3.Connection:
    """A connection without implicit transactions."""
    return sqlite3.connect(path, timeout=timeout_ms / 1000, isolation_level=None, factory=connection_class)


def make_durable(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Set the safest options; return what is still not durable."""
    faults = []
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        faults.append(f"SQLite {sqlite3.sqlite_version} is older than {'.'.join(map(str, SQLITE_MIN))}")
    kind = host.file_system(path)
    if kind in host.NETWORK_FILE_SYSTEMS:
        faults.append(f"{kind} is a network file system: SQLite's locks and shared memory do not work there")
    if host.boot_id() is None:
        faults.append("this system has no boot id: sessions of a former boot could seem alive")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        faults.append(f"journal_mode is {mode} instead of wal")
    connection.execute("PRAGMA synchronous = FULL")
    if connection.execute("PRAGMA synchronous").fetchone() != (_FULL,):
        faults.append("synchronous is not FULL")
    if sys.platform == "darwin":  # there fsync leaves data in the drive's cache
        connection.execute("PRAGMA fullfsync = 1")
        connection.execute("PRAGMA checkpoint_fullfsync = 1")
        if connection.execute("PRAGMA fullfsync").fetchone() != (1,):
            faults.append("fullfsync is off")
    connection.execute("PRAGMA journal_size_limit = 67108864")  # the log shrinks again after a burst
    return faults


def notes(path: Path) -> list[str]:
    """What an operator should know, though nothing is wrong."""
    found = []
    kind = host.file_system(path)
    if kind in host.RAM_FILE_SYSTEMS:
        found.append(f"{kind} is memory: all data is lost when the host stops")
    if kind is None:
        found.append("the file system is unknown: make sure that it is not a network file system")
    version = sqlite3.sqlite_version_info
    if not any(
        version >= fixed and (version[:2] == fixed[:2] or fixed == _WAL_RESET_FIXED[-1]) for fixed in _WAL_RESET_FIXED
    ):
        found.append(
            f"SQLite {sqlite3.sqlite_version} can lose commits if another program writes at the same time (its WAL-reset "
            "bug, fixed in 3.51.3); Holdfast's own processes are safe, other programs should only read"
        )
    return found


def migrate(connection: sqlite3.Connection, path: Path, *, random: Random) -> None:
    """Bring the schema and the views up to date, inside the caller's transaction."""
    scripts = sorted(_PACKAGE.joinpath("migrations").iterdir(), key=lambda script: script.name)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and tables:
        raise InvalidError(
            f"content of {database(path)}", "another program's tables", "a Holdfast store, or a new file"
        )
    if found > len(scripts):
        raise InvalidError(
            f"schema version of {database(path)}",
            found,
            f"at most {len(scripts)}: a newer Holdfast wrote it, so upgrade",
        )
    for script in scripts[found:]:
        for statement in statements(script.read_text()):
            connection.execute(statement)
    if found < len(scripts):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(scripts)}")
    if found == 0:
        connection.execute("INSERT INTO head VALUES (1, ?, '', 0, '')", (random.token(),))
    _update_views(connection)


def statements(script: str) -> Iterator[str]:
    """The statements of a script. (`executescript` would commit the open transaction.)"""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _update_views(connection: sqlite3.Connection) -> None:
    script = _PACKAGE.joinpath("views.sql").read_text()
    digest = hashlib.sha256(script.encode()).hexdigest()
    if connection.execute("SELECT views_digest FROM head").fetchone() == (digest,):
        return
    for name in re.findall(r"^CREATE VIEW (\w+)", script, re.MULTILINE):  # views that users added stay
        connection.execute(f"DROP VIEW IF EXISTS {name}")
    for statement in statements(script):
        connection.execute(statement)
    connection.execute("UPDATE head SET views_digest = ?", (digest,))
