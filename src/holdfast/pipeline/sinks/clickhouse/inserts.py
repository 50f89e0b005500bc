"""Inserts that the server refuses to a zombie, and what becomes of one that may have been done already.

The one rule: a token tells less than it seems. One that is not remembered may have its rows there: it is forgotten once as many
inserts as the window holds came after it. One that is remembered may not: ClickHouse notes the token, then stores the rows, and may
be killed between the two; from then on it drops whatever comes under that token. So rows are looked for by their provenance, before
and after; what is still not there then goes in under the next token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import qualified_name
from holdfast.pipeline.sinks.clickhouse import statements, tables
from holdfast.pipeline.sinks.contract import BlockedError

SPARE_TOKENS: Final = 3
"""Tokens for what a killed server has noted and not stored. Each more is for one more such kill over the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedInsert:
    """Rows for a table, what they are known by, and under whose fence they go in."""

    database: str
    table: str
    kinds: Mapping[str, str]
    rows: Any
    token: str
    place: str
    """The condition that finds these rows in the table, and no others, by their provenance."""
    fence: str
    epoch: int
    """What the fence compares."""
    query: str
    """The query's id."""
    timeout_ms: int

    @property
    def name(self) -> str:
        """Database and table, quoted."""
        return qualified_name(self.database, self.table)

    @property
    def made(self) -> tuple[int, int]:
        """How many rows, of how many records: SQL may make several of one."""
        import pyarrow.compute as pc

        return self.rows.num_rows, int(pc.count_distinct(self.rows.column("_offset")).as_py())


def insert_now(connection: ClickHouseClient, insert: FencedInsert, *, only: str = "") -> None:
    """Send it, known by its token alone. `only`: a condition on the rows."""
    statement = statements.fenced_insert(
        insert.name, insert.kinds, database=insert.database, key=insert.fence, epoch=insert.epoch, only=only
    )
    settings = statements.insert_settings(insert.token, insert.query, timeout_ms=insert.timeout_ms)
    connection.insert(statement, one_batch(insert.rows), settings=settings)


def insert_resolved(connection: ClickHouseClient, insert: FencedInsert) -> tuple[int, int]:
    """Have the rows there once, whether or not they were inserted already; how many are there then, of how many records."""
    made = insert.made
    there = _there(connection, insert)
    if there == made:
        return there
    insert_now(connection, insert)
    there = _there(connection, insert)
    if there == made:
        return there
    parting = tables.table_partitioning(connection, insert.database, insert.table, insert.kinds)
    return there if parting is None else _insert_what_was_lost(connection, insert, parting)


def _insert_what_was_lost(
    connection: ClickHouseClient, insert: FencedInsert, parting: tables.TablePartitioning
) -> tuple[int, int]:
    """A part is there whole or not at all. So the lost rows are those of the table's partitions that have none of these."""
    lost = statements.lost(insert.name, parting.key, insert.place)
    kinds = {**insert.kinds, **parting.kinds}
    there = 0, 0
    for spare in range(1, SPARE_TOKENS + 1):
        again = replace(insert, kinds=kinds, token=f"{insert.token}:{spare}", query=f"{insert.query}:{spare}")
        insert_now(connection, again, only=lost)
        there = _there(connection, insert)
        if there == insert.made:
            return there
    if not there[0]:
        raise BlockedError(
            f"{insert.name} shows none of the rows that were inserted {SPARE_TOKENS + 1} times: "
            "does a row policy hide them, or a TTL remove them at once?"
        )
    return there


def _there(connection: ClickHouseClient, insert: FencedInsert) -> tuple[int, int]:
    rows, records = connection.rows(statements.present(insert.name, insert.place))[0]
    return int(rows), int(records)


def one_batch(rows: Any) -> Any:
    """The rows as a stream of one Arrow batch, in a `pyarrow.Buffer`: one block for the server."""
    import pyarrow as pa

    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows.combine_chunks(), max_chunksize=max(1, rows.num_rows))
    return buffer.getvalue()
