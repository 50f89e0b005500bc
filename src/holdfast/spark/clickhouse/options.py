"""The options of `format("holdfast.clickhouse")`, parsed and checked before anything is opened. Secrets are never shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from holdfast.clickhouse.client import database_of_dsn, parse_dsn
from holdfast.clickhouse.quoting import invalid_name_reason
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.redaction import redacted
from holdfast.vocabulary.settings import KIB, MIB, check_between, check_one_of, settings_from

SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Spark passes its own options to every sink, too."""

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

_NAME_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseOptions:
    """The options of one reader or writer."""

    url: str = field(repr=False)
    """`http[s]://host:port[/database]`; may hold user and password."""
    table: str
    database: str = ""
    """Of the table; else that of the URL, else `default`."""
    user: str = ""
    password: str = field(default="", repr=False)
    scope: str = ""
    """Of a streaming query: whose rows they are. Without it, the query's id: a new checkpoint is a new query."""
    write_id: str = ""
    """Of a batch write: repeating it under the same id has no further effect."""
    write_number: int = 0
    """Of a series of batch writes under one `write_id`: each number takes effect once, in ascending order."""
    create_table: bool = True
    """Create the table if it does not exist."""
    engine: str = "MergeTree"
    """Of a created table."""
    order_by: str = ""
    """Of a created table: its sorting key, an expression."""
    partition_by: str = ""
    """Of a created table: its partition key, an expression."""
    version_column: str = ""
    """Filled with a number that grows with every batch: for the version of a ReplacingMergeTree."""
    provenance: str = "auto"
    """Whether rows say which write they are of: `auto` if the table has the columns, `required`, `off`."""
    guarantee: str = EXACTLY_ONCE
    """`at-least-once` accepts tables that cannot deduplicate inserts, or whose fence would not be shared by replicas."""
    on_different_replay: str = "fail"
    """If a batch is repeated with other rows: `fail`, or `keep` what was recorded first."""
    on_new_generation: str = "delete"
    """What happens to the rows of earlier generations of the scope: `delete` or `keep`."""
    cluster: str = ""
    """Of a replicated table: where its fence is created and older inserts are killed. Needed if it has several replicas."""
    insert_quorum: str = "auto"
    """Of a replicated table: how many replicas store an insert before it counts: `auto` (a majority) or a number; `0`: one."""
    dedup_window: int = 10_000
    """Of a created table: the number of inserts whose tokens it remembers."""
    inline_bytes: int = 48 * KIB
    """A task with at most this much sends it to the driver, and stages nothing."""
    piece_bytes: int = 64 * MIB
    """How much a task buffers before it stages a piece."""
    insert_rows_max: int = MIB
    """How many rows one insert into the table has at most, unless a single piece has more."""
    insert_timeout_ms: int = 120_000
    """After this time the server ends an insert."""
    stall_ms_max: int = 120_000
    """How long a commit is repeated while the server does not answer."""
    staged_hours: int = 168
    """After this time the server deletes what was staged and never committed."""
    filter: str = ""
    """Of a read: a condition in ClickHouse's SQL."""
    final: bool = False
    """Of a read: rows as they are after replacing, as with `FINAL`."""

    def __post_init__(self) -> None:
        try:
            parse_dsn(self.url)
        except InvalidError:
            raise InvalidError("option url", redacted(self.url), "http[s]://host:port[/database]") from None
        if (self.user or self.password) and "@" in urlsplit(self.url).netloc:
            raise InvalidError("options user and password", "…", "absent, or absent from the url: not in both")
        for name, given in (("table", self.table), ("database", self.database or "default")):
            if (reason := invalid_name_reason(given)) is not None:
                raise InvalidError(f"option {name}", given, reason)
        check_one_of("option provenance", self.provenance, ("auto", "required", "off"))
        check_one_of("option guarantee", self.guarantee, (EXACTLY_ONCE, AT_LEAST_ONCE))
        check_one_of("option onDifferentReplay", self.on_different_replay, ("fail", "keep"))
        check_one_of("option onNewGeneration", self.on_new_generation, ("delete", "keep"))
        if self.cluster and (reason := invalid_name_reason(self.cluster)) is not None:
            raise InvalidError("option cluster", self.cluster, reason)
        if self.insert_quorum != "auto" and not (self.insert_quorum.isdecimal() and len(self.insert_quorum) <= 3):
            raise InvalidError("option insertQuorum", self.insert_quorum, "auto, or a number of replicas")
        check_between("option dedupWindow", self.dedup_window, 1, 1_000_000)
        check_between("option inlineBytes", self.inline_bytes, 0, MIB)
        check_between("option pieceBytes", self.piece_bytes, 64 * KIB, 512 * MIB)
        check_between("option insertRowsMax", self.insert_rows_max, 1, 100_000_000)
        check_between("option insertTimeoutMs", self.insert_timeout_ms, 1_000, 3_600_000)
        check_between("option stallMsMax", self.stall_ms_max, 0, 6 * 3_600_000)
        check_between("option stagedHours", self.staged_hours, 1, 24 * 365)
        check_between("option writeNumber", self.write_number, 0, 2**40 - 1)
        if self.write_number and not self.write_id:
            raise InvalidError("option writeNumber", self.write_number, "0 or absent without a writeId")
        for name, given in (("scope", self.scope), ("writeId", self.write_id)):
            if len(given) > _NAME_CHARS_MAX or not given.isprintable():
                raise InvalidError(f"option {name}", given[:80], f"at most {_NAME_CHARS_MAX} printable characters")

    @property
    def dsn(self) -> str:
        """The URL with user and password."""
        if not self.user and not self.password:
            return self.url
        parts = urlsplit(self.url)
        user_info = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return urlunsplit(parts._replace(netloc=f"{user_info}@{parts.netloc}"))

    @property
    def database_name(self) -> str:
        """The database of the table."""
        return self.database or database_of_dsn(self.url) or "default"


_NAMES: Final = {name.replace("_", ""): name for name in ClickHouseOptions.__slots__}
_CAMEL_CASE: Final = sorted(
    first + "".join(map(str.title, rest)) for first, *rest in (name.split("_") for name in _NAMES.values())
)


def parse_options(given: Mapping[str, str]) -> ClickHouseOptions:
    """The options. Names are case-insensitive; an unknown one is an `InvalidError`."""
    values: dict[str, object] = {}
    for name, value in given.items():
        plain = name.lower()
        if plain in _NAMES:
            values[_NAMES[plain]] = value
        elif plain not in SPARK_OPTIONS:
            raise InvalidError("option", name, "one of " + ", ".join(_CAMEL_CASE))
    for name, example in (("url", "http://127.0.0.1:8123"), ("table", "events")):
        if not values.get(name):
            raise InvalidError(f"option {name}", "", f"given, as in {example}")
    table, database = str(values["table"]), values.get("database")
    if not database and table.count(".") == 1:
        values["database"], values["table"] = table.split(".")
    return settings_from(ClickHouseOptions, values)
