"""Settings and address of a Redis store, from its URL. No I/O."""

from dataclasses import dataclass, field, fields
from typing import Final
from urllib.parse import unquote

from holdfast.stores.urls import StoreUrl
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between, settings_from

_TLS_FILES: Final = ("ca_file", "cert_file", "key_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """Values an operator may tune, each an option of the URL: `redis://host/0?namespace=orders&timeout_ms=2000`."""

    namespace: str = "holdfast"
    unsafe: bool = False  # open a server that may lose acknowledged commits
    timeout_ms: int = 5_000  # one operation, its retries included
    tick_ms: int = 2_000  # how long a lost notification can go unnoticed
    commits_kept: int = 100_000  # change log; a watcher further behind gets Resync
    log_bytes_max: int = 64 * MIB  # the log lives in the server's memory
    batch_writes_max: int = 256
    batch_bytes_max: int = 1 * MIB
    page_keys_max: int = 5_000
    page_bytes_max: int = 4 * MIB
    scan_restarts_max: int = 3  # a paged scan overtaken so often is read in one request
    outcomes_kept_s: int = 7_200  # twice the hour the contract promises

    def __post_init__(self) -> None:
        if not self.namespace.isascii() or not self.namespace.replace("-", "").replace("_", "").isalnum():
            raise InvalidError("namespace", self.namespace, "ASCII letters, digits, - or _")
        check_at_least("timeout_ms", self.timeout_ms, 10)
        check_at_least("tick_ms", self.tick_ms, 10)
        check_at_least("commits_kept", self.commits_kept, 1)
        check_at_least("log_bytes_max", self.log_bytes_max, KIB)
        check_between("batch_writes_max", self.batch_writes_max, 1, 4_096)  # what Lua can return at once
        check_at_least("batch_bytes_max", self.batch_bytes_max, KIB)
        check_at_least("page_keys_max", self.page_keys_max, 1)
        check_at_least("page_bytes_max", self.page_bytes_max, 1)
        check_at_least("scan_restarts_max", self.scan_restarts_max, 0)
        check_at_least("outcomes_kept_s", self.outcomes_kept_s, 3_600)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Where the server is and how to log in. `shown` is for logs and errors: it holds no password."""

    shown: str
    host: str
    port: int
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def parse_url(url: StoreUrl) -> tuple[RedisAddress, RedisSettings]:
    """The address and settings of a URL."""
    names = tuple(each.name for each in fields(RedisSettings))
    url.check_options(*names, *_TLS_FILES)
    tls = url.parts.scheme in ("rediss", "valkeys")
    files = {name: url.options[name] for name in _TLS_FILES if name in url.options}
    if files and not tls:
        raise UsageError(f"{', '.join(files)} in {url.shown} need TLS: use rediss:// or valkeys://")
    try:
        port = url.parts.port or 6379
    except ValueError:
        raise InvalidError("port in", url.shown, "a number, as in redis://host:6379/0") from None
    path = url.parts.path.strip("/") or "0"
    if not path.isdecimal():
        raise InvalidError(f"database of {url.shown}", path, "a number, as in redis://host:6379/0")
    address = RedisAddress(
        shown=f"{url.parts.scheme}://{url.parts.hostname or 'localhost'}:{port}/{path}",
        host=url.parts.hostname or "localhost",
        port=port,
        database=int(path),
        username=unquote(url.parts.username) if url.parts.username else None,
        password=unquote(url.parts.password) if url.parts.password else None,
        tls=tls,
        **files,
    )
    given = {name: value for name, value in url.options.items() if name in names}
    return address, settings_from(RedisSettings, {**given, "unsafe": url.flag("unsafe")})
