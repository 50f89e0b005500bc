"""The deletion of rows that a rewind replaces: fenced, begun once, followed until it is done. Synchronous, for threads.

The one rule: a deletion is looked for before it is begun. ClickHouse deletes in the background (a mutation), for hours if the
table is large; a process that finds it under way only reports it, and the rows count as deleted when none is left. Before it
begins, inserts of the old generations are fenced for ever and killed: none can land behind it.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.clickhouse.replicas import kill_queries
from holdfast.pipeline.model.definition import Generation
from holdfast.pipeline.model.range_identity import partition_key
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.pipeline.sinks.clickhouse.fences import fence_of

FOR_EVER: Final = 2**62
"""The epoch an old generation is fenced with: above every real epoch."""

_PARTITIONS_PER_DELETE: Final = 200
_FENCES_PER_INSERT: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRows:
    """Rows of a pipeline's older generations, from the start offsets of the one that replaces them."""

    pipeline_id: str
    database: str
    table: str
    topic: str
    fresh: Generation
    partitions: Mapping[int, Sequence[int]]
    """The partitions of each older generation whose rows are replaced; rows of others stay."""
    cluster: str = ""
    """The cluster that the table is on."""

    def conditions(self) -> Iterable[str]:
        """The conditions that select them, each for some partitions."""
        mine = f"_pipeline = {quote_literal(self.pipeline_id)} AND _topic = {quote_literal(self.topic)}"
        older = f"_generation < {self.fresh.number} AND _generation IN ({', '.join(map(str, sorted(self.partitions)))})"
        starts = sorted((int(number), offset) for number, offset in self.fresh.starts.items())
        for at in range(0, len(starts), _PARTITIONS_PER_DELETE):
            some = starts[at : at + _PARTITIONS_PER_DELETE]
            ranges = " OR ".join(f"(_partition = {number} AND _offset >= {offset})" for number, offset in some)
            yield f"{mine} AND {older} AND ({ranges})"


def delete_rows(rows: ReplacedRows, connection: ClickHouseClient) -> str:
    """Begin or follow the deletion; why it is not done yet. Empty: no such row is left, nor can one come."""
    if not rows.partitions or not rows.fresh.starts:
        return ""
    _fence_permanently(rows, connection)
    for table in _tables(rows, connection):
        if under_way := _mutation(rows, table, connection):
            return under_way
        name, conditions = qualified_name(rows.database, table), list(rows.conditions())
        if not any(int(connection.value(f"SELECT count() FROM {name} WHERE {each}")) for each in conditions):
            continue
        deletions = ", ".join(f"DELETE WHERE {each}" for each in conditions)
        connection.command(f"ALTER TABLE {name} {deletions}", settings={"mutations_sync": 0})
        return _mutation(rows, table, connection) or f"{table}: rows are being deleted"
    return ""


def _fence_permanently(rows: ReplacedRows, connection: ClickHouseClient) -> None:
    connection.command(statements.create_fence(rows.database))
    guard = fence_of(connection, rows.database, rows.table)
    fence = qualified_name(rows.database, guard.table)
    keys = [
        partition_key(rows.pipeline_id, generation, rows.topic, number)
        for generation, numbers in rows.partitions.items()
        for number in numbers
    ]
    for at in range(0, len(keys), _FENCES_PER_INSERT):
        some = keys[at : at + _FENCES_PER_INSERT]
        listed = ", ".join(map(quote_literal, some))
        fenced = f"SELECT uniqExact(k) FROM {fence} WHERE epoch = {FOR_EVER} AND k IN ({listed})"
        if int(connection.value(fenced)) < len(some):
            guard.raise_to(connection, some, FOR_EVER)
    for generation in rows.partitions:
        inserts = quote_literal(f"holdfast:{rows.pipeline_id}:{generation}:")
        connection.command(kill_queries(f"startsWith(query_id, {inserts})", rows.cluster))


def _tables(rows: ReplacedRows, connection: ClickHouseClient) -> list[str]:
    """The pipeline's table, its DLQ and its marks, as far as they exist."""
    names = [rows.table + suffix for suffix in ("", statements.DLQ_SUFFIX, statements.REPLAYED_SUFFIX)]
    listed = ", ".join(map(quote_literal, names))
    found = connection.rows(
        f"SELECT name FROM system.tables WHERE database = {quote_literal(rows.database)} AND name IN ({listed})"
    )
    exist = {str(row[0]) for row in found}
    return [name for name in names if name in exist]


def _mutation(rows: ReplacedRows, table: str, connection: ClickHouseClient) -> str:
    """The deletion that is under way in a table; empty: there is none."""
    found = connection.rows(
        "SELECT mutation_id, parts_to_do, latest_fail_reason FROM system.mutations WHERE NOT is_done "
        f"AND database = {quote_literal(rows.database)} AND table = {quote_literal(table)} "
        f"AND position(command, {quote_literal('_pipeline = ' + quote_literal(rows.pipeline_id))}) > 0 "
        f"AND position(command, '_generation < {rows.fresh.number}') > 0 ORDER BY create_time LIMIT 1"
    )
    if not found:
        return ""
    name, parts, failure = found[0]
    failed = f"; it fails: {' '.join(str(failure).split())[:300]}" if failure else ""
    return f"{table}: mutation {name} deletes the rows, parts to do: {parts}{failed}"
