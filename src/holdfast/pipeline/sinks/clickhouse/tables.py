"""The tables of a target: created if missing, checked if they exist.

The one rule: an existing table is not changed, unless the drift policy is to add columns. What it lacks is reported with the
statement that would fix it: setting a deduplication window, for one, changes what happens to other writers' inserts.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.clickhouse.replicas import REPLICATED
from holdfast.pipeline.catalog.table_identity import database_of_config
from holdfast.pipeline.mapping.ddl import (
    DEDUP_WINDOW_SETTING,
    REPLICATED_SECONDS_SETTING,
    TableSpec,
    add_columns,
    create_table,
    table_spec,
)
from holdfast.pipeline.mapping.table_diff import ExistingTable, TableDifferences, compare_table
from holdfast.pipeline.model.column_mapping import PROVENANCE
from holdfast.pipeline.model.definition import ClickHouseConfig, has_changes
from holdfast.pipeline.sinks.clickhouse import fences, migrations, statements
from holdfast.pipeline.sinks.clickhouse.existing_tables import describe_table, read_engine
from holdfast.pipeline.sinks.clickhouse.expressions import normalized
from holdfast.pipeline.sinks.contract import AT_LEAST_ONCE, EXACTLY_ONCE, BlockedError, SinkTarget
from holdfast.vocabulary.errors import InvalidError

_WINDOW_IN: Final = re.compile(DEDUP_WINDOW_SETTING + r"\s*=\s*(\d+)")
_KEEP_PROVENANCE: Final = ("MergeTree", "ReplacingMergeTree")
"""Engines whose rows are each of one record, or are replaced by another as a whole."""
_TO_TABLE: Final = re.compile(r"\sTO\s+(?:`?([^`.\s(]+)`?\.)?`?([^`\s(]+)`?")


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The guarantee and warnings of a table that can be written to."""

    guarantee: str
    warnings: tuple[str, ...]


def database_of(target: SinkTarget) -> str:
    """The database of a target: as configured, else from the DSN, else `default`."""
    return database_of_config(config_of(target), target.embedded)


def config_of(target: SinkTarget) -> ClickHouseConfig:
    """The sink's configuration."""
    config = target.revision.sink
    if not isinstance(config, ClickHouseConfig):
        raise InvalidError("sink", type(config).__name__, "clickhouse")
    return config


def table_of(target: SinkTarget) -> TableSpec:
    """The table a target's rows need."""
    config, database = config_of(target), database_of(target)
    changes = has_changes(target.revision.source)
    return table_spec(config, target.columns, database=database, overflow=target.overflow, changes=changes)


def prepare_tables(target: SinkTarget, connection: ClickHouseClient) -> TableCheck:
    """Create missing tables if allowed, check existing ones. `BlockedError`: they cannot be written to."""
    config = config_of(target)
    try:
        table = normalized(connection, table_of(target))
    except InvalidError as error:
        raise BlockedError(str(error)) from None
    has = describe_table(connection, table)
    if has is None:
        if not config.create_table_if_missing:
            raise BlockedError(f"table {table.full_name} does not exist, and createTableIfMissing is off")
        connection.command(create_table(table))
        has = describe_table(connection, table)
    if has is None:
        raise BlockedError(f"table {table.full_name} does not exist right after it was created")
    missing = [name for name in compare_table(table, has).missing if name not in PROVENANCE]
    if missing and target.revision.drift.unknown_fields == "add-column":
        connection.command(add_columns(table, missing))
        has = describe_table(connection, table) or has
    unfenced = fences.create_fence(connection, table, has.engine)
    if not _exists(connection, table.database, table.name + statements.DLQ_SUFFIX):
        connection.command(statements.create_dlq(table.database, table.name, table.window, _beside(table, has)))
    if unmigrated := migrations.unmigrated_tables(connection, table.database, table.name):
        raise BlockedError(migrations.unmigrated_reason(target.pipeline_id, unmigrated))
    trim_dead_letters(connection, table, target)
    views = tuple(views_without_window(connection, table))
    return check_table(
        compare_table(table, has), table, has, views, unfenced=unfenced, insert_timeout_ms=config.insert_timeout_ms
    )


def _exists(connection: ClickHouseClient, database: str, name: str) -> bool:
    place = f"database = {quote_literal(database)} AND name = {quote_literal(name)}"
    return bool(connection.value(f"SELECT count() FROM system.tables WHERE {place}"))


def _beside(table: TableSpec, has: ExistingTable) -> TableSpec:
    """The table, of the family that it has."""
    family = found[1] if (found := REPLICATED.match(has.engine)) else ""
    if table.family == family:
        return table
    return replace(
        table, engine=f"{family}MergeTree", version_column=None, deleted_column=None, replica_path="", replica_name=""
    )


def trim_dead_letters(connection: ClickHouseClient, table: TableSpec, target: SinkTarget) -> None:
    """Delete the pipeline's oldest dead letters beyond those that are kept."""
    pipeline_id, kept = target.pipeline_id, target.revision.drift.dlq_rows_kept
    if not _exists(connection, table.database, table.name + statements.DLQ_SUFFIX):
        return  # a query's: it is made with the first of them
    if connection.rows(statements.oldest_surplus(table.database, table.name, pipeline_id, kept)):
        connection.command(statements.trim_dlq(table.database, table.name, pipeline_id, kept))


def check_table(
    found: TableDifferences,
    table: TableSpec,
    has: ExistingTable,
    more: tuple[str, ...] = (),
    *,
    unfenced: str = "its fence is not in Keeper",
    insert_timeout_ms: int = 0,
) -> TableCheck:
    """What an existing table means for the pipeline. `unfenced`: why a replicated one has no fence that all replicas read."""
    replicated = bool(REPLICATED.match(has.engine))
    reasons = list(found.blockers)
    if not replicated and has.window == 0:
        reasons.append(f"{DEDUP_WINDOW_SETTING} is 0: a repeated insert would be stored twice")
    elif found.missing or any(not column.fits for column in found.differs):
        reasons.extend(f"{name} is missing" for name in found.missing)
        reasons.extend(f"{each.column} is {each.has}, not {each.wants}" for each in found.differs if not each.fits)
    if reasons:
        fix = f"; to fix it: {'; '.join(found.statements)}" if found.statements else ""
        raise BlockedError(f"table {table.full_name} does not match: {'; '.join(dict.fromkeys(reasons))}{fix}")
    warnings = [*found.warnings, *more]
    if has.window < table.window and not (replicated and not has.window):
        warnings.append(f"the deduplication window of the table is {has.window} inserts, {table.window} are configured")
    if replicated and not unfenced:
        unfenced = _forgets(has, insert_timeout_ms)
    if replicated and unfenced:
        warnings.append(
            f"at-least-once: the table is replicated, and a zombie may write beside its successor: {unfenced}"
        )
    merging = REPLICATED.sub("", has.engine) not in _KEEP_PROVENANCE
    if merging:
        warnings.append(
            f"at-least-once: {has.engine} merges rows of different records, and a range that is stored cannot be found by them"
        )
    return TableCheck(AT_LEAST_ONCE if merging or (replicated and unfenced) else EXACTLY_ONCE, tuple(warnings))


def _forgets(has: ExistingTable, insert_timeout_ms: int) -> str:
    """Why tokens do not cover the inserts that a fence has not reached: those under way, and as long again for Keeper."""
    needed_s = 2 * insert_timeout_ms // 1_000
    if 0 < has.window_s < needed_s:
        return f"{REPLICATED_SECONDS_SETTING} is {has.window_s}, and an insert may take {insert_timeout_ms // 1_000} s"
    return ""


@dataclass(frozen=True, slots=True)
class TablePartitioning:
    """How a table is partitioned."""

    key: str = ""
    """An expression, as the server prints it; '': not partitioned."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The columns in it, and their types."""
    expires: bool = False
    """Whether the table has a TTL: rows may be gone."""
    replicated: bool = False
    """Keeper holds its tokens."""
    keeps_rows: bool = True
    """Whether merges keep every row."""
    key_given: bool = True
    """Whether every column in the key is given."""


def table_partitioning(
    connection: ClickHouseClient, database: str, name: str, given: Collection[str]
) -> TablePartitioning:
    """How a table is partitioned.

    If the key depends on columns that are not given, an insert is taken to be of one partition.
    """
    base, table = quote_literal(database), quote_literal(name)
    found = connection.rows(
        f"SELECT engine, partition_key, engine_full FROM system.tables WHERE database = {base} AND name = {table}"
    )
    if not found:
        return TablePartitioning()
    columns = connection.rows(
        f"SELECT name, type FROM system.columns WHERE database = {base} AND table = {table} AND is_in_partition_key"
    )
    kinds = {str(column): str(kind) for column, kind in columns}
    engine, key, full = found[0]
    _, ttl, _ = read_engine(full)
    key_given = kinds.keys() <= set(given)
    return TablePartitioning(
        key=key if key_given else "",
        kinds=kinds if key_given else {},
        expires=bool(ttl),
        replicated=bool(REPLICATED.match(engine)),
        keeps_rows=REPLICATED.sub("", engine) == "MergeTree",
        key_given=key_given,
    )


def views_without_window(connection: ClickHouseClient, table: TableSpec) -> Iterator[str]:
    """Warnings about materialized views of the table that would count a repeated insert twice."""
    try:
        views = connection.rows(
            "SELECT database, name, uuid, create_table_query FROM system.tables WHERE engine = 'MaterializedView' "
            f"AND (database, name) IN (SELECT arrayJoin(arrayZip(dependencies_database, dependencies_table)) "
            f"FROM system.tables WHERE database = {quote_literal(table.database)} AND name = {quote_literal(table.name)})"
        )
    except ClickHouseError as error:
        yield f"materialized views could not be checked: {error}"
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
                f"materialized view {qualified_name(database, name)} writes to {target_database}.{target}, which does not "
                f"deduplicate inserts ({DEDUP_WINDOW_SETTING} is 0): a range that is written again counts twice"
            )
