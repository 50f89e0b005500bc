"""`writeStream.foreachBatch(publish_batches(...))`: the sink where executors also send the bytes.

Spark commits a Python sink in a process of the driver that has no session, so `format("holdfast")` sends from there. A function for
`foreachBatch` has the session: tasks stage the rows, the driver plans, and tasks of a second job send what was planned.

The one rule: the same plans, under the same query id and batch number, as those of `format("holdfast")`. A query may change from
one to the other at any restart.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.spark.executors import SparkExecutors
from holdfast.spark.sink.executor_publisher import StagedBatch
from holdfast.spark.sink.pieces import merge_piece_lists, pack, unpack
from holdfast.spark.sink.writers import TopicWriter, stream_query, stream_topic_writer
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA: Final = "task int, query string, pieces binary"


def publish_batches(**options: str) -> Callable[["DataFrame", int], None]:
    """A function for `foreachBatch` that writes the rows of each batch to topics, exactly once. The options are the sink's.

    `InvalidError`: an option or a column is not the sink's, or the frame is not of a streaming query.
    """
    stated = tuple(sorted(options.items()))

    def publish(frame: "DataFrame", batch: int) -> None:
        writer = _writer_of(stated, frame.schema.json())
        rows = sorted(frame.mapInArrow(StageRows(writer), _SCHEMA).collect(), key=lambda row: row.task)
        if not rows:
            return
        pieces = merge_piece_lists([unpack(bytes(row.pieces)) for row in rows])
        staged = StagedBatch(rows[0].query, batch, pieces)
        writer.publish_from_executors([staged], SparkExecutors(frame.sparkSession))

    return publish


@cache
def _writer_of(options: tuple[tuple[str, str], ...], schema: str) -> TopicWriter:
    """Options and columns are checked once, not with every batch."""
    from pyspark.sql.types import StructType

    return stream_topic_writer(dict(options), StructType.fromJson(json.loads(schema)))


class StageRows:
    """The first job's task: stages its rows."""

    def __init__(self, writer: TopicWriter) -> None:
        self._writer = writer

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        query, context = stream_query(), TaskContext.get()
        if not query:
            raise InvalidError("frame", "of no streaming query", "the one that foreachBatch passes on")
        pieces = pack(self._writer.stage(batches))
        task = 0 if context is None else context.partitionId()
        columns = [pa.array([task], pa.int32()), pa.array([query]), pa.array([pieces], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=["task", "query", "pieces"])
