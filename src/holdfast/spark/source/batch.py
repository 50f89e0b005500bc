"""The batch reader: the topics as they are now, in tasks of about equal size.

Where Spark pushes filters down (`spark.sql.python.filterPushdown.enabled`, which our sessions set), they bound what is read. Where
it does not, Spark refuses a reader with `pushFilters`: then `BatchReader` without it is used, and Spark filters.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from holdfast.spark.clusters import discover_urls
from holdfast.spark.ranges import Planner
from holdfast.spark.source.filters import FilterBounds, push_filters
from holdfast.spark.source.options import SourceOptions
from holdfast.spark.source.plan import SourceRange, batch_ranges
from holdfast.spark.source.tasks import ReadTask, TaskReader, group_by_size, run_task, task_options, without_credentials

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHDOWN_MODULE: Final = "pyspark.sql.worker.data_source_pushdown_filters"  # loaded where Spark pushes filters down


class BatchReader(DataSourceReader):
    """Reads the topics of the options."""

    def __init__(self, options: SourceOptions) -> None:
        self._options, self._bounds = options, FilterBounds()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        cluster_address = discover_urls(options.cluster_address)
        planner = Planner(cluster_address)
        parts: list[SourceRange] = []
        sizes: list[float] = []
        for whole in batch_ranges(options, self._bounds, planner):
            for part, size in planner.split_with_sizes(
                whole.range, rows_max=options.rows_per_task, bytes_max=options.bytes_per_task
            ):
                parts.append(SourceRange(part, whole.topic_id))
                sizes.append(size)
        how = task_options(options, cluster_address, self._bounds.times(options.disorder_ms))
        return without_credentials([ReadTask(group, how) for group in group_by_size(parts, sizes)])

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return run_task(partition)

    def __reduce__(self) -> tuple[object, ...]:
        """Spark pickles a reader for its tasks alone: they get none of its options, which may hold secrets."""
        return TaskReader, ()


class FilteringBatchReader(BatchReader):
    """The same, bounded by pushed filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._bounds, left = push_filters(filters)
        return left


def batch_reader(options: SourceOptions) -> BatchReader:
    """The reader that fits this session."""
    return FilteringBatchReader(options) if _PUSHDOWN_MODULE in sys.modules else BatchReader(options)
