"""Batches of a streaming query into ClickHouse, by output mode.

    append      token, fence and provenance, as ranges are written: a piece is stored once
    update      the last version of a key wins; without ReplacingMergeTree the table is a log of changes, stored once
    complete    a table beside is filled, then exchanged with it

The one rule: a piece is identified by generation, batch and number, never by its writer. What a writer of an older epoch sends is
refused by the fence, which one number for the whole generation raises.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.clickhouse.replicas import REPLICATED
from holdfast.clickhouse.types import INTEGERS, DateTime, DateTime64, Scalar
from holdfast.pipeline.mapping.ddl import TableSpec, create_table
from holdfast.pipeline.mapping.table_diff import ExistingTable, compare_table
from holdfast.pipeline.model.column_mapping import RESERVED, Column, Mapping
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.model.query import OutputMode
from holdfast.pipeline.model.range_identity import partition_key
from holdfast.pipeline.sinks.clickhouse import statements, tables
from holdfast.pipeline.sinks.clickhouse.existing_tables import describe_table
from holdfast.pipeline.sinks.clickhouse.expressions import normalized
from holdfast.pipeline.sinks.clickhouse.inserts import FencedInsert, insert_now, insert_resolved
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink, blocked_by_server
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange, SinkTarget
from holdfast.pipeline.sinks.dead_letter_rows import offset_bounds, stream_dead_letters
from holdfast.pipeline.sinks.provenance import PIPELINE_COLUMN, with_pipeline
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import FencedError, InvalidError

PROVENANCE: Final = {
    PIPELINE_COLUMN: "LowCardinality(String)",
    "_generation": "UInt32",
    "_batch": "UInt64",
    "_piece": "UInt32",
    "_row": "UInt32",
}
VERSION: Final = "_version"
RESERVED_BY_STREAMS: Final = RESERVED | PROVENANCE.keys() | {VERSION}
NEXT_PREFIX: Final = "holdfast_next_"
"""Of tables that are about to replace another. Pipeline and epoch follow: nobody else has tables of these names."""
RESTORED: Final = (
    "it was restored from a backup, and batches would be numbered, and written, a second time. Use the newer store; if that is "
    "lost, rewind the pipeline: a new generation begins, and the old one's rows can be deleted by _pipeline and _generation"
)
_FENCE_NAME: Final = "~stream"  # no topic has this name
_BEGUN_NAME: Final = "~begun"
_BATCHES_MAX: Final = 1 << 40
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"  # of tables in databases that are not Atomic
_PLAIN: Final = ("MergeTree", "ReplacingMergeTree")
_GENERATIONS_FENCED_MAX: Final = 100
RETIRED_EPOCH: Final = 1 << 40
"""Beyond every epoch: of generations that a later one has replaced. Each counts epochs from 1, so its successor's may be lower."""


def stream_target(target: SinkTarget) -> SinkTarget:
    """The target as executors get it: without the query, and with the one fence of its generation."""
    revision = msgspec.structs.replace(
        target.revision, source=KafkaConfig(topic=_FENCE_NAME), query=type(target.revision.query)()
    )
    return replace(target, revision=revision)


def stream_table(target: SinkTarget, output_mode: OutputMode) -> TableSpec:
    """The table of a query's result."""
    config = tables.config_of(target)
    provenance = {**PROVENANCE, **({VERSION: "UInt64"} if output_mode == "update" else {})}
    return TableSpec(
        database=tables.database_of(target),
        name=config.table,
        mapping=Mapping(tuple(target.columns)),
        order_by=config.order_by or _proposed_order(target.columns),
        engine=config.engine,
        version_column=VERSION if config.engine == "ReplacingMergeTree" else None,
        partition_by=config.partition_by,
        primary_key=config.primary_key,
        ttl=config.ttl,
        settings=tuple(config.table_settings.items()),
        window=config.dedup_window,
        provenance=tuple(provenance.items()),
    )


def _proposed_order(columns: Sequence[Column]) -> tuple[str, ...]:
    """Times and numbers that are never null, then the place in the batch."""
    sortable = [
        column.column
        for column in columns
        if isinstance(column.kind, DateTime | DateTime64)
        or (isinstance(column.kind, Scalar) and column.kind.name in (*INTEGERS, "Date"))
    ]
    return (*sortable[:2], "_batch", "_piece", "_row")


class ClickHouseStreamSink(ClickHouseSink):
    """One target in one process. `fence` and `close` are the range sink's; partition 0 is the whole generation."""

    def __init__(self, target: SinkTarget, output_mode: OutputMode) -> None:
        super().__init__(target, table=stream_table(target, output_mode))
        self._output_mode = output_mode
        self._replaces = self._table.engine == "ReplacingMergeTree"
        self._repeatable = self._replaces or output_mode == "complete"  # rows that are inserted twice do no harm
        self._replaced = {target.pipeline_id}
        """Pipelines whose rows output mode complete may remove."""

    @blocked_by_server()
    def prepare(self) -> tuple[str, ...]:
        """Create or check the table. `BlockedError`: it cannot take the result exactly once."""
        connection = self._connection
        try:
            table = normalized(connection, self._table)
        except InvalidError as error:
            raise BlockedError(str(error)) from None
        has = describe_table(connection, table)
        if has is None:
            if not tables.config_of(self._target).create_table_if_missing:
                raise BlockedError(f"table {table.full_name} does not exist, and createTableIfMissing is off")
            connection.command(create_table(table))
            has = describe_table(connection, table)
        if has is None:
            raise BlockedError(f"table {table.full_name} does not exist right after it was created")
        connection.command(statements.create_fence(table.database))
        tables.trim_dead_letters(connection, table, self._target)
        views = tuple(tables.views_without_window(connection, table))
        self._check_engine(has, views)
        self._table_check = tables.check_table(compare_table(table, has), table, has, views)
        return self._table_check.warnings

    def _check_engine(self, has: ExistingTable, views: tuple[str, ...]) -> None:
        name, mode = self._table.full_name, self._output_mode
        if REPLICATED.match(has.engine):
            raise BlockedError(
                f"table {name} is a {has.engine}: queries write to tables of one server, where their fence is"
            )
        if mode == "append":
            return
        if has.engine not in _PLAIN:
            raise BlockedError(f"table {name} is a {has.engine}: in output mode {mode} rows would count twice")
        if self.has_views():
            raise BlockedError(
                f"table {name} has materialized views, which would count rows of output mode {mode} twice"
            )
        if has.engine.endswith("ReplacingMergeTree") != self._replaces:
            raise BlockedError(f"table {name} is a {has.engine}, the sink's engine is {self._table.engine}")
        if has.keeps_last_insert:
            raise BlockedError(f"table {name} is a ReplacingMergeTree without {VERSION}: an older batch could win")

    def fence(self, partition: int, epoch: int) -> int:
        """As of every sink; earlier generations are fenced as well, whose records nobody writes any more."""
        number = super().fence(partition, epoch)
        newest = self._target.generation
        earlier = range(max(1, newest - _GENERATIONS_FENCED_MAX), newest)
        if keys := [replace(self._target, generation=each).fence_key(partition) for each in earlier]:
            with blocked_by_server():
                self._connection.command(
                    statements.write_fences(self._database, keys, RETIRED_EPOCH * statements.TRIES)
                )
        return number

    @blocked_by_server()
    def check_history(self, last: int) -> None:
        """`BlockedError`: batches after `last`, the last one of the record, were begun here: the store has lost them."""
        if (begun := self._newest_fence(self._begun_key) - 1) > last:
            raise BlockedError(
                f"{self._table.full_name} has batches up to {begun}, the store knows those up to {last}: {RESTORED}"
            )

    @blocked_by_server()
    def table_id(self) -> str:
        """Tells the table from another of its name. Empty where it has no id, and in output mode complete, which exchanges it."""
        if self._output_mode == "complete":
            return ""
        base, table = quote_literal(self._table.database), quote_literal(self._table.name)
        found = self._connection.rows(f"SELECT uuid FROM system.tables WHERE database = {base} AND name = {table}")
        return str(found[0][0]) if found and found[0][0] != _NO_UUID else ""

    def check_table(self, begun_in: str) -> None:
        """`BlockedError`: a batch was begun in another table of this name. What that has would be written again, into this one."""
        if begun_in and (found := self.table_id()) != begun_in:
            raise BlockedError(
                f"rows of the batch may be in the table with id {begun_in}; {self._table.full_name} is "
                f"{'not there' if not found else f'another one now, with id {found}'}: give that one its name back, "
                "or rewind the pipeline"
            )

    @property
    def _begun_key(self) -> str:
        """Where the number of begun batches is, beside the fence: nobody writes one that no record has."""
        return partition_key(self._target.pipeline_id, self._target.generation, _BEGUN_NAME, 0)

    @blocked_by_server()
    def check_alone(self, exists: Callable[[str], bool]) -> None:
        """In output mode complete: `BlockedError` if the table has rows of another pipeline that `exists`."""
        if self._output_mode != "complete":
            return
        others = {name for (name,) in self._connection.rows(self._others())}
        self._replaced |= {name for name in others if name and not exists(name)}
        self._check_alone()

    def _check_alone(self) -> None:
        if others := self._connection.rows(f"{self._others()} LIMIT 1"):
            raise BlockedError(
                f"table {self._table.full_name} has rows of pipeline {others[0][0] or '(unknown)'}, which output mode complete "
                "would remove: name another table, or delete them"
            )

    def _others(self) -> str:
        known = ", ".join(map(quote_literal, sorted(self._replaced)))
        return (
            f"SELECT DISTINCT {PIPELINE_COLUMN} FROM {self._table.full_name} WHERE {PIPELINE_COLUMN} NOT IN ({known})"
        )

    def has_views(self) -> bool:
        """Whether materialized views read the table."""
        base, table = quote_literal(self._table.database), quote_literal(self._table.name)
        query = f"SELECT sum(length(dependencies_table)) FROM system.tables WHERE database = {base} AND name = {table}"
        return int(self._connection.value(query) or 0) > 0

    @blocked_by_server()
    def begin_batch(self, fenced: FencedRange) -> None:
        """Before the pieces of a batch: its number; in output mode complete, an empty table of this epoch's own to fill."""
        self._fence.raise_to(self._connection, [self._begun_key], fenced.start + 1)
        if self._output_mode != "complete":
            return
        prefix = self._next_table("")
        left = self._connection.rows(
            f"SELECT name FROM system.tables WHERE database = {quote_literal(self._table.database)} "
            f"AND startsWith(name, {quote_literal(prefix)}) "
            f"AND toUInt64OrZero(substring(name, {len(prefix) + 1})) BETWEEN 1 AND {fenced.epoch}"
        )
        for row in left:  # of this epoch's last attempt, and of owners that died
            self._connection.command(f"DROP TABLE IF EXISTS {qualified_name(self._table.database, str(row[0]))} SYNC")
        self._connection.command(f"CREATE TABLE {self._next_name(fenced)} AS {self._table.full_name}")

    @blocked_by_server()
    def insert_piece(self, fenced: FencedRange, piece: int, rows: Any) -> None:
        """One piece of the batch that `fenced` is (its start is the batch). `FencedError`, `BlockedError`."""
        failpoints.reached("stream.inserting")
        insert = self._piece_insert(fenced, piece, rows)
        try:
            if fenced.may_be_written and not self._repeatable:
                stored, _ = insert_resolved(self._connection, insert)
                if stored != rows.num_rows and not (stored < rows.num_rows and self._expires(insert)):
                    raise BlockedError(
                        f"batch {fenced.start}, piece {piece}: {insert.name} has {stored} of its {rows.num_rows} rows; "
                        "did somebody delete some?"
                    )
            else:
                insert_now(self._connection, insert)
        except ClickHouseError as error:
            if not statements.is_fence_refusal(error):
                raise
            raise self._fenced(fenced) from None
        failpoints.reached("stream.inserted")

    @blocked_by_server()
    def insert_refused(self, fenced: FencedRange, piece: int, rows: Any) -> None:
        """A piece of the batch's dead letters: records with their reason. `FencedError`, `BlockedError`."""
        self._connection.command(statements.create_dlq(self._table.database, self._table.name, self._table.window))
        insert = self._refused_insert(fenced, piece, stream_dead_letters(self._target, rows))
        try:
            if fenced.may_be_written:
                insert_resolved(self._connection, insert)
            else:
                insert_now(self._connection, insert)
        except ClickHouseError as error:
            if not statements.is_fence_refusal(error):
                raise
            raise self._fenced(fenced) from None
        failpoints.reached("stream.dlq-inserted")

    def _refused_insert(self, fenced: FencedRange, piece: int, rows: Any) -> FencedInsert:
        target = self._target
        mine = f"_pipeline = {quote_literal(target.pipeline_id)} AND _generation = {target.generation}"
        places = (
            f"_topic = {quote_literal(topic)} AND _partition = {partition} AND _offset BETWEEN {first} AND {last}"
            for topic, partition, first, last in offset_bounds(rows)
        )
        return FencedInsert(
            database=self._database,
            table=self._table.name + statements.DLQ_SUFFIX,
            kinds=statements.DLQ_COLUMNS,
            rows=rows,
            token=f"{target.pipeline_id}:{target.generation}:{fenced.start}:dlq:{piece}",
            place=f"{mine} AND ({' OR '.join(f'({place})' for place in places)})",
            fence=target.fence_key(0),
            epoch=statements.number_of(fenced),
            query=statements.query_id(target, fenced, self._random.token()),
            timeout_ms=self._timeout_ms,
        )

    def _expires(self, insert: FencedInsert) -> bool:
        """Whether a TTL deletes rows of the table."""
        found = tables.table_partitioning(self._connection, insert.database, insert.table, insert.kinds)
        return found.expires and not found.replicated

    def _piece_insert(self, fenced: FencedRange, piece: int, rows: Any) -> FencedInsert:
        target, batch = self._target, fenced.start
        rows = self._with_provenance(rows, batch, piece)
        token = f"{target.pipeline_id}:{target.generation}:{batch}:{piece}"
        if self._repeatable:  # the server may know the token of an attempt whose rows are gone
            token = f"{token}:{self._random.token()}"
        complete = self._output_mode == "complete"
        return FencedInsert(
            database=self._database,
            table=self._next_table(fenced.epoch) if complete else self._table.name,
            kinds=statements.kinds_of(self._table, rows.schema.names),
            rows=rows,
            token=token,
            place=(
                f"_pipeline = {quote_literal(target.pipeline_id)} AND _generation = {target.generation} "
                f"AND _batch = {batch} AND _piece = {piece}"
            ),
            fence=target.fence_key(0),
            epoch=statements.number_of(fenced),
            query=statements.query_id(target, fenced, self._random.token()),
            timeout_ms=self._timeout_ms,
            record_column="_row",
            by_record=False,
            ttl="" if complete else self._table.ttl,
        )

    def _with_provenance(self, rows: Any, batch: int, piece: int) -> Any:
        import numpy as np
        import pyarrow as pa

        count = rows.num_rows
        rows = with_pipeline(rows, self._target.pipeline_id)
        added = {
            "_generation": pa.repeat(pa.scalar(self._target.generation, pa.uint32()), count),
            "_batch": pa.repeat(pa.scalar(batch, pa.uint64()), count),
            "_piece": pa.repeat(pa.scalar(piece, pa.uint32()), count),
            "_row": pa.array(np.arange(count, dtype=np.uint32)),
        }
        if self._output_mode == "update":
            version = self._target.generation * _BATCHES_MAX + batch  # a later generation's rows win
            added[VERSION] = pa.repeat(pa.scalar(version, pa.uint64()), count)
        for name, column in added.items():
            rows = rows.append_column(name, column)
        return rows

    @blocked_by_server()
    def finish_batch(self, fenced: FencedRange, rows: int) -> None:
        """After all pieces of a batch: in output mode complete, the filled table becomes the table.

        The look at the fence and the exchange are two statements: a zombie between them puts an older result in place, which
        lasts until the owner's next batch.
        """
        if self._output_mode != "complete":
            return
        following = self._next_name(fenced)
        stored = int(self._connection.value(f"SELECT count() FROM {following}"))
        if stored != rows:
            raise BlockedError(f"{following} has {stored} of the {rows} rows of batch {fenced.start}")
        if self._newest_fence(self._target.fence_key(0)) > statements.number_of(fenced):
            raise self._fenced(fenced)
        self._check_alone()
        failpoints.reached("stream.exchanging")
        self._connection.command(f"EXCHANGE TABLES {self._table.full_name} AND {following}")
        self._connection.command(f"DROP TABLE {following} SYNC")

    def _next_name(self, fenced: FencedRange) -> str:
        return qualified_name(self._table.database, self._next_table(fenced.epoch))

    def _next_table(self, epoch: int | str) -> str:
        return f"{NEXT_PREFIX}{self._target.pipeline_id}_{epoch}"

    def _fenced(self, fenced: FencedRange) -> FencedError:
        key = self._target.fence_key(0)
        return FencedError(key, fenced.epoch, self._newest_fence(key) // statements.TRIES)
