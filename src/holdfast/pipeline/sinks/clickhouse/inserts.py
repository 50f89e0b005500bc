"""Fenced inserts, and how an insert that may have been done already is resolved.

The one rule: a token alone proves nothing. ClickHouse forgets it after as many inserts as the deduplication window holds, though
the rows are stored. And it records the token before it stores the rows: killed between the two, it drops every later insert under
that token, though the rows are missing. So rows are queried by their provenance, before and after. Of a range that is stored in
part only the missing records are inserted; those that are still missing then, under the next token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import qualified_name
from holdfast.clickhouse.replicas import quorum_settings, sync_replica
from holdfast.pipeline.sinks.clickhouse import statements, tables
from holdfast.pipeline.sinks.clickhouse.fences import Fence
from holdfast.pipeline.sinks.contract import BlockedError

SPARE_TOKENS: Final = 3
"""Further tokens, one for each time the server is killed between recording a token and storing the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedInsert:
    """Rows for a table, their token, and the fence they are inserted under."""

    database: str
    table: str
    kinds: Mapping[str, str]
    rows: Any
    token: str
    place: str
    """The condition that selects exactly these rows in the table, by their provenance."""
    unattributed: str = ""
    """The condition on rows that may be these, stored by a release that did not record the pipeline."""
    ttl: str = ""
    """The pipeline's TTL of the table: rows beyond it are not written again."""
    fence: str
    epoch: int
    """What the fence compares."""
    query: str
    """The query's id."""
    timeout_ms: int
    fence_in: Fence | None = None
    """Where the fence is; None: beside the table."""
    quorum: str = ""
    """Of a replicated table: how many replicas store the rows before they count; empty: it is not replicated."""
    replaces: bool = False
    """The table keeps one row of a key, by its version: rows that are stored again change nothing, and may be gone."""
    record_column: str = "_offset"
    """The provenance column that is another for every record."""
    by_record: bool = True
    """Whether rows name their record by topic, partition and offset, so that single ones can be inserted."""

    @property
    def name(self) -> str:
        """Database and table, quoted."""
        return qualified_name(self.database, self.table)

    @property
    def made(self) -> tuple[int, int]:
        """Number of rows, and of records: SQL may make several rows of one."""
        import pyarrow.compute as pc

        return self.rows.num_rows, int(pc.count_distinct(self.rows.column(self.record_column)).as_py())


def insert_now(connection: ClickHouseClient, insert: FencedInsert, *, only: str = "") -> None:
    """Insert, deduplicated by the token alone. `only`: a condition on the rows."""
    fence = insert.fence_in or Fence(insert.database)
    statement = statements.fenced_insert(
        insert.name,
        insert.kinds,
        database=insert.database,
        key=insert.fence,
        epoch=insert.epoch,
        only=only,
        fence_table=fence.table,
    )
    settings = statements.insert_settings(insert.token, insert.query, timeout_ms=insert.timeout_ms)
    settings |= quorum_settings(insert.quorum, timeout_ms=insert.timeout_ms)
    connection.insert(statement, one_batch(insert.rows), settings=settings)


def insert_resolved(connection: ClickHouseClient, insert: FencedInsert) -> tuple[int, int]:
    """Insert the rows unless they are stored; how many are stored then, of how many records."""
    made = insert.made
    _check_unattributed(connection, insert)
    stored = _stored(connection, insert)
    if stored == made:
        return stored
    if insert.replaces:
        return _insert_replacing(connection, insert)
    partitioning = tables.table_partitioning(connection, insert.database, insert.table, insert.kinds)
    by_record = insert.by_record and partitioning.keeps_rows
    missing = _missing(insert, partitioning.key, by_record=by_record)
    kinds = {**insert.kinds, **partitioning.kinds}
    if stored[0] and (by_record or partitioning.key_given):  # the token may be forgotten
        insert_now(connection, replace(insert, kinds=kinds), only=missing)
    else:
        insert_now(connection, insert)
    stored = _stored(connection, insert)
    if stored == made or partitioning.replicated:  # Keeper has a token only with its rows
        return stored
    for spare in range(1, SPARE_TOKENS + 1):
        retry = replace(insert, kinds=kinds, token=f"{insert.token}:{spare}", query=f"{insert.query}:{spare}")
        insert_now(connection, retry, only=missing)
        stored = _stored(connection, insert)
        if stored == made:
            return stored
    if not stored[0] and not partitioning.expires:
        raise BlockedError(
            f"{insert.name} has none of the rows after {SPARE_TOKENS + 1} inserts: does a row policy hide them?"
        )
    return stored


def _insert_replacing(connection: ClickHouseClient, insert: FencedInsert) -> tuple[int, int]:
    """How many should be left cannot be told. Under a token that nobody has used they are certainly there."""
    insert_now(connection, insert)
    stored = _stored(connection, insert)
    if stored == insert.made:
        return stored
    again = replace(insert, token=f"{insert.token}:{insert.query}", query=f"{insert.query}:again")
    insert_now(connection, again, only=f"({insert.ttl}) > now()" if insert.ttl else "")
    return insert.made


def _missing(insert: FencedInsert, partition_key: str, *, by_record: bool) -> str:
    """The condition on rows that are not stored.

    A part is stored whole or not at all, so table partitions that have none of the rows lack them; `by_record`, where merges keep
    every row: those that have none of a record.
    """
    missing = statements.lost(insert.name, partition_key, insert.place, by_record=by_record)
    return f"({insert.ttl}) > now() AND {missing}" if insert.ttl else missing


def _check_unattributed(connection: ClickHouseClient, insert: FencedInsert) -> None:
    """Whether rows without a pipeline are these or another's cannot be told: neither written again nor taken as written."""
    if not insert.unattributed:
        return
    rows, _ = connection.rows(statements.present(insert.name, insert.unattributed, insert.record_column))[0]
    if int(rows):
        raise BlockedError(
            f"{insert.name} has {rows} rows of an earlier release, without a pipeline, at the place of {insert.token}: they are "
            "this pipeline's or those of another that writes the table; compare them, delete or keep them, and rewind the pipeline"
        )


def _stored(connection: ClickHouseClient, insert: FencedInsert) -> tuple[int, int]:
    if insert.quorum:
        _fetch_parts(connection, insert)
    rows, records = connection.rows(statements.present(insert.name, insert.place, insert.record_column))[0]
    return int(rows), int(records)


def _fetch_parts(connection: ClickHouseClient, insert: FencedInsert) -> None:
    """Another replica may have stored the rows, long enough ago that their token is forgotten."""
    try:
        connection.command(sync_replica(insert.name))
    except ClickHouseError as error:
        if error.code != ClickHouseErrorCode.ACCESS_DENIED:  # then the pipeline is at-least-once, and says so
            raise


def one_batch(rows: Any) -> Any:
    """The rows as a stream of one Arrow batch, in a `pyarrow.Buffer`: one block for the server."""
    import pyarrow as pa

    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows.combine_chunks(), max_chunksize=max(1, rows.num_rows))
    return buffer.getvalue()
