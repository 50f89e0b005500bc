"""The batch reader: what is there now, in tasks of about equal size.

Where Spark hands filters down (`spark.sql.python.filterPushdown.enabled`, which our sessions set), they bound what is read. Where
it does not, a reader with `pushFilters` would be refused by Spark; then there is one without, and Spark filters.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from holdfast.spark.ranges import Planner
from holdfast.spark.source.filters import Bounds, push
from holdfast.spark.source.options import SourceOptions
from holdfast.spark.source.planning import Piece, batch_pieces
from holdfast.spark.source.tasks import Task, grouped, run_task, work_of

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"  # what Spark runs where it hands filters down


class BatchReader(DataSourceReader):
    """Reads what the options say."""

    def __init__(self, options: SourceOptions) -> None:
        self._options, self._bounds = options, Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        reach = options.reach.learned()
        with Planner(reach) as planner:
            parts: list[Piece] = []
            sizes: list[float] = []
            for piece in batch_pieces(options, self._bounds, planner):
                for part, size in planner.split_weighed(
                    piece.range, rows_max=options.rows_per_task, bytes_max=options.bytes_per_task
                ):
                    parts.append(Piece(part, piece.topic_id))
                    sizes.append(size)
        work = work_of(options, reach, self._bounds.times(options.disorder_ms))
        return [Task(group, work) for group in grouped(parts, sizes)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return run_task(partition)


class FilteringReader(BatchReader):
    """The same, bounded by filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._bounds, left = push(filters)
        return left


def batch_reader(options: SourceOptions) -> BatchReader:
    """The reader that fits this session."""
    return FilteringReader(options) if _PUSHING in sys.modules else BatchReader(options)
