"""The tables of a target: what they should be, what is there, and what is in the way.

The one rule: a table that is there is looked at and not changed, unless the drift policy is to add columns. What it lacks is
said, with the statement that would help; setting a window, for one, changes what becomes of other writers' inserts.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.pipeline.mapping.ddl import DEDUP_WINDOW_SETTING, TableSpec, add_columns, create_table, table_spec
from holdfast.pipeline.mapping.table_diff import ExistingColumn, ExistingTable, TableDifferences, compare_table
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.pipeline.sinks.contract import AT_LEAST_ONCE, EXACTLY_ONCE, BlockedError, SinkTarget
from holdfast.vocabulary.errors import InvalidError

_WINDOW_IN: Final = re.compile(DEDUP_WINDOW_SETTING + r"\s*=\s*(\d+)")
_TO_TABLE: Final = re.compile(r"\sTO\s+(?:`?([^`.\s(]+)`?\.)?`?([^`\s(]+)`?")
_REPLICATED: Final = re.compile(r"^(Replicated|Shared)")


@dataclass(frozen=True, slots=True)
class TableCheck:
    """What was found before the first row is written."""

    guarantee: str
    warnings: tuple[str, ...]


def database_of(target: SinkTarget) -> str:
    """Where everything of a target is: as configured, else as the DSN says, else `default`."""
    config = config_of(target)
    from_dsn = (config.dsn or target.embedded).partition("://")[2].partition("?")[0].partition("/")[2].strip("/")
    return config.database or from_dsn or "default"


def config_of(target: SinkTarget) -> ClickHouseConfig:
    """The sink's own settings."""
    config = target.recipe.sink
    if not isinstance(config, ClickHouseConfig):
        raise InvalidError("sink", type(config).__name__, "clickhouse")
    return config


def table_of(target: SinkTarget) -> TableSpec:
    """The table a target's rows need."""
    return table_spec(config_of(target), target.columns, database=database_of(target), overflow=target.overflow)


def prepare_tables(target: SinkTarget, connection: ClickHouseClient) -> TableCheck:
    """Create what is missing and may be created; `BlockedError` says what is in the way."""
    config, table = config_of(target), table_of(target)
    has = describe_table(connection, table)
    if has is None:
        if not config.create_table_if_missing:
            raise BlockedError(f"the table {table.full_name} is not there, and createTableIfMissing is off")
        connection.command(create_table(table))
        has = describe_table(connection, table)
    if has is None:
        raise BlockedError(f"the table {table.full_name} is not there right after it was made")
    if target.recipe.drift.unknown_fields == "add-column" and (missing := compare_table(table, has).missing):
        connection.command(add_columns(table, missing))
        has = describe_table(connection, table) or has
    connection.command(statements.create_fence(table.database))
    connection.command(statements.create_dlq(table.database, table.name, table.window))
    _trim(connection, table, target.recipe.drift.dlq_rows_kept)
    return check_table(compare_table(table, has), table, has, tuple(_views_without_window(connection, table)))


def _trim(connection: ClickHouseClient, table: TableSpec, kept: int) -> None:
    if connection.rows(statements.oldest_surplus(table.database, table.name, kept)):
        connection.command(statements.trim_dlq(table.database, table.name, kept))


def check_table(
    found: TableDifferences, table: TableSpec, has: ExistingTable, more: tuple[str, ...] = ()
) -> TableCheck:
    """What a table that is there means for the pipeline."""
    replicated = bool(_REPLICATED.match(has.engine))
    reasons = list(found.blockers)
    if not replicated and has.window == 0:
        reasons.append(f"{DEDUP_WINDOW_SETTING} is 0, so that a repeated insert would be stored twice")
    elif found.missing or any(not column.fits for column in found.differs):
        reasons.extend(f"{name} is missing" for name in found.missing)
        reasons.extend(f"{each.column} is {each.has}, not {each.wants}" for each in found.differs if not each.fits)
    if reasons:
        help_with = f"; this would help: {'; '.join(found.statements)}" if found.statements else ""
        raise BlockedError(f"the table {table.full_name} does not fit: {'; '.join(dict.fromkeys(reasons))}{help_with}")
    warnings = [*found.warnings, *more]
    if replicated:
        warnings.append(
            "at-least-once: the table is replicated and the fence is not, so a zombie may write beside its successor"
        )
    elif has.window < table.window:
        warnings.append(f"the table remembers {has.window} inserts, {table.window} are configured")
    return TableCheck(AT_LEAST_ONCE if replicated else EXACTLY_ONCE, tuple(warnings))


@dataclass(frozen=True, slots=True)
class TablePartitioning:
    """What divides a table into partitions."""

    key: str = ""
    """An expression, as the server shows it; '': nothing."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The columns in it, and their types."""


def table_partitioning(
    connection: ClickHouseClient, database: str, name: str, given: Collection[str]
) -> TablePartitioning | None:
    """What divides a table. None: it is replicated, and its tokens are Keeper's.

    If the server computes it from other columns than those that are given, an insert is taken to be of one partition.
    """
    base, table = quote_literal(database), quote_literal(name)
    found = connection.rows(
        f"SELECT engine, partition_key FROM system.tables WHERE database = {base} AND name = {table}"
    )
    if not found or _REPLICATED.match(found[0][0]):
        return None
    columns = connection.rows(
        f"SELECT name, type FROM system.columns WHERE database = {base} AND table = {table} AND is_in_partition_key"
    )
    kinds = {str(column): str(kind) for column, kind in columns}
    return TablePartitioning(found[0][1], kinds) if kinds.keys() <= set(given) else TablePartitioning()


def describe_table(connection: ClickHouseClient, table: TableSpec) -> ExistingTable | None:
    """A table as it is there; None: it is not. A database that is not there is made by nobody: a `BlockedError`."""
    place = f"database = {quote_literal(table.database)}"
    if not connection.value(f"SELECT count() FROM system.databases WHERE name = {quote_literal(table.database)}"):
        raise BlockedError(f"the database {table.database!r} is not there")
    found = connection.rows(
        f"SELECT engine, sorting_key, engine_full FROM system.tables WHERE {place} AND name = {quote_literal(table.name)}"
    )
    if not found:
        return None
    engine, key, full = found[0]
    columns = connection.rows(
        f"SELECT name, type, default_kind FROM system.columns WHERE {place} AND table = {quote_literal(table.name)} "
        "ORDER BY position"
    )
    window = _WINDOW_IN.search(full)
    sorting = tuple(part.strip().strip("`") for part in key.strip("()").split(",")) if key else ()
    return ExistingTable(engine, [ExistingColumn(*row) for row in columns], sorting, int(window[1]) if window else 0)


def _views_without_window(connection: ClickHouseClient, table: TableSpec) -> Iterator[str]:
    """Materialized views that are fed by the table and would count a repeated insert twice."""
    try:
        views = connection.rows(
            "SELECT database, name, uuid, create_table_query FROM system.tables WHERE engine = 'MaterializedView' "
            f"AND (database, name) IN (SELECT arrayJoin(arrayZip(dependencies_database, dependencies_table)) "
            f"FROM system.tables WHERE database = {quote_literal(table.database)} AND name = {quote_literal(table.name)})"
        )
    except ClickHouseError as error:
        yield f"materialized views could not be looked at: {error}"
        return
    for database, name, uuid, query in views:
        stated = _TO_TABLE.search(query)
        target_database = stated[1] if stated and stated[1] else database
        target = stated[2] if stated else f".inner_id.{uuid}"
        full = connection.rows(
            "SELECT engine_full FROM system.tables WHERE "
            f"database = {quote_literal(target_database)} AND name = {quote_literal(target)}"
        )
        window = _WINDOW_IN.search(full[0][0]) if full else None
        if window is None or int(window[1]) == 0:
            yield (
                f"the materialized view {qualified_name(database, name)} writes into {target_database}.{target}, which does not "
                f"remember inserts ({DEDUP_WINDOW_SETTING} is 0): it counts a range that is written again twice"
            )
