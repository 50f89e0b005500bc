"""The table that rows are written to: created if missing, checked if it exists.

The one rule: an existing table is not changed. What it lacks is an error with the statement that would mend it.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.keeper import why_no_keeper
from holdfast.clickhouse.quoting import qualified_name, quote_identifier, quote_literal
from holdfast.clickhouse.replicas import REPLICATED, sync_replica, unreached_by_fence
from holdfast.spark.clickhouse import statements
from holdfast.spark.clickhouse.keeper_statements import KeeperScopeKey, create_in_keeper
from holdfast.spark.clickhouse.options import AT_LEAST_ONCE, EXACTLY_ONCE, ClickHouseOptions
from holdfast.spark.clickhouse.spark_types import clickhouse_type
from holdfast.spark.clickhouse.statements import PROVENANCE, STAGED_COLUMNS, ScopeKey, StagedTable
from holdfast.spark.clickhouse.table_identity import EXCHANGES, create_exchanges, replicated_identity, table_identity
from holdfast.vocabulary.errors import InvalidError, UsageError

_WINDOW: Final = "non_replicated_deduplication_window"
_REPLICATED_WINDOW: Final = "replicated_deduplication_window"
_COMPUTED: Final = ("MATERIALIZED", "ALIAS")
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table that can be written to, and what a writer has to know of it. Values only: it travels to the tasks."""

    database: str
    table: str
    columns: Mapping[str, str]
    """The columns that are written, by name, with their types."""
    provenance: bool
    """Whether rows say which write they are of."""
    countable: bool
    """Whether what was inserted stays as it is, so that it can be counted: not where merges replace or sum rows."""
    replicated: bool = False
    in_keeper: bool = False
    """Whether its fence, runs and batches are in Keeper, for all of its replicas."""
    cluster: str = ""

    @property
    def full_name(self) -> str:
        """Quoted, with its database."""
        return qualified_name(self.database, self.table)

    @property
    def mutations_sync(self) -> int:
        """What a deletion waits for: this server, or all replicas."""
        return 2 if self.replicated else 1

    def identity(self, client: ClickHouseClient) -> str:
        """Of the table; empty: it has none."""
        found = replicated_identity if self.replicated else table_identity
        return found(client, self.database, self.table)

    def scope_key(self, scope: str, identity: str = "") -> ScopeKey:
        """A scope of writes to it."""
        if self.in_keeper:
            return KeeperScopeKey(self.database, self.table, scope, identity, cluster=self.cluster)
        return ScopeKey(self.database, self.table, scope, identity)

    @property
    def staged(self) -> StagedTable:
        """Where its rows are staged."""
        return StagedTable(self.database, self.columns)


@dataclass(frozen=True, slots=True)
class _Existing:
    engine: str
    engine_full: str
    columns: Mapping[str, tuple[str, str]]
    """Type and kind of default by name."""


def prepare_target(client: ClickHouseClient, options: ClickHouseOptions, schema: StructType) -> Target:
    """Create what is missing, check what exists. `InvalidError`, `UsageError`: these rows cannot be written there."""
    names = [field.name for field in schema.fields]
    _check_names(names, options)
    database, table = options.database_name, options.table
    existing = _describe(client, database, table)
    if existing is None:
        if not options.create_table:
            raise UsageError(f"table {database}.{table} does not exist, and the option createTable is false")
        client.command(_create_table(options, schema))
        existing = _describe(client, database, table)
        if existing is None:
            raise UsageError(f"table {database}.{table} does not exist right after it was created")
    provenance = _has_provenance(existing, options)
    _check_columns(existing, names, options)
    _check_guarantee(existing, options)
    replicated = bool(REPLICATED.match(existing.engine))
    in_keeper = replicated and options.guarantee == EXACTLY_ONCE
    if in_keeper:
        _create_in_keeper(client, options)
    target = Target(
        database=database,
        table=table,
        columns={name: existing.columns[name][0] for name in names},
        provenance=provenance,
        countable=REPLICATED.sub("", existing.engine) == "MergeTree",
        replicated=replicated,
        in_keeper=in_keeper,
        cluster=options.cluster,
    )
    _create_state(client, target, options)
    return target


def _check_names(names: list[str], options: ClickHouseOptions) -> None:
    if not names:
        raise InvalidError("columns", "", "at least one")
    if len(set(names)) != len(names):
        raise InvalidError("columns", ", ".join(names), "different names")
    reserved = [*STAGED_COLUMNS, *(PROVENANCE if options.provenance != "off" else ()), options.version_column]
    if taken := sorted(set(names) & set(reserved)):
        raise InvalidError(
            "columns", ", ".join(taken), "absent: the sink fills them (provenance=off leaves provenance to you)"
        )


def _describe(client: ClickHouseClient, database: str, table: str) -> _Existing | None:
    place = f"database = {quote_literal(database)}"
    found = client.rows(
        f"SELECT engine, engine_full FROM system.tables WHERE {place} AND name = {quote_literal(table)}"
    )
    if not found:
        if not client.rows(f"SELECT 1 FROM system.databases WHERE name = {quote_literal(database)}"):
            raise UsageError(f"database {database!r} does not exist in ClickHouse at {client.address}")
        return None
    columns = client.rows(
        f"SELECT name, type, default_kind FROM system.columns WHERE {place} AND table = {quote_literal(table)} ORDER BY position"
    )
    engine, engine_full = found[0]
    return _Existing(engine, engine_full, {name: (kind, default) for name, kind, default in columns})


def _create_table(options: ClickHouseOptions, schema: StructType) -> str:
    key = re.findall(r"\w+", options.order_by)
    columns = {
        field.name: clickhouse_type(field.dataType, nullable=field.nullable and field.name not in key)
        for field in schema.fields
    }
    if options.version_column:
        columns[options.version_column] = "UInt64"
    if options.provenance != "off":
        columns |= PROVENANCE
    engine = options.engine
    if engine == "ReplacingMergeTree" and options.version_column:
        engine = f"ReplacingMergeTree({quote_identifier(options.version_column)})"
    lines = [
        f"CREATE TABLE IF NOT EXISTS {qualified_name(options.database_name, options.table)}",
        f"({', '.join(f'{quote_identifier(name)} {kind}' for name, kind in columns.items())})",
        f"ENGINE = {engine}",
        f"PARTITION BY {options.partition_by}" if options.partition_by else "",
        f"ORDER BY ({options.order_by})" if options.order_by else "ORDER BY tuple()",
        f"SETTINGS {_WINDOW} = {options.dedup_window}",
    ]
    return " ".join(filter(None, lines))


def _has_provenance(existing: _Existing, options: ClickHouseOptions) -> bool:
    if options.provenance == "off":
        return False
    lacking = [name for name in PROVENANCE if name not in existing.columns]
    if not lacking:
        return True
    name = qualified_name(options.database_name, options.table)
    adding = ", ".join(f"ADD COLUMN {column} {PROVENANCE[column]}" for column in lacking)
    if options.provenance == "required":
        raise UsageError(f"{name} lacks {', '.join(lacking)}, and provenance is required: ALTER TABLE {name} {adding}")
    _log.warning(
        "%s has no provenance: that nothing is written twice depends on the server's memory of tokens alone, and the rows of "
        "earlier generations cannot be found; to add it: ALTER TABLE %s %s",
        name,
        name,
        adding,
    )
    return False


def _check_columns(existing: _Existing, names: list[str], options: ClickHouseOptions) -> None:
    name = f"{options.database_name}.{options.table}"
    if missing := [each for each in names if each not in existing.columns]:
        raise UsageError(
            f"{name} has no column {', '.join(missing)}; its columns are {', '.join(existing.columns)} (names are case-sensitive)"
        )
    if computed := [each for each in names if existing.columns[each][1] in _COMPUTED]:
        raise UsageError(f"{', '.join(computed)} of {name} cannot be written: the server computes it")
    version = options.version_column
    if version and existing.columns.get(version, ("",))[0] != "UInt64":
        raise UsageError(f"{name} has no column {version} of type UInt64, which versionColumn names")


def _check_guarantee(existing: _Existing, options: ClickHouseOptions) -> None:
    if options.guarantee == AT_LEAST_ONCE:
        return
    name = qualified_name(options.database_name, options.table)
    accept = "guarantee=at-least-once accepts that"
    if not existing.engine.endswith("MergeTree"):
        raise UsageError(f"{name} is a {existing.engine}, which does not deduplicate inserts; {accept}")
    replicated = REPLICATED.match(existing.engine)
    setting = _REPLICATED_WINDOW if replicated else _WINDOW
    window = re.search(setting + r"\s*=\s*(\d+)", existing.engine_full)
    if (
        int(window[1]) == 0 if window is not None else not replicated
    ):  # replicated tables have one unless told otherwise
        raise UsageError(
            f"{name} does not deduplicate inserts: ALTER TABLE {name} MODIFY SETTING {setting} = {options.dedup_window} "
            f"(it holds for every writer of the table); {accept}"
        )


def _create_in_keeper(client: ClickHouseClient, options: ClickHouseOptions) -> None:
    """The tables of a replicated table's scopes, once: with a cluster, every server of it must respond to a statement."""
    database, table = options.database_name, options.table
    try:
        _create_missing(client, database, create_in_keeper(database, options.cluster))
        client.command(sync_replica(qualified_name(database, table)))
        reason = unreached_by_fence(client, database, table, options.cluster)
        replicated_identity(client, database, table)
    except ClickHouseError as error:
        reason = why_no_keeper(error)
    if reason:
        raise UsageError(
            f"{qualified_name(database, table)} is replicated, and two runs could write through two of its replicas: {reason}; "
            "guarantee=at-least-once accepts that"
        )


def _create_state(client: ClickHouseClient, target: Target, options: ClickHouseOptions) -> None:
    """The sink's own tables, once: a look costs less than three statements that change nothing."""
    wanted = {
        statements.RUNS: statements.create_runs(target.database),
        statements.BATCHES: statements.create_batches(target.database),
        EXCHANGES: create_exchanges(target.database),
        target.staged.name: target.staged.create(hours=options.staged_hours),
    }
    _create_missing(client, target.database, wanted)


def _create_missing(client: ClickHouseClient, database: str, wanted: Mapping[str, str]) -> None:
    listed = ", ".join(map(quote_literal, wanted))
    found = client.rows(
        f"SELECT name FROM system.tables WHERE database = {quote_literal(database)} AND name IN ({listed})"
    )
    for name in wanted.keys() - {row[0] for row in found}:
        client.command(wanted[name])
