"""DDL of a pipeline's table. Text only: nothing is run here.

The one rule: every name and text from a user goes through `quoting`, and an expression stays in its clause (`expressions`);
everything else in a statement comes from the constants below. An existing table is compared by `table_diff`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.clickhouse.expressions import expression_error
from holdfast.clickhouse.quoting import invalid_name_reason, qualified_name, quote_identifier, quote_literal
from holdfast.clickhouse.replicas import on_cluster
from holdfast.clickhouse.type_tokens import is_plain_name
from holdfast.clickhouse.types import INTEGERS, DateTime, DateTime64, Scalar, Type, is_sortable, parse_type
from holdfast.pipeline.mapping.inference import propose_order
from holdfast.pipeline.model.column_mapping import (
    CHANGE_COLUMNS,
    DELETED_COLUMN,
    OVERFLOW_COLUMN,
    PROVENANCE,
    VERSION_COLUMN,
    Column,
    Mapping,
)
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between, check_one_of

FAMILIES: Final = ("", "Replicated", "Shared")
ENGINES: Final = tuple(f"{family}{kind}" for family in FAMILIES for kind in ("MergeTree", "ReplacingMergeTree"))
DEDUP_WINDOW_SETTING: Final = "non_replicated_deduplication_window"
REPLICATED_WINDOW_SETTING: Final = "replicated_deduplication_window"
REPLICATED_SECONDS_SETTING: Final = "replicated_deduplication_window_seconds"
REPLICATED_SECONDS: Final = 7 * 24 * 3_600
"""For how long Keeper remembers the tokens of a table created here. ClickHouse's default is an hour."""
WINDOW_DEFAULT: Final = 10_000
"""Inserts whose tokens ClickHouse remembers. A MergeTree remembers none by default: a repeated insert would be stored twice."""
DEDUP_WINDOW_MAX: Final = 1_000_000
SETTINGS_MAX: Final = 50

_SETTING_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")
_RESERVED_SETTINGS: Final = (DEDUP_WINDOW_SETTING, REPLICATED_WINDOW_SETTING, REPLICATED_SECONDS_SETTING)
_REPLICA_TEXT: Final = re.compile(r"[A-Za-z0-9_{}/.:-]{1,300}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A pipeline's table as it should be. `InvalidError` if its values are wrong."""

    database: str
    name: str
    mapping: Mapping
    order_by: tuple[str, ...]
    """Columns, or expressions of them."""
    engine: str = "MergeTree"
    version_column: str | None = None
    """For ReplacingMergeTree: the row with the greatest value survives; without it, the last one inserted."""
    deleted_column: str | None = None
    """For ReplacingMergeTree: 1 in rows that delete their key."""
    partition_by: str = ""
    primary_key: tuple[str, ...] = ()
    ttl: str = ""
    settings: tuple[tuple[str, str | int | float | bool], ...] = ()
    cluster: str = ""
    replica_path: str = ""
    replica_name: str = ""
    window: int = WINDOW_DEFAULT
    overflow: bool = False
    """Whether there is a column for unmapped fields."""
    changes: bool = False
    """Whether rows are changes: with a version, and deleted or not."""
    provenance: tuple[tuple[str, str], ...] = tuple(PROVENANCE.items())
    """Columns, with their types, that say where a row came from."""

    def __post_init__(self) -> None:
        quote_identifier(self.database), quote_identifier(self.name)
        check_one_of("engine", self.engine, ENGINES)
        check_between("window", self.window, 1, DEDUP_WINDOW_MAX)
        types = self.columns()
        if not self.order_by or len(set(self.order_by)) < len(self.order_by):
            raise InvalidError("order_by", self.order_by, "one or more columns, each once")
        for key in self.order_by:
            _check_key("order_by", key, types)
        if self.primary_key != self.order_by[: len(self.primary_key)]:
            raise InvalidError("primary_key", self.primary_key, f"the first of order_by: {', '.join(self.order_by)}")
        for what, text in (("partition_by", self.partition_by), ("ttl", self.ttl)):
            if text and (allowed := expression_error(text)) is not None:
                raise InvalidError(what, text[:200], allowed)
        self._check_replacing(types)
        self._check_replica()
        check_table_settings(dict(self.settings))
        if self.cluster:
            quote_identifier(self.cluster)

    def _check_replacing(self, types: dict[str, Type]) -> None:
        for what, column in (("version_column", self.version_column), ("deleted_column", self.deleted_column)):
            if column is not None and not self.engine.endswith("ReplacingMergeTree"):
                raise InvalidError(what, column, "empty: only ReplacingMergeTree has one")
        if self.version_column is not None:
            kind = _known("version_column", self.version_column, types)
            numbers = isinstance(kind, Scalar) and (
                (kind.name in INTEGERS and kind.name.startswith("U")) or kind.name in ("Date", "Date32")
            )
            if not numbers and not isinstance(kind, DateTime | DateTime64):
                raise InvalidError(
                    "version_column", self.version_column, f"a UInt, Date, DateTime or DateTime64; this is {kind}"
                )
        if self.deleted_column is not None:
            kind = _known("deleted_column", self.deleted_column, types)
            if self.version_column is None or kind != Scalar("UInt8"):
                raise InvalidError("deleted_column", self.deleted_column, f"a UInt8 beside a version; this is {kind}")

    def _check_replica(self) -> None:
        if not (self.replica_path or self.replica_name):
            return
        if not self.engine.startswith("Replicated") or not (self.replica_path and self.replica_name):
            raise InvalidError(
                "replica_path", self.replica_path, "with replica_name, of a Replicated engine, or neither"
            )
        for what, text in (("replica_path", self.replica_path), ("replica_name", self.replica_name)):
            if not _REPLICA_TEXT.fullmatch(text):
                raise InvalidError(what, text[:200], "letters, digits, macros in braces and _/.:-")

    def columns(self) -> dict[str, Type]:
        """All columns in order: the mapping's, overflow, provenance."""
        kinds = {column.column: column.kind for column in self.mapping.columns}
        if self.overflow:
            kinds[OVERFLOW_COLUMN] = parse_type("String")
        if self.changes:
            kinds |= {name: parse_type(text) for name, text in CHANGE_COLUMNS.items()}
        return {**kinds, **{name: parse_type(text) for name, text in self.provenance}}

    @property
    def engine_columns(self) -> tuple[str, ...]:
        """The columns that the engine is created with."""
        if self.changes:
            return VERSION_COLUMN, DELETED_COLUMN
        return tuple(name for name in (self.version_column, self.deleted_column) if name)

    @property
    def full_name(self) -> str:
        """Database and name, quoted."""
        return qualified_name(self.database, self.name)

    @property
    def place(self) -> str:
        """The full name, and the cluster it is on."""
        return self.full_name + on_cluster(self.cluster)

    @property
    def family(self) -> str:
        """'', `Replicated` or `Shared`."""
        return self.engine.removesuffix("MergeTree").removesuffix("Replacing")

    def key(self, entry: str) -> str:
        """An entry of a key: a column, quoted, or an expression in brackets."""
        return quote_identifier(entry) if entry in self.columns() else f"({entry})"


def check_table_settings(settings: dict[str, Any]) -> None:
    """Names by their form, values by their type: what a setting may be is the server's to say. `InvalidError`."""
    if len(settings) > SETTINGS_MAX:
        raise InvalidError("table settings", len(settings), f"at most {SETTINGS_MAX}")
    for name, value in settings.items():
        if not _SETTING_NAME.fullmatch(name):
            raise InvalidError("table setting", name[:100], "a name of small letters, digits and _")
        if name in _RESERVED_SETTINGS:
            raise InvalidError("table setting", name, "none of the deduplication window: dedupWindow sets it")
        if isinstance(value, str):
            quote_literal(value)
        elif not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidError(f"table setting {name}", str(value)[:100], "a text, a number, true or false")


KEEPS_LAST_INSERT: Final = (
    "a ReplacingMergeTree without a version column keeps the row that was inserted last: set versionColumn "
    "(_offset, if a key is always in one partition), or old records would replace newer ones"
)


def keeps_last_insert(sink: ClickHouseConfig) -> bool:
    """Whether the order of inserts decides which row of a key survives: then old records must not be inserted again."""
    return sink.engine.endswith("ReplacingMergeTree") and not sink.version_column


def table_spec(
    sink: ClickHouseConfig, columns: Sequence[Column], *, database: str, overflow: bool, changes: bool = False
) -> TableSpec:
    """The table that a ClickHouse sink needs for these columns. `InvalidError` if they do not fit its settings."""
    return TableSpec(
        database=database,
        name=sink.table,
        mapping=Mapping(tuple(columns)),
        order_by=sink.order_by or propose_order(columns),
        engine=sink.engine,
        version_column=sink.version_column or None,
        deleted_column=sink.deleted_column or None,
        partition_by=sink.partition_by,
        primary_key=sink.primary_key,
        ttl=sink.ttl,
        settings=tuple(sink.table_settings.items()),
        cluster=sink.cluster,
        replica_path=sink.replica_path,
        replica_name=sink.replica_name,
        window=sink.dedup_window,
        overflow=overflow,
        changes=changes,
    )


def _known(what: str, column: str, types: dict[str, Type]) -> Type:
    if column not in types:
        raise InvalidError(what, column, "one of " + ", ".join(types))
    return types[column]


def _check_key(what: str, entry: str, types: dict[str, Type]) -> None:
    """A column that can be sorted, or something that is no name: an expression."""
    if entry in types or invalid_name_reason(entry) is not None or is_plain_name(entry):
        if not is_sortable(_known(what, entry, types)):
            raise InvalidError(what, entry, f"a column without null, array or map; this is {types[entry]}")
    elif (allowed := expression_error(entry)) is not None:
        raise InvalidError(what, entry[:200], allowed)


def create_table(table: TableSpec) -> str:
    """CREATE TABLE IF NOT EXISTS."""
    columns = ",\n".join(f"    {quote_identifier(name)} {kind}" for name, kind in table.columns().items())
    lines = [f"CREATE TABLE IF NOT EXISTS {table.place}\n(\n{columns}\n)", f"ENGINE = {_engine(table)}"]
    if table.partition_by:
        lines.append(f"PARTITION BY ({table.partition_by})")
    if table.primary_key:
        lines.append(f"PRIMARY KEY ({', '.join(map(table.key, table.primary_key))})")
    lines.append(f"ORDER BY ({', '.join(map(table.key, table.order_by))})")
    if table.ttl:
        lines.append(f"TTL ({table.ttl})")
    if settings := {**window_settings(table.family, table.window), **dict(table.settings)}:
        lines.append("SETTINGS " + ", ".join(f"{name} = {setting_text(value)}" for name, value in settings.items()))
    return "\n".join(lines)


def _engine(table: TableSpec) -> str:
    replica = [quote_literal(text) for text in (table.replica_path, table.replica_name) if text]
    columns = map(quote_identifier, table.engine_columns)
    arguments = ", ".join([*replica, *columns])
    return f"{table.engine}({arguments})" if arguments else table.engine


def window_settings(family: str, window: int) -> dict[str, int]:
    """The settings of a table that remembers its inserts. A Shared engine has those of its service."""
    if family == "Shared":
        return {}
    if family == "Replicated":
        return {REPLICATED_WINDOW_SETTING: window, REPLICATED_SECONDS_SETTING: REPLICATED_SECONDS}
    return {DEDUP_WINDOW_SETTING: window}


def side_table(beside: TableSpec | None, suffix: str, window: int) -> tuple[str, str, str]:
    """The clauses of a table beside a pipeline's own: its cluster, its engine, and its settings."""
    if beside is None:
        return "", "MergeTree", f" SETTINGS {DEDUP_WINDOW_SETTING} = {window}"
    replica = (quote_literal(beside.replica_path + suffix), quote_literal(beside.replica_name))
    engine = f"{beside.family}MergeTree" + (f"({', '.join(replica)})" if beside.replica_path else "")
    settings = ", ".join(f"{name} = {value}" for name, value in window_settings(beside.family, window).items())
    return on_cluster(beside.cluster), engine, f" SETTINGS {settings}" if settings else ""


def setting_text(value: str | int | float | bool) -> str:
    """A value of a setting in SQL."""
    return quote_literal(value) if isinstance(value, str) else str(int(value) if isinstance(value, bool) else value)


def add_columns(table: TableSpec, names: Sequence[str]) -> str:
    """ALTER TABLE … ADD COLUMN for some of the table's columns."""
    kinds = table.columns()
    changes = ", ".join(f"ADD COLUMN IF NOT EXISTS {quote_identifier(name)} {kinds[name]}" for name in names)
    return f"ALTER TABLE {table.place} {changes}"


def change_type(table: TableSpec, name: str) -> str:
    """ALTER TABLE … MODIFY COLUMN to the type it should have."""
    return f"ALTER TABLE {table.place} MODIFY COLUMN {quote_identifier(name)} {table.columns()[name]}"


def change_settings(table: TableSpec, settings: dict[str, str | int | float | bool]) -> str:
    """ALTER TABLE … MODIFY SETTING."""
    changes = ", ".join(f"{name} = {setting_text(value)}" for name, value in settings.items())
    return f"ALTER TABLE {table.place} MODIFY SETTING {changes}"


def change_ttl(table: TableSpec) -> str:
    """ALTER TABLE … MODIFY TTL, or REMOVE TTL where there should be none."""
    return f"ALTER TABLE {table.place} " + (f"MODIFY TTL ({table.ttl})" if table.ttl else "REMOVE TTL")
