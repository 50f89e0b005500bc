"""Differences between an existing table and the one a pipeline needs, and the statements that would close them.

The one rule: a statement is proposed only if every stored value survives it. What would lose data is a blocker, for a user to
decide; a pipeline with a blocker does not start.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.clickhouse.conversions import ConversionKind, conversion
from holdfast.clickhouse.types import Type, parse_type
from holdfast.pipeline.mapping.ddl import DEDUP_WINDOW_SETTING, TableSpec, add_columns, change_type, set_window
from holdfast.vocabulary.errors import InvalidError

_REPLICATED: Final = re.compile(r"^(Replicated|Shared)")
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
    """Its `non_replicated_deduplication_window`."""
    keeps_last_insert: bool = False
    """A ReplacingMergeTree without a version column."""


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
        elif (found := _differs(name, kind, column, key=name in has.sorting_key)) is not None:
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


def _engine(table: TableSpec, has: ExistingTable) -> tuple[list[str], list[str], list[str]]:
    """Statements, blockers and warnings about the table as a whole."""
    statements, blockers, warnings = [], [], []
    if not _MERGE_TREE.search(has.engine):
        blockers.append(f"the engine is {has.engine}: only tables of the MergeTree family remember inserts")
    elif _REPLICATED.match(has.engine):
        warnings.append(f"the engine is {has.engine}: its own window applies, and the fence must be replicated too")
    elif has.window < table.window:
        statements.append(set_window(table))
        if has.window == 0:
            warnings.append(f"{DEDUP_WINDOW_SETTING} is 0: a repeated insert would be stored twice until it is set")
    plain = _REPLICATED.sub("", has.engine)
    if _MERGE_TREE.search(has.engine) and plain != table.engine:
        warnings.append(f"the engine is {has.engine}, not {table.engine}: an engine cannot be changed")
    if has.sorting_key and tuple(has.sorting_key) != table.order_by:
        warnings.append(f"the table is ordered by ({', '.join(has.sorting_key)}): that cannot be changed")
    return statements, blockers, warnings
