"""An existing table, as the server describes it.

The one rule: what the server prints is taken apart at its own marks, and never sent back to it.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

import re
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.expressions import split_expressions
from holdfast.clickhouse.quoting import quote_literal
from holdfast.clickhouse.replicas import REPLICATED
from holdfast.pipeline.mapping.ddl import (
    DEDUP_WINDOW_SETTING,
    REPLICATED_SECONDS_SETTING,
    REPLICATED_WINDOW_SETTING,
    TableSpec,
)
from holdfast.pipeline.mapping.table_diff import ExistingColumn, ExistingTable, key_entries
from holdfast.pipeline.sinks.contract import BlockedError

# `engine_full` is the engine with its arguments, then its clauses in this order, each where there is one.
_CLAUSES: Final = re.compile(
    r"^\w+(?P<arguments>\(.*?\))?(?: PARTITION BY .*?)?(?: PRIMARY KEY .*?)?(?: ORDER BY .*?)(?: SAMPLE BY .*?)?"
    r"(?: TTL (?P<ttl>.*?))?(?: SETTINGS (?P<settings>.*))?$",
    re.DOTALL,
)
_SETTING: Final = re.compile(r"(\w+) = ('(?:[^'\\]|\\.)*'|[^,\s]+)")


def describe_table(connection: ClickHouseClient, table: TableSpec) -> ExistingTable | None:
    """An existing table; None: it does not exist. A missing database is not created: `BlockedError`."""
    place = f"database = {quote_literal(table.database)}"
    if not connection.value(f"SELECT count() FROM system.databases WHERE name = {quote_literal(table.database)}"):
        raise BlockedError(f"database {table.database!r} does not exist")
    found = connection.rows(
        "SELECT engine, sorting_key, primary_key, partition_key, engine_full FROM system.tables "
        f"WHERE {place} AND name = {quote_literal(table.name)}"
    )
    if not found:
        return None
    engine, sorting, primary, partition, full = found[0]
    columns = connection.rows(
        f"SELECT name, type, default_kind FROM system.columns WHERE {place} AND table = {quote_literal(table.name)} "
        "ORDER BY position"
    )
    arguments, ttl, settings = read_engine(full)
    window, window_s = _window(connection, engine, settings)
    return ExistingTable(
        engine,
        [ExistingColumn(*row) for row in columns],
        key_entries(sorting),
        window,
        keeps_last_insert=engine.endswith("ReplacingMergeTree") and not arguments,
        window_s=window_s,
        arguments=arguments,
        partition_by=partition,
        primary_key=key_entries(primary),
        ttl=ttl,
        settings=settings,
    )


def read_engine(full: str) -> tuple[tuple[str, ...], str, dict[str, str]]:
    """The columns among the arguments of an engine, the TTL, and the settings, from `engine_full`."""
    found = _CLAUSES.match(full)
    if found is None:
        return (), "", {}
    given = split_expressions(found["arguments"] or "")
    columns = tuple(each.strip("`") for each in given if not each.startswith("'"))  # a replicated one has texts first
    return columns, found["ttl"] or "", dict(_SETTING.findall(found["settings"] or ""))


def _window(connection: ClickHouseClient, engine: str, settings: dict[str, str]) -> tuple[int, int]:
    """How many inserts a table remembers, and for how many seconds (0: not replicated)."""
    if not REPLICATED.match(engine):
        return int(settings.get(DEDUP_WINDOW_SETTING, 0)), 0
    names = (REPLICATED_WINDOW_SETTING, REPLICATED_SECONDS_SETTING)
    listed = ", ".join(map(quote_literal, names))
    defaults = connection.rows(
        f"SELECT name, value FROM system.replicated_merge_tree_settings WHERE name IN ({listed})"
    )
    known = {str(name): str(value) for name, value in defaults} | settings
    return int(known.get(names[0], 0)), int(known.get(names[1], 0))
