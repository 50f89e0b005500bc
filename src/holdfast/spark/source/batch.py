"""The batch reader: what is there now, in tasks of about equal size.

Where Spark hands filters down (`spark.sql.python.filterPushdown.enabled`, which our sessions set), they bound what is read. Where
it does not, a reader with `pushFilters` would be refused by Spark; then there is one without, and Spark filters.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from holdfast.spark.ranges import Planner
from holdfast.spark.source.filters import FilterBounds, push_filters
from holdfast.spark.source.options import SourceOptions
from holdfast.spark.source.plan import TopicRange, batch_ranges
from holdfast.spark.source.tasks import ReadTask, group_by_size, run_task, task_options

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHDOWN_MODULE: Final = (
    "pyspark.sql.worker.data_source_pushdown_filters"  # what Spark runs where it hands filters down
)


class BatchReader(DataSourceReader):
    """Reads what the options say."""

    def __init__(self, options: SourceOptions) -> None:
        self._options, self._bounds = options, FilterBounds()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        cluster_address = options.cluster_address.with_discovered_urls()
        with Planner(cluster_address) as planner:
            parts: list[TopicRange] = []
            sizes: list[float] = []
            for piece in batch_ranges(options, self._bounds, planner):
                for part, size in planner.split_with_sizes(
                    piece.range, rows_max=options.rows_per_task, bytes_max=options.bytes_per_task
                ):
                    parts.append(TopicRange(part, piece.topic_id))
                    sizes.append(size)
        work = task_options(options, cluster_address, self._bounds.times(options.disorder_ms))
        return [ReadTask(group, work) for group in group_by_size(parts, sizes)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return run_task(partition)


class FilteringBatchReader(BatchReader):
    """The same, bounded by filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._bounds, left = push_filters(filters)
        return left


def batch_reader(options: SourceOptions) -> BatchReader:
    """The reader that fits this session."""
    return FilteringBatchReader(options) if _PUSHDOWN_MODULE in sys.modules else BatchReader(options)
