"""Settings of the PostgreSQL engine, and which URL options are ours and which the driver's."""

import re
from dataclasses import dataclass, fields
from typing import Final
from urllib.parse import urlencode, urlunsplit

from holdfast.stores.batcher import WriteBatchLimits
from holdfast.stores.urls import StoreUrl
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_at_least, settings_from

# NOTIFY channels share 63 bytes with our prefix.
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")

# URL options of asyncpg itself.
_DRIVER_OPTIONS: Final = (
    "host",
    "port",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslnegotiation",
    "target_session_attrs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """Values an operator may tune, each by `?name=value` in the store URL."""

    schema: str = "holdfast"
    unsafe: bool = False  # open a server that may lose acknowledged commits
    timeout_ms: int = 5_000  # for one operation, connecting and retrying included
    connections_max: int = 4  # for reads; commits, keep-alives and notifications have one more each
    tick_ms: int = 2_000  # how long a lost notification may go unnoticed
    log_commits_kept: int = 100_000
    log_page_commits: int = 256
    commit_ids_kept_ms: int = 3_600_000
    prune_every_ms: int = 60_000
    batch_writes_max: int = 256
    batch_bytes_max: int = 1 << 20

    def __post_init__(self) -> None:
        if _SCHEMA.fullmatch(self.schema) is None or self.schema.startswith("pg_"):
            raise InvalidError(
                "schema", self.schema, "1 to 48 characters of a-z, 0-9 and _, starting with neither a digit nor pg_"
            )
        check_at_least("timeout_ms", self.timeout_ms, 50)
        check_at_least("connections_max", self.connections_max, 1)
        check_at_least("tick_ms", self.tick_ms, 50)
        check_at_least("log_commits_kept", self.log_commits_kept, 1)
        check_at_least("log_page_commits", self.log_page_commits, 1)
        check_at_least("commit_ids_kept_ms", self.commit_ids_kept_ms, 1_000)
        check_at_least("prune_every_ms", self.prune_every_ms, 100)
        WriteBatchLimits(writes_max=self.batch_writes_max, bytes_max=self.batch_bytes_max)

    @property
    def channel(self) -> str:
        """The NOTIFY channel of commits."""
        return f"holdfast_{self.schema}"

    def sql(self, text: str) -> str:
        """SQL with this schema's names filled in."""
        return text.replace("{schema}", f'"{self.schema}"').replace("{channel}", self.channel)


def parse_url(url: StoreUrl) -> tuple[str, PostgresSettings]:
    """The driver's URL and our settings."""
    ours = tuple(field.name for field in fields(PostgresSettings))
    url.check_options(*ours, *_DRIVER_OPTIONS)
    settings = settings_from(PostgresSettings, {name: value for name, value in url.options.items() if name in ours})
    rest = {name: value for name, value in url.options.items() if name in _DRIVER_OPTIONS}
    # Of several hosts only the primary will do.
    if "," in url.parts.netloc:
        rest.setdefault("target_session_attrs", "read-write")
    return urlunsplit(url.parts._replace(query=urlencode(rest), fragment="")), settings
