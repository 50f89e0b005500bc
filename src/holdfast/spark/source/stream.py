"""The streaming reader: Spark checkpoints positions, and a batch is the ranges between two of them.

The one rule: a batch follows from its two positions alone, and Spark keeps those. The reader may be lost and recreated between any
two calls; only the end of an `AvailableNow` run lives in it, and a lost run starts over; so does the wait for a minimum.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from holdfast.spark.clusters import discover_urls
from holdfast.spark.ranges import ANY_TIME, Planner, TopicOffsets
from holdfast.spark.source.options import SourceOptions
from holdfast.spark.source.plan import (
    check_retention,
    end_position,
    initial_position,
    next_position,
    stream_ranges,
    topic_offsets,
)
from holdfast.spark.source.positions import StreamPosition, parse_position
from holdfast.spark.source.tasks import TaskReader, run_task, stream_tasks, task_options, without_credentials
from holdfast.vocabulary.clock import Clock, RealClock

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new records, within the limits of the options."""

    def __init__(self, options: SourceOptions, *, clock: Clock | None = None, planner: Planner | None = None) -> None:
        self._options, self._planner = options, planner
        self._until: StreamPosition | None = None
        self._last: StreamPosition | None = None
        self._offsets: dict[str, TopicOffsets] = {}
        self._clock = clock if clock is not None else RealClock()
        self._waiting_since_ms: int | None = None  # since when there are records, but fewer than the minimum

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return initial_position(self._options, self._open_planner()).json(self._options.source_name)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        options, planner, before = self._options, self._open_planner(), parse_position(start)
        limited = not isinstance(limit, ReadAllAvailable)
        self._offsets = topic_offsets(options, planner)
        self._last = next_position(
            options,
            planner,
            self._offsets,
            before,
            limited=limited,
            until=self._until,
            waited_ms=self._waited_ms(before),
        )
        if self._last != before:
            self._waiting_since_ms = None
            check_retention(options, self._offsets, before)
        return self._last.json(options.source_name)

    def _waited_ms(self, before: StreamPosition) -> int:
        """For how long there have been records after `before`."""
        if self._options.rows_min is None:
            return 0
        if not stream_ranges(before, end_position(self._options, self._offsets)):
            self._waiting_since_ms = None
            return 0
        now_ms = self._clock.boot_ms()
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        return now_ms - self._waiting_since_ms

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.rows_max is not None:
            return ReadMaxRows(options.rows_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        return ReadMinRows(options.rows_min) if options.rows_min is not None else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the log as of the last `latestOffset`, and how much of it is in no batch yet."""
        if self._last is None:
            return None
        end = end_position(self._options, self._offsets)
        sizes = [self._open_planner().estimate_size(each.range) for each in stream_ranges(self._last, end)]
        lag = {
            "rows": sum(each.rows for each in sizes),
            "bytesInObjects": sum(each.bytes - each.tail_bytes for each in sizes),
            "bytesOnAgents": sum(each.tail_bytes for each in sizes),
        }
        return {**end.json(), "lag": lag}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = end_position(self._options, topic_offsets(self._options, self._open_planner()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options, planner = self._options, self._open_planner()
        ranges = stream_ranges(parse_position(start), parse_position(end))
        how = task_options(options, planner.cluster_address, ANY_TIME)
        return without_credentials(stream_tasks(ranges, options.rows_per_task, how))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return run_task(partition)

    def __reduce__(self) -> tuple[object, ...]:
        """Spark pickles a reader for its tasks alone: they get none of its options, which may hold secrets."""
        return TaskReader, ()

    def _open_planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(discover_urls(self._options.cluster_address))
        return self._planner
