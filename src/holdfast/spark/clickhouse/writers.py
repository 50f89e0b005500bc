"""The writers that Spark calls: `batch_writer` for `df.write`, `stream_writer` for `df.writeStream`.

Spark creates a writer in a Python process of the driver and pickles it to the tasks; commit and abort run in other processes of the
driver. The one rule: a writer holds values only; what a commit has to know of its query travels in the tasks' messages.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.spark.clickhouse.committer import Committer
from holdfast.spark.clickhouse.options import SPARK_OPTIONS, ClickHouseOptions, parse_options
from holdfast.spark.clickhouse.ownership import take_ownership
from holdfast.spark.clickhouse.scopes import WriteIdentity, WriterScope, stream_scope, write_scope
from holdfast.spark.clickhouse.stager import RowStager, StagedRows
from holdfast.spark.clickhouse.statements import ScopeKey
from holdfast.spark.clickhouse.target import Target, prepare_target
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, UsageError
from holdfast.vocabulary.random import SystemRandom

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"
_BATCH_ID: Final = "streaming.sql.batchId"
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WAIT_BEYOND_MS: Final = 10_000

Messages = Sequence[WriterCommitMessage | None]


@dataclass
class RowMessage(WriterCommitMessage):
    """A task's message to the driver: what its write is, and what it has staged."""

    identity: WriteIdentity
    staged: StagedRows


@dataclass(frozen=True)
class TableWriter:
    """The values of one writer, and the work of its tasks and its driver."""

    options: ClickHouseOptions
    target: Target
    replaces: bool

    def write(self, identity: WriteIdentity, batches: Iterator[pa.RecordBatch]) -> RowMessage:
        """A task's work. The first task of a batch takes the scope, so that a later start is known before any commit."""
        context = TaskContext.get()
        with closing(connect(self.options)) as client:
            if identity.scope is not None and context is not None and context.partitionId() == 0:
                take_ownership(client, self._key(identity.scope), identity)
            stager = RowStager(client, self.target, self.options, identity.staged_batch, SystemRandom())
            return RowMessage(identity, stager.stage_all(batches))

    def commit(self, messages: Messages) -> None:
        """The driver's work."""
        received = [each for each in messages if isinstance(each, RowMessage)]
        if not received:
            return  # a batch without tasks has no rows
        with closing(connect(self.options)) as client:
            committer = Committer(
                client,
                self.target,
                self.options,
                replaces=self.replaces,
                clock=RealClock(),
                random=SystemRandom(),
            )
            committer.commit(received[0].identity, [each.staged for each in received])

    def _key(self, scope: WriterScope) -> ScopeKey:
        return self.target.scope_key(scope.name)


class ClickHouseWriter(DataSourceArrowWriter):
    """`df.write.format("holdfast.clickhouse")`."""

    def __init__(self, table: TableWriter, token: str) -> None:
        self._table, self._token = table, token

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowMessage:
        return self._table.write(self._identity(), iterator)

    def commit(self, messages: Messages) -> None:
        self._table.commit(messages)

    def abort(self, messages: Messages) -> None:
        """Nothing was visible, or what was recorded will be finished by whoever repeats the write."""

    def _identity(self) -> WriteIdentity:
        """Within `foreachBatch`, the query's; else the writer's own."""
        write_id, number = self._table.options.write_id, self._table.options.write_number
        query, run = _property(_QUERY_ID), _property(_RUN_ID)
        if not query or not write_id or not _UUID.fullmatch(run):  # a job group that the user has set is no run
            run = self._token
        scope = write_scope(write_id) if write_id else None
        return WriteIdentity(scope=scope, query=query, run=run, batch=number)


class ClickHouseStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("holdfast.clickhouse")`."""

    def __init__(self, table: TableWriter, spark_options: Mapping[str, str]) -> None:
        self._table, self._spark_options = table, dict(spark_options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowMessage:
        query, run, batch = _property(_QUERY_ID), _property(_RUN_ID), _property(_BATCH_ID)
        for name, found in ((_QUERY_ID, query), (_RUN_ID, run), (_BATCH_ID, batch)):
            if not found:
                raise CorruptError("task of a streaming query", f"the property {name} is missing")
        scope = stream_scope(self._table.options, self._spark_options, query)
        return self._table.write(WriteIdentity(scope=scope, query=query, run=run, batch=int(batch)), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._table.commit(messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Nothing was visible, or what was recorded will be finished by the next start. Staged rows go when that is done."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> ClickHouseWriter:
    """The writer of one batch write. With the option `writeId`, repeating the write has no further effect."""
    parsed = parse_options(options)
    if parsed.scope:
        raise InvalidError("option scope", parsed.scope, "absent: a batch write has a writeId")
    return ClickHouseWriter(_table_writer(parsed, schema, overwrite), SystemRandom().token())


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> ClickHouseStreamWriter:
    """The writer of a streaming query. `overwrite`: each batch replaces the table's content (complete mode)."""
    parsed = parse_options(options)
    if parsed.write_id:
        raise InvalidError("option writeId", parsed.write_id, "absent: a streaming query has a scope")
    of_spark = {name: value for name, value in options.items() if name.lower() in SPARK_OPTIONS}
    return ClickHouseStreamWriter(_table_writer(parsed, schema, overwrite), of_spark)


def connect(options: ClickHouseOptions) -> ClickHouseClient:
    """A client, which connects at its first statement."""
    return ClickHouseClient(options.dsn, timeout_ms=options.insert_timeout_ms + _WAIT_BEYOND_MS)


def _table_writer(options: ClickHouseOptions, schema: StructType, overwrite: bool) -> TableWriter:
    with closing(connect(options)) as client:
        target = prepare_target(client, options, schema)
    if overwrite and target.in_keeper:
        raise UsageError(
            f"{target.full_name} is replicated: an overwrite, or output mode complete, exchanges two tables, which replicas do "
            "one by one; guarantee=at-least-once accepts that"
        )
    return TableWriter(options, target, overwrite)


def _property(name: str) -> str:
    context = TaskContext.get()
    return (context.getLocalProperty(name) if context is not None else None) or ""
