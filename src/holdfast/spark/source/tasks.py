"""Ranges grouped into tasks, and a task's work on an executor.

The one rule: the tasks of a stream's batch follow from its ranges alone. A batch that is run again after a failure must have the
same tasks, or sinks that count on it write twice. A task costs much more than a range, so small ranges share one.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from holdfast.spark.ranges import OffsetRange, ReadCounters, TimeBounds, read_range
from holdfast.spark.reach import Reach
from holdfast.spark.reading.memory import keep_freed, keep_loaded
from holdfast.spark.source.figures import count
from holdfast.spark.source.options import SourceOptions
from holdfast.spark.source.planning import Piece

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger(__name__)


class Work(NamedTuple):
    """How every task of a query reads."""

    reach: Reach
    include_headers: bool
    skip_lost: bool
    times: TimeBounds
    figures: str


class Task(InputPartition):
    """Some ranges, read one after the other."""

    def __init__(self, pieces: Sequence[Piece], work: Work) -> None:
        super().__init__(None)
        self.pieces, self.work = tuple(pieces), work


def work_of(options: SourceOptions, reach: Reach, times: TimeBounds) -> Work:
    """How the tasks of this query read."""
    return Work(reach, options.include_headers, not options.fail_on_data_loss, times, options.figures)


def cut(pieces: Iterable[Piece], rows_max: int) -> list[Piece]:
    """Pieces of at most so many offsets, by arithmetic alone."""
    found = []
    for (topic, number, start, end), topic_id in ((_fields(each.range), each.topic_id) for each in pieces):
        parts = -(-(end - start) // rows_max)
        for part in range(parts):
            begin, stop = start + (end - start) * part // parts, start + (end - start) * (part + 1) // parts
            found.append(Piece(OffsetRange(topic, number, begin, stop), topic_id))
    return found


def grouped(pieces: Sequence[Piece], sizes: Sequence[float]) -> list[list[Piece]]:
    """Neighbours together, as long as their sizes are no more than 1 in sum."""
    groups: list[list[Piece]] = []
    room = 0.0
    for piece, size in zip(pieces, sizes, strict=True):
        if not groups or size > room + 1e-9:
            groups.append([])
            room = 1.0
        groups[-1].append(piece)
        room -= size
    return groups


def stream_tasks(pieces: Sequence[Piece], rows_per_task: int, work: Work) -> list[Task]:
    """The tasks of a stream's batch."""
    parts = cut(pieces, rows_per_task)
    sizes = [(each.range.end - each.range.start) / rows_per_task for each in parts]
    return [Task(group, work) for group in grouped(parts, sizes)]


def run_task(task: InputPartition) -> "Iterator[pa.RecordBatch]":
    """The records of a task's ranges."""
    if not isinstance(task, Task):  # Spark's own, where there is nothing to read
        return
    keep_freed()
    counters, work = ReadCounters(), task.work
    try:
        for piece in task.pieces:
            yield from read_range(
                work.reach,
                piece.range,
                include_headers=work.include_headers,
                counters=counters,
                topic_id=piece.topic_id,
                times=work.times,
                skip_lost=work.skip_lost,
            )
    finally:
        count(work.figures, counters)
        _log.info(
            "read %d rows in %d ranges: %d bytes from objects, %d from agents",
            counters.rows,
            len(task.pieces),
            counters.bytes_objects,
            counters.bytes_agents,
        )
        keep_loaded()


def _fields(each: OffsetRange) -> tuple[str, int, int, int]:
    return each.topic, each.partition, each.start, each.end
