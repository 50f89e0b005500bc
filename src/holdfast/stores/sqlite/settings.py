"""Which database and which settings: `sqlite:///relative.db?timeout_ms=2000`, `sqlite:////absolute.db`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from holdfast.stores.urls import StoreUrl
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, settings_from

_HOUR_MS: Final = 3_600_000
_FORMS: Final = "sqlite:///relative/path.db or sqlite:////absolute/path.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    """Values an operator may tune, each also as `?name=value` in the URL.

    `unsafe` opens what would be refused (a network file system, say); `tick_ms` is how long a lost notification can go unnoticed.
    """

    unsafe: bool = False
    timeout_ms: int = 5_000
    tick_ms: int = 1_000
    commits_kept: int = 100_000
    commit_ids_kept_ms: int = _HOUR_MS
    batch_writes_max: int = 256
    batch_bytes_max: int = 4 * MIB
    waiting_max: int = 100_000

    def __post_init__(self) -> None:
        check_at_least("timeout_ms", self.timeout_ms, 10)
        check_at_least("tick_ms", self.tick_ms, 10)
        check_at_least("commits_kept", self.commits_kept, 1)
        check_at_least("commit_ids_kept_ms", self.commit_ids_kept_ms, _HOUR_MS)
        check_at_least("batch_writes_max", self.batch_writes_max, 1)
        check_at_least("batch_bytes_max", self.batch_bytes_max, KIB)
        check_at_least("waiting_max", self.waiting_max, 1)


def parse_url(url: StoreUrl) -> tuple[Path, SqliteSettings]:
    """The path and the settings a URL names. Relative paths are relative to the working directory."""
    settings = settings_from(SqliteSettings, url.options)
    if url.parts.netloc or url.parts.fragment:
        raise InvalidError("store URL", url.text, f"{_FORMS} (write # as %23)")
    path = unquote(url.parts.path).removeprefix("/")
    if not path or path == ":memory:" or "\0" in path:
        raise InvalidError("store URL", url.text, f"{_FORMS}; without a file, use memory:")
    # All processes must agree on the name, whatever links lead to it: the lock and the sockets are named after it.
    return Path(os.path.realpath(path)), settings


def check_exists(url: StoreUrl) -> None:
    """`InvalidError` unless there is such a database."""
    path, _ = parse_url(url)
    if not path.is_file() or not path.stat().st_size:
        raise InvalidError("store URL", url.shown, f"an existing database: there is no file {path}, or it is empty")
