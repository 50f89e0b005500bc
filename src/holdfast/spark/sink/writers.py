"""The writers that Spark calls: `batch_writer` for `df.write`, `stream_writer` for `df.writeStream`.

Spark creates a writer in a Python process of the driver and pickles it to the tasks; commit and abort run in other processes of the
driver. The one rule: a writer holds values only; open connections belong to the process (`holdfast.spark.clusters`).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from holdfast.client.brokers import CONTACT_MS
from holdfast.client.cluster_access import ClusterAccess, DirectAccess
from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import run
from holdfast.client.producer import KafkaIdempotentProducer
from holdfast.contracts.executors import Executors
from holdfast.spark.clusters import discover_urls, open_cluster
from holdfast.spark.kafka_options import spelled_as_kafka
from holdfast.spark.sink.encoder import SinkTopic
from holdfast.spark.sink.executor_publisher import PlanShare, SendShares, StagedBatch, publish_from_executors
from holdfast.spark.sink.options import SinkOptions, parse_sink_options
from holdfast.spark.sink.pieces import StagedPieceList, merge_piece_lists, pack, unpack
from holdfast.spark.sink.publisher import SinkPublisher
from holdfast.spark.sink.query_state import UNNAMED_WRITE_PREFIX
from holdfast.spark.sink.rows import COLUMNS, KAFKA_COLUMNS, check_columns, only_columns
from holdfast.spark.sink.stager import PieceStager
from holdfast.spark.sink.sweeper import sweep_if_due
from holdfast.spark.sink.topics import direct_access, find_or_create_topic
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError
from holdfast.vocabulary.random import SystemRandom

_log: Final = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"

Messages = Sequence[WriterCommitMessage | None]


@dataclass
class StagedMessage(WriterCommitMessage):
    """A task's message to the driver: its query, and the list of its pieces."""

    query: str
    pieces: bytes


@dataclass(frozen=True)
class TopicWriter:
    """The values of one writer, and the work of its tasks and its driver."""

    options: SinkOptions
    cluster_address: ClusterAddress
    columns: tuple[str, ...] = COLUMNS
    """Others are ignored."""

    async def check_topic(self) -> None:
        """`TopicNotCreatedError`, before any work is done."""
        if self.options.topic:
            await find_or_create_topic(await self._cluster(), self.options.topic)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> StagedPieceList:
        """A task's work: stage its rows."""
        stager = run(self._stager())
        for batch in batches:
            run(stager.add(only_columns(batch, self.columns)))
        return run(stager.finish())

    async def publish(self, query: str, batch: int, pieces: StagedPieceList, *, forget: bool = False) -> None:
        """The driver's work: publish what the tasks have staged."""
        direct = await self._direct()
        producer = self._producer()
        try:
            publisher = self._publisher(direct, producer)
            await publisher.publish(query, batch, pieces)
            if forget:
                await publisher.forget(query)
        finally:
            await producer.close()
        await self._sweep(direct)

    def publish_from_executors(self, batches: Sequence[StagedBatch], executors: Executors) -> None:
        """The driver's work where it can run tasks: they send the bytes."""
        direct = run(self._direct())
        producer = self._producer()
        try:
            publish_from_executors(self._publisher(direct, producer), batches, executors, self._send_shares)
        finally:
            run(producer.close())
        run(self._sweep(direct))

    def _producer(self) -> KafkaIdempotentProducer:
        return KafkaIdempotentProducer(self.cluster_address.bootstrap, login=self.cluster_address.login)

    def _send_shares(self, shares: list[list[PlanShare]]) -> SendShares:
        return SendShares(self.cluster_address, self.options.stall_ms_max, shares)

    async def abort(self, query: str, batch: int, pieces: StagedPieceList) -> None:
        """The driver's work after a batch failed."""
        direct = await self._direct()
        producer = self._producer()
        try:
            await self._publisher(direct, producer).abort(query, batch, pieces)
        finally:
            await producer.close()

    async def _sweep(self, direct: DirectAccess) -> None:
        try:
            await sweep_if_due(store=direct.store, objects=direct.objects, owner=direct.owner, clock=RealClock())
        except HoldfastError as failure:
            _log.warning("cannot sweep staged pieces: %s", failure)

    async def _stager(self) -> PieceStager:
        cluster, direct = await self._cluster(), await self._direct()

        async def find(name: str) -> SinkTopic:
            return await find_or_create_topic(cluster, name)

        context = TaskContext.get()
        return PieceStager(
            self.options,
            objects=direct.objects,
            find_topic=find,
            clock=RealClock(),
            random=SystemRandom(),
            prefix=direct.owner.prefix,
            spread=context.partitionId() if context is not None else 0,
        )

    def _publisher(self, direct: DirectAccess, producer: KafkaIdempotentProducer) -> SinkPublisher:
        return SinkPublisher(
            store=direct.store,
            objects=direct.objects,
            producer=producer,
            clock=RealClock(),
            random=SystemRandom(),
            prefix=direct.owner.prefix,
            stall_ms_max=self.options.stall_ms_max,
        )

    async def _cluster(self) -> ClusterAccess:
        return await open_cluster(self.cluster_address)

    async def _direct(self) -> DirectAccess:
        return direct_access(await self._cluster())


class HoldfastWriter(DataSourceArrowWriter):
    """`df.write.format("holdfast")`."""

    def __init__(self, sink: TopicWriter, query: str, *, forget: bool) -> None:
        self._sink, self._query, self._forget = sink, query, forget
        self._number = sink.options.write_number

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        return StagedMessage(self._query, pack(self._sink.stage(iterator)))

    def commit(self, messages: Messages) -> None:
        run(self._sink.publish(self._query, self._number, _merge_messages(messages), forget=self._forget))

    def abort(self, messages: Messages) -> None:
        run(self._sink.abort(self._query, self._number, _merge_messages(messages)))


class HoldfastStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("holdfast")`."""

    def __init__(self, sink: TopicWriter) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        query = stream_query()
        if not query:
            raise CorruptError("task of a streaming query", f"the property {_QUERY_ID} is missing")
        return StagedMessage(query, pack(self._sink.stage(iterator)))

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        query = _query_id(messages)
        if query:
            run(self._sink.publish(query, batchId, _merge_messages(messages)))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        query = _query_id(messages)
        if query:
            run(self._sink.abort(query, batchId, _merge_messages(messages)))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> HoldfastWriter:
    """The writer of one batch write. With the option `writeId`, repeating the write has no further effect."""
    sink = _topic_writer(options, schema, overwrite)
    named = sink.options.write_id
    return HoldfastWriter(
        sink, f"write/{named}" if named else UNNAMED_WRITE_PREFIX + SystemRandom().token(), forget=not named
    )


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> HoldfastStreamWriter:
    """The writer of a streaming query."""
    # Spark makes the writer again for every batch: a query at work outlives a restart of the brokers.
    contact_ms = CONTACT_MS if _is_first_batch(options) else None
    return HoldfastStreamWriter(stream_topic_writer(options, schema, overwrite, contact_ms=contact_ms))


def stream_topic_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool = False, *, contact_ms: int | None = CONTACT_MS
) -> TopicWriter:
    """The values of a streaming query's writer, checked."""
    sink = _topic_writer(options, schema, overwrite, contact_ms=contact_ms)
    if sink.options.write_id:
        raise InvalidError("option writeId", sink.options.write_id, "absent: a streaming query has an id of its own")
    return sink


def stream_query() -> str:
    """In a task: the streaming query it works for; "" if it works for none."""
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY_ID) if context is not None else None
    return f"stream/{query}" if query else ""


def _is_first_batch(options: Mapping[str, str]) -> bool:
    """Whether the query has finished no batch yet; False where its checkpoint is not a folder of this machine."""
    location = urlsplit(next((value for name, value in options.items() if name.lower() == "checkpointlocation"), ""))
    if location.scheme not in ("", "file") or not location.path:
        return False
    return not any(Path(unquote(location.path), "commits").glob("[0-9]*"))


def _topic_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, contact_ms: int | None = CONTACT_MS
) -> TopicWriter:
    if overwrite:
        raise InvalidError("output mode", "overwrite", "append: records of a topic are never replaced")
    sink_options, cluster_address = parse_sink_options(options)
    columns = COLUMNS
    if spelled_as_kafka(options):
        columns, schema = KAFKA_COLUMNS, _kafka_columns(schema)
    check_columns(_arrow_schema(schema), topic=sink_options.topic)
    sink = TopicWriter(sink_options, discover_urls(cluster_address, contact_ms=contact_ms), columns)
    run(sink.check_topic())
    return sink


def _kafka_columns(schema: StructType) -> StructType:
    """The columns that Spark's Kafka connector writes. A job of its spelling means those, and ignores others."""
    ignored = [field.name for field in schema.fields if field.name not in KAFKA_COLUMNS]
    if ignored:
        _log.warning("columns without effect, as in Spark's Kafka connector: %s", ", ".join(ignored))
    return StructType([field for field in schema.fields if field.name in KAFKA_COLUMNS])


def _arrow_schema(schema: StructType) -> pa.Schema:
    if _has_variant(schema):  # Arrow has it as a struct of two binaries that only Spark can decode
        raise InvalidError("columns", schema.simpleString(), "free of variants (to_json turns one into text)")
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as failure:
        raise InvalidError("columns", schema.simpleString(), f"of types that Arrow has ({failure})") from None


def _has_variant(kind: DataType) -> bool:
    match kind:
        case VariantType():
            return True
        case StructType():
            return any(_has_variant(field.dataType) for field in kind.fields)
        case ArrayType():
            return _has_variant(kind.elementType)
        case MapType():
            return _has_variant(kind.keyType) or _has_variant(kind.valueType)
    return False


def _merge_messages(messages: Messages) -> StagedPieceList:
    """The pieces of all tasks, in task order; a failed task has no message."""
    return merge_piece_lists([unpack(each.pieces) for each in messages if isinstance(each, StagedMessage)])


def _query_id(messages: Messages) -> str:
    """The query of a batch; "" if the batch had no task."""
    return next((each.query for each in messages if isinstance(each, StagedMessage)), "")
