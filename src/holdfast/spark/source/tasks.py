"""Ranges grouped into tasks, and a task's work on an executor.

The one rule: the tasks of a stream's batch follow from its ranges alone. A batch that is rerun after a failure must have the same
tasks, or sinks that rely on it write twice. A task costs much more than a range, so small ranges share one.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.read_grants import ReadGrant
from holdfast.spark.ranges import PartitionRange, ReadCounters, TimeBounds, read_range
from holdfast.spark.read_grants import executor_address, grant_reads
from holdfast.spark.source.options import SourceOptions
from holdfast.spark.source.plan import SourceRange
from holdfast.spark.source.read_metrics import append_counters
from holdfast.spark.worker_memory import freeze_loaded_objects, retain_freed_memory

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger(__name__)


class TaskOptions(NamedTuple):
    """How every task of a query reads."""

    cluster_address: ClusterAddress
    include_headers: bool
    skip_lost: bool
    times: TimeBounds
    figures: str


class ReadTask(InputPartition):
    """Some ranges, read one after the other."""

    def __init__(
        self, ranges: Sequence[SourceRange], options: TaskOptions, grants: Sequence[ReadGrant | None] = ()
    ) -> None:
        super().__init__(None)
        self.ranges, self.options = tuple(ranges), options
        self.grants = tuple(grants) or (None,) * len(self.ranges)


class TaskReader(DataSourceReader):
    """A reader as tasks have it: what they need is in their partitions. The reader that planned them stays with the driver."""

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return run_task(partition)


def without_credentials(tasks: Sequence[ReadTask]) -> list[ReadTask]:
    """The tasks as executors get them: with grants instead of URLs of store and objects, where those can be signed."""
    if not tasks or (address := executor_address(tasks[0].options.cluster_address)) is None:
        return list(tasks)
    ranges = [each.range for task in tasks for each in task.ranges]
    grants = iter(grant_reads(tasks[0].options.cluster_address, ranges))
    return [
        ReadTask(task.ranges, task.options._replace(cluster_address=address), [next(grants) for _ in task.ranges])
        for task in tasks
    ]


def task_options(options: SourceOptions, cluster_address: ClusterAddress, times: TimeBounds) -> TaskOptions:
    """How the tasks of this query read."""
    return TaskOptions(cluster_address, options.include_headers, not options.fail_on_data_loss, times, options.figures)


def split_by_rows(ranges: Iterable[SourceRange], rows_max: int) -> list[SourceRange]:
    """Ranges of at most so many offsets, by arithmetic alone."""
    found = []
    for (topic, number, start, end), topic_id in ((_fields(each.range), each.topic_id) for each in ranges):
        parts = -(-(end - start) // rows_max)
        for part in range(parts):
            begin, stop = start + (end - start) * part // parts, start + (end - start) * (part + 1) // parts
            found.append(SourceRange(PartitionRange(topic, number, begin, stop), topic_id))
    return found


def group_by_size(ranges: Sequence[SourceRange], sizes: Sequence[float]) -> list[list[SourceRange]]:
    """Neighbours together, as long as their sizes sum to at most 1."""
    groups: list[list[SourceRange]] = []
    room = 0.0
    for each, size in zip(ranges, sizes, strict=True):
        if not groups or size > room + 1e-9:
            groups.append([])
            room = 1.0
        groups[-1].append(each)
        room -= size
    return groups


def stream_tasks(ranges: Sequence[SourceRange], rows_per_task: int, options: TaskOptions) -> list[ReadTask]:
    """The tasks of a stream's batch."""
    parts = split_by_rows(ranges, rows_per_task)
    sizes = [(each.range.end - each.range.start) / rows_per_task for each in parts]
    return [ReadTask(group, options) for group in group_by_size(parts, sizes)]


def run_task(task: InputPartition) -> "Iterator[pa.RecordBatch]":
    """The records of a task's ranges."""
    if not isinstance(task, ReadTask):  # Spark's own, for an empty read
        return
    retain_freed_memory()
    counters, options = ReadCounters(), task.options
    try:
        for each, grant in zip(task.ranges, task.grants, strict=True):
            yield from read_range(
                options.cluster_address,
                each.range,
                include_headers=options.include_headers,
                counters=counters,
                topic_id=each.topic_id,
                times=options.times,
                skip_lost=options.skip_lost,
                grant=grant,
            )
    finally:
        append_counters(options.figures, counters)
        _log.info(
            "read %d rows of %d ranges: %d bytes from object storage, %d from brokers",
            counters.rows,
            len(task.ranges),
            counters.bytes_objects,
            counters.bytes_agents,
        )
        freeze_loaded_objects()


def _fields(each: PartitionRange) -> tuple[str, int, int, int]:
    return each.topic, each.partition, each.start, each.end
