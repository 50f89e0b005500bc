"""Differences between an existing table and the one a pipeline needs, and the statements that would close them.

The one rule: a statement is proposed only if every stored value survives it, or if the pipeline's own TTL is to delete it, and a
warning says so. What would lose data is a blocker, for a user to decide; a pipeline with a blocker does not start.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.clickhouse.conversions import ConversionKind, conversion
from holdfast.clickhouse.expressions import split_expressions, without_brackets
from holdfast.clickhouse.quoting import quote_identifier
from holdfast.clickhouse.replicas import REPLICATED
from holdfast.clickhouse.types import Type, parse_type
from holdfast.pipeline.mapping.ddl import (
    DEDUP_WINDOW_SETTING,
    TableSpec,
    add_columns,
    change_settings,
    change_ttl,
    change_type,
    setting_text,
    window_settings,
)
from holdfast.vocabulary.errors import InvalidError

_MERGE_TREE: Final = re.compile(r"MergeTree$")
_COMPUTED: Final = ("MATERIALIZED", "ALIAS")


@dataclass(frozen=True, slots=True)
class ExistingColumn:
    """A column from `system.columns`."""

    name: str
    type: str
    default_kind: str = ""
    """'', DEFAULT, MATERIALIZED, ALIAS or EPHEMERAL."""


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """A table from `system.tables` and `system.columns`."""

    engine: str
    columns: Sequence[ExistingColumn]
    sorting_key: Sequence[str] = ()
    window: int = 0
    """How many inserts it remembers."""
    keeps_last_insert: bool = False
    """A ReplacingMergeTree without a version column."""
    window_s: int = 0
    """For how long a replicated one remembers inserts; 0: it is not known, or not replicated."""
    arguments: Sequence[str] = ()
    """Of the engine, without the replica's: the version and deletion columns."""
    partition_by: str = ""
    primary_key: Sequence[str] = ()
    ttl: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """As the server prints them."""
    readonly_settings: frozenset[str] = frozenset(("index_granularity", "index_granularity_bytes"))
    """Those that a table keeps."""


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """A column whose type differs from the mapping's. `fits`: every mapped value can be stored unchanged."""

    column: str
    has: str
    wants: str
    fits: bool
    why: str
    """Why it neither fits nor can be widened."""


@dataclass(frozen=True, slots=True)
class TableDifferences:
    """The differences. All empty: the table fits."""

    missing: tuple[str, ...]
    differs: tuple[ColumnDifference, ...]
    extra: tuple[ExistingColumn, ...]
    """Columns that are not mapped. ClickHouse stores their default."""
    statements: tuple[str, ...]
    blockers: tuple[str, ...]
    warnings: tuple[str, ...]


def compare_table(table: TableSpec, has: ExistingTable) -> TableDifferences:
    """Compare the needed table with the existing one."""
    existing = {column.name: column for column in has.columns}
    wanted = table.columns()
    missing = tuple(name for name in wanted if name not in existing)
    differs, blockers = [], []
    addable = missing
    if "_pipeline" in missing and "_generation" in existing:
        addable = tuple(name for name in missing if name != "_pipeline")  # whose rows are there decides how it is added
        blockers.append("_pipeline is missing: the table is of an earlier release, holdfast pipeline migrate adds it")
    statements = [add_columns(table, addable)] if addable else []
    for name, kind in wanted.items():
        if name not in existing:
            continue
        column = existing[name]
        if column.default_kind in _COMPUTED:
            blockers.append(f"{name} is {column.default_kind}: it cannot be written")
        elif (found := _differs(name, kind, column, key=_is_key(name, has))) is not None:
            differs.append(found)
            if found.why:
                blockers.append(f"{name} is {found.has}, the mapping says {found.wants}: {found.why}")
            elif not found.fits:
                statements.append(change_type(table, name))
    extra = tuple(column for column in has.columns if column.name not in wanted)
    settings, more_blockers, warnings = _engine(table, has)
    return TableDifferences(
        missing, tuple(differs), extra, (*statements, *settings), (*blockers, *more_blockers), tuple(warnings)
    )


def _differs(name: str, wanted: Type, column: ExistingColumn, *, key: bool) -> ColumnDifference | None:
    try:
        has = parse_type(column.type)
    except InvalidError:
        return ColumnDifference(name, column.type, str(wanted), False, "pipelines do not write this type")
    if has == wanted:
        return None
    if conversion(wanted, has).exact:
        return ColumnDifference(name, str(has), str(wanted), True, "")
    widening = conversion(has, wanted)
    if not widening.exact:
        lost = widening.why if widening.kind is ConversionKind.IMPOSSIBLE else f"a change would lose {widening.why}"
        return ColumnDifference(name, str(has), str(wanted), False, lost)
    if key:
        return ColumnDifference(name, str(has), str(wanted), False, "the table is ordered by it, so its type stays")
    return ColumnDifference(name, str(has), str(wanted), False, "")


def _is_key(column: str, has: ExistingTable) -> bool:
    """Whether the table is ordered or partitioned by a column, alone or in an expression."""
    word = re.compile(rf"(?<![\w`]){re.escape(column)}(?![\w`])|{re.escape(quote_identifier(column))}")
    return any(column == key or word.search(key) for key in (*has.sorting_key, has.partition_by))


def _engine(table: TableSpec, has: ExistingTable) -> tuple[list[str], list[str], list[str]]:
    """Statements, blockers and warnings about the table as a whole."""
    if not _MERGE_TREE.search(has.engine):
        return [], [f"the engine is {has.engine}: only tables of the MergeTree family remember inserts"], []
    blockers = _change_blockers(table, has) if table.changes else []
    statements, warnings = _window(table, has)
    for more, said in (_settings(table, has), _ttl(table, has)):
        statements += more
        warnings += said
    return statements, blockers, [*warnings, *_unchangeable(table, has)]


def _window(table: TableSpec, has: ExistingTable) -> tuple[list[str], list[str]]:
    family = match[1] if (match := REPLICATED.match(has.engine)) else ""
    wanted = window_settings(family, table.window)
    if family == "Shared" or (family and not has.window) or has.window >= table.window:
        wanted = {
            name: value for name, value in wanted.items() if name.endswith("_seconds") and 0 < has.window_s < value
        }
    warnings = []
    if not family and has.window == 0:
        warnings.append(f"{DEDUP_WINDOW_SETTING} is 0: a repeated insert would be stored twice until it is set")
    return ([change_settings(table, dict(wanted))] if wanted else []), warnings


def _settings(table: TableSpec, has: ExistingTable) -> tuple[list[str], list[str]]:
    differ = {name: value for name, value in table.settings if has.settings.get(name) != setting_text(value)}
    fixed = {name: value for name, value in differ.items() if name in has.readonly_settings}
    warnings = [
        f"the setting {name} is {has.settings.get(name, 'the default')}, not {setting_text(value)}: a table keeps it"
        for name, value in fixed.items()
    ]
    changed = {name: value for name, value in differ.items() if name not in fixed}
    return ([change_settings(table, changed)] if changed else []), warnings


def _ttl(table: TableSpec, has: ExistingTable) -> tuple[list[str], list[str]]:
    if not table.ttl:
        return [], [f"the table has a TTL, {has.ttl}: rows are deleted by it"] if has.ttl else []
    if without_brackets(table.ttl) == without_brackets(has.ttl):
        return [], []
    instead = f", not {has.ttl}" if has.ttl else ""
    return [change_ttl(table)], [
        f"the TTL should be {table.ttl}{instead}: rows beyond it will be deleted once it is set"
    ]


def _unchangeable(table: TableSpec, has: ExistingTable) -> list[str]:
    found = []
    if (plain := REPLICATED.sub("", has.engine)) != REPLICATED.sub("", table.engine):
        found.append(f"the engine is {has.engine}, not {table.engine}: an engine cannot be changed")
    elif table.family and plain == has.engine:
        found.append(
            f"the engine is {has.engine}, not {table.engine}: it is not replicated, and an engine cannot be changed"
        )
    if not table.changes and table.engine_columns and tuple(has.arguments) != table.engine_columns:
        given = ", ".join(has.arguments) or "none"
        found.append(f"the version and deletion columns of the table are {given}: they cannot be changed")
    if has.sorting_key and _keys(has.sorting_key) != _keys(table.order_by):
        found.append(f"the table is ordered by ({', '.join(has.sorting_key)}): that cannot be changed")
    if table.primary_key and _keys(has.primary_key) != _keys(table.primary_key):
        found.append(f"the primary key is ({', '.join(has.primary_key)}): that cannot be changed")
    if table.partition_by and without_brackets(has.partition_by) != without_brackets(table.partition_by):
        by = f"by {has.partition_by}" if has.partition_by else "in no way"
        found.append(f"the table is partitioned {by}, not by {table.partition_by}: that cannot be changed")
    return found


def _keys(entries: Sequence[str]) -> tuple[str, ...]:
    return tuple(without_brackets(entry).strip("`") for entry in entries)


def key_entries(printed: str) -> tuple[str, ...]:
    """The columns and expressions of a key as the server prints it."""
    return tuple(_unquoted(without_brackets(part)) for part in split_expressions(printed))


def _unquoted(part: str) -> str:
    name = part.strip("`").replace("\\`", "`").replace("\\\\", "\\")
    return name if part.startswith("`") and part == quote_identifier(name) else part


def _change_blockers(table: TableSpec, has: ExistingTable) -> list[str]:
    """Why updates and deletes of rows would have no effect in a table."""
    blockers = []
    if tuple(has.arguments) != table.engine_columns:
        wanted = f"ReplacingMergeTree({', '.join(table.engine_columns)})"
        blockers.append(f"updates and deletes need {wanted}, and an engine cannot be changed: use a new table")
    if _keys(has.sorting_key) != _keys(table.order_by):
        key = ", ".join(table.order_by)
        blockers.append(f"updates and deletes need a table ordered by the key ({key}): use a new table")
    return blockers
