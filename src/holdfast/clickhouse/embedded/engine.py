"""chDB, opened once per process and restricted to its own tables.

Restricted by the engine itself: by the grants and constraints of its one user, and by functions that replace its own where it
checks no grant. What remains (see `access_policy`) is decided on the engine's syntax tree.

    DIR/lock             held by the process that owns the directory
    DIR/config/*.xml     written at each start: the engine's one user and its grants
    DIR/engine/          ClickHouse's own files
    DIR/scratch/         emptied at each start

The one rule: nothing forks after the engine is loaded; a forked child of it hangs.

`default` is an ordinary database here. In plain chDB it is an overlay of the file system, where a table may be called
`/etc/passwd`; that overlay gets another name, on which nothing is granted.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from holdfast.clickhouse.embedded.access_policy import ALLOWED_ENGINES, StatementPolicy
from holdfast.clickhouse.embedded.errors import REFUSAL, QueryError, engine_error
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.installation import install_hint
from holdfast.vocabulary.random import Random

_LOCK: Final = "lock"
_FILES_DATABASE: Final = "_files"
_PLAIN_PATH: Final = re.compile(r"[^?&#%]+")

# No grant on a source (files, URLs, other servers), on users, backups or named collections. No dictionaries: whoever may create
# one may give it any source, programs included.
_GRANTS: Final = (
    "GRANT SELECT, INSERT, ALTER, TRUNCATE, OPTIMIZE, SHOW, CHECK, KILL QUERY, UNDROP TABLE ON *.*",
    "GRANT CREATE DATABASE, CREATE TABLE, CREATE VIEW, CREATE FUNCTION, DROP ON *.*",
    "GRANT SYSTEM MERGES, SYSTEM TTL MERGES, SYSTEM MOVES, SYSTEM FLUSH, SYSTEM DROP CACHE, SYSTEM VIEWS ON *.*",
    "GRANT CREATE TEMPORARY TABLE, CREATE ARBITRARY TEMPORARY TABLE ON *.*",
    "REVOKE DROP DATABASE ON default.*",  # every connection starts in it
    f"REVOKE ALL ON {_FILES_DATABASE}.*",
)
# Settings that name files, hosts or disks, or allow statements in texts.
_READONLY_SETTINGS: Final = (
    *("format_template_row", "format_template_resultset", "format_schema", "format_schema_source"),
    *("output_format_schema", "format_avro_schema_registry_url", "input_format_record_errors_file_path"),
    *("rename_files_after_processing", "allow_experimental_eval_table_function", "allow_introspection_functions"),
    *("merge_tree_disk", "merge_tree_table_disk"),
)
# The engine checks no grant for these functions: `file` reads any file, `ai…` call other hosts.
_UNCHECKED_FUNCTIONS: Final = "SELECT name FROM system.functions WHERE name = 'file' OR startsWith(lower(name), 'ai')"


class ChdbEngine:
    """The loaded engine. Every statement gets a new connection: that takes a tenth of a millisecond and carries no state over."""

    def __init__(self, library: Any, place: str) -> None:
        self._library, self._place = library, place
        self._first = self.connect()
        answer = self._first.query("SELECT version(), timezone(), hostName()", "TSV").bytes().decode().rstrip("\n")
        self.version, self.timezone, self.host = answer.split("\t")
        replaced = self._names(_UNCHECKED_FUNCTIONS)
        for name in replaced:
            # A function of this name takes precedence over the engine's, wherever it is named, and cannot be dropped by SQL.
            library.create_function(name, _refuse, ["String"], "String")
        table_functions = self._names("SELECT name FROM system.table_functions")
        self.access = StatementPolicy(self.query, {*table_functions, *replaced})

    def _names(self, query: str) -> list[str]:
        return str(self._first.query(query, "TSV").bytes().decode()).split()

    def connect(self) -> Any:
        """A connection, with settings, temporary tables and a current database of its own."""
        try:
            return self._library.connect(self._place)
        except RuntimeError as error:
            raise engine_error(error) from None

    def query(self, statement: str, format_name: str = "TSV") -> bytes:
        """One small statement on a connection of its own."""
        connection = self.connect()
        try:
            return bytes(connection.query(statement, format_name).bytes())
        except RuntimeError as error:
            raise engine_error(error) from None
        finally:
            connection.close()

    def close(self) -> None:
        """Close the last connection; the engine flushes."""
        self._first.close()


def _refuse(_: str) -> str:
    raise PermissionError(REFUSAL)


@contextmanager
def open_engine(settings: ClickHouseSettings, data: Path, *, random: Random) -> Iterator[ChdbEngine]:
    """The engine on a locked directory, for the body."""
    config = _write_config(settings, data)
    _create_default_database(data / "engine", random)
    scratch = data / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    os.putenv("TMPDIR", str(scratch))  # the engine creates a directory there on import
    try:
        library = import_module("chdb._chdb")
    except ModuleNotFoundError:
        raise UnavailableError("chDB", f"chdb is not installed: {install_hint('clickhouse')}") from None
    try:
        engine = ChdbEngine(library, f"{data / 'engine'}?config-file={config}")
    except QueryError as error:
        raise UnavailableError(f"engine in {data}", error.text) from None
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def locked_data_directory(data: Path) -> Iterator[Path]:
    """The directory, created if missing, for this process alone. `UnavailableError` names the process that owns it."""
    if not _PLAIN_PATH.fullmatch(str(data)):
        raise InvalidError("data directory", str(data), "a path without ? & # %")
    try:
        data.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidError("data directory", str(data), f"a writable directory ({error.strerror})") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"
            raise UnavailableError(
                f"data directory {data}",
                f"process {holder} uses it; stop that process, or use another --data",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield data
    finally:
        os.close(descriptor)


def _write_config(settings: ClickHouseSettings, data: Path) -> Path:
    """Write the engine's configuration files; returns the one it is started with."""
    place = data / "config"
    place.mkdir(exist_ok=True)
    users, config = place / "users.xml", place / "config.xml"
    engines = (f"GRANT TABLE ENGINE ON {name}" for name in ALLOWED_ENGINES)
    grants = "".join(f"<query>{each}</query>" for each in (*_GRANTS, *engines))
    fixed = "".join(f"<{name}><readonly/></{name}>" for name in _READONLY_SETTINGS)
    longest = settings.query_ms_max / 1000
    users.write_text(
        "<clickhouse><users><default><password></password><networks><ip>::/0</ip></networks><profile>default</profile>"
        f"<quota>default</quota><grants>{grants}</grants></default></users><quotas><default/></quotas>"
        f"<profiles><default><max_execution_time>{longest:g}</max_execution_time><constraints><max_execution_time>"
        f"<min>0.001</min><max>{longest:g}</max></max_execution_time>{fixed}</constraints></default></profiles></clickhouse>\n"
    )
    memory = f"<max_server_memory_usage>{settings.memory_bytes_max}</max_server_memory_usage>"
    config.write_text(
        f"<clickhouse><default_database>{_FILES_DATABASE}</default_database><users_config>{escape(str(users))}</users_config>"
        f"{memory if settings.memory_bytes_max else ''}</clickhouse>\n"
    )
    return config


def _create_default_database(engine: Path, random: Random) -> None:
    """Create `default` before the engine starts, which would otherwise make it an overlay of the file system."""
    metadata = engine / "metadata"
    metadata.mkdir(parents=True, exist_ok=True)
    # A symlink the engine creates for people; if it exists at a start, the engine prefers the overlay.
    with suppress(FileNotFoundError):
        (metadata / "default").unlink()
    if not (metadata / "default.sql").exists():
        definition = f"ATTACH DATABASE _ UUID '{random_uuid(random)}'\nENGINE = Atomic\n"
        write_atomic(metadata / "default.sql", definition.encode(), unfinished=".default.sql")


def random_uuid(random: Random) -> str:
    """A UUID of version 4."""
    digits = (random.token() + random.token())[:32]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"
