"""What runs on an executor: a range is read, decoded, filtered, mapped and written, and its outcome is returned.

The one rule: a task is made of values. Filters, mappings and connections are created on the executor, once per process and
revision, from the `RangeJob`, which pickles.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver.task_outcomes import TaskOutcome, to_batch
from holdfast.pipeline.mapping.drift import AddColumns, StopPipeline
from holdfast.pipeline.mapping.transform import MappedBatch, map_records, prepared_revision, survey
from holdfast.pipeline.sinks.contract import BlockedError, DeadLetterRow, FencedRange, SinkTarget, WriteResult
from holdfast.pipeline.sinks.factory import cached_sink
from holdfast.spark.ranges import DataLossError, PartitionRange, ReadCounters, TopicChangedError, read_range
from holdfast.spark.worker_memory import freeze_loaded_objects, retain_freed_memory
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import FencedError, HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeJob:
    """The ranges of one Spark job. It pickles."""

    target: SinkTarget
    cluster_address: ClusterAddress | None
    """None where records come through a DataFrame."""
    fenced_ranges: tuple[FencedRange, ...]


class WarmUp:
    """Imports what tasks need: otherwise the first task of a process takes seconds."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow.compute  # noqa: F401

        for _ in batches:
            yield to_batch([])


class WriteRanges:
    """For `spark.range(n).mapInArrow`: number i is range i of the job. No record passes through the JVM."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                fenced_range = self._job.fenced_ranges[number]
                yield to_batch([outcome_of(self._write, fenced_range)])

    def _write(self, fenced_range: FencedRange) -> TaskOutcome:
        counters = ReadCounters()
        table = read_fenced_range(self._job, fenced_range, counters)
        outcome = write_records(self._job, fenced_range, table)
        return with_counters(outcome, counters)


class SurveyRanges:
    """The same before ranges are begun: what do the records require of the mapping?"""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                fenced_range = self._job.fenced_ranges[number]
                yield to_batch([outcome_of(self._survey, fenced_range)])

    def _survey(self, fenced_range: FencedRange) -> TaskOutcome:
        return surveyed(self._job, fenced_range, read_fenced_range(self._job, fenced_range, ReadCounters()))


class WriteRecords:
    """For records that come through Spark's Kafka connector: a partition of the frame is a range."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in tables_by_partition(self._job, batches):
            failpoints.reached("pipeline.read")
            yield to_batch([outcome_of(partial(self._write, table), fenced_range)])

    def _write(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        return write_records(self._job, fenced_range, table)


class SurveyRecords:
    """The survey of the same records."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in tables_by_partition(self._job, batches):
            yield to_batch([outcome_of(partial(self._survey, table), fenced_range)])

    def _survey(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        return surveyed(self._job, fenced_range, table)


def tables_by_partition(job: RangeJob, batches: Iterator[Any]) -> Iterator[tuple[FencedRange, Any]]:
    """The records of each range as one table in the order of offsets, in whatever order they arrive."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    fenced_ranges = {fenced_range.partition: fenced_range for fenced_range in job.fenced_ranges}
    for number in pc.unique(table.column("partition")).to_pylist():
        part = table.filter(pc.equal(table.column("partition"), number)).sort_by("offset")
        yield fenced_ranges[number], part.combine_chunks()


def read_fenced_range(job: RangeJob, fenced_range: FencedRange, counters: ReadCounters) -> Any:
    """The records of a range as one table, straight from object storage as far as they are published."""
    import pyarrow as pa

    assert job.cluster_address is not None
    retain_freed_memory()
    revision = job.target.revision
    offsets = PartitionRange(revision.source.topic, fenced_range.partition, fenced_range.start, fenced_range.end)
    headers = prepared_revision(revision).headers
    batches = list(
        read_range(
            job.cluster_address,
            offsets,
            include_headers=headers,
            counters=counters,
            topic_id=fenced_range.topic_id,
        )
    )
    failpoints.reached("pipeline.read")
    return pa.Table.from_batches(batches) if batches else None


def surveyed(job: RangeJob, fenced_range: FencedRange, table: Any) -> TaskOutcome:
    """What the drift policy requires for a range."""
    done = TaskOutcome(partition=fenced_range.partition, kind="done")
    if table is None:
        return done
    match survey(job.target.revision, table):
        case StopPipeline(fields, reason):
            return replace_outcome(done, stop=f"{reason}: {', '.join(fields)}")
        case AddColumns(columns, _):
            return replace_outcome(done, columns=columns)
    return done


def write_records(job: RangeJob, fenced_range: FencedRange, table: Any) -> TaskOutcome:
    """Map a range's records and write them."""
    mapped = mapped_records(job, table)
    failpoints.reached("pipeline.mapped")
    return write_mapped(
        job, fenced_range, mapped, read=table.num_rows if table is not None else 0, size=payload_bytes_of(table)
    )


def mapped_records(job: RangeJob, table: Any) -> MappedBatch | None:
    """Rows and dead letters; None: the range has no records."""
    return None if table is None else map_records(job.target.revision, job.target.generation, table)


def write_mapped(
    job: RangeJob, fenced_range: FencedRange, mapped: MappedBatch | None, *, read: int, size: int
) -> TaskOutcome:
    """Write rows and dead letters to the sink."""
    import pyarrow as pa

    if mapped is None:
        failpoints.reached("pipeline.task-done")
        return TaskOutcome(partition=fenced_range.partition, kind="done")
    rows = pa.Table.from_batches([mapped.rows])
    written = write_to_sink(job.target, fenced_range, rows, mapped.refused)
    failpoints.reached("pipeline.task-done")
    return TaskOutcome(
        partition=fenced_range.partition,
        kind="done",
        rows=written.rows,
        refused=written.refused,
        filtered=mapped.filtered,
        read=read,
        payload_bytes=size,
        staged=written.staged,
        warnings=written.warnings,
        newest_ms=mapped.newest_ms,
    )


def write_to_sink(
    target: SinkTarget, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]
) -> WriteResult:
    """Write to the sink. If this is another attempt of the task (its executor died), the first may have written the range."""
    from pyspark import TaskContext

    context = TaskContext.get()
    may_be_written = fenced_range.may_be_written or (context is not None and context.attemptNumber() > 0)
    written = cached_sink(target).write(replace(fenced_range, may_be_written=may_be_written), rows, refused)
    freeze_loaded_objects()
    return written


def outcome_of(work: Callable[[FencedRange], TaskOutcome], fenced_range: FencedRange) -> TaskOutcome:
    """The outcome of a range. An unexpected error is retried like the others, and named."""
    try:
        return work(fenced_range)
    except FencedError as error:
        return TaskOutcome(partition=fenced_range.partition, kind="fenced", reason=str(error))
    except (DataLossError, TopicChangedError) as error:
        return TaskOutcome(partition=fenced_range.partition, kind="lost", reason=str(error))
    except (BlockedError, HoldfastError) as error:
        return TaskOutcome(partition=fenced_range.partition, kind="blocked", reason=str(error))
    except Exception as error:
        return TaskOutcome(
            partition=fenced_range.partition, kind="blocked", reason=f"{type(error).__name__}: {error}"[:2_000]
        )


def with_counters(outcome: TaskOutcome, counters: ReadCounters) -> TaskOutcome:
    """The outcome with the bytes that were read."""
    return replace_outcome(outcome, bytes_objects=counters.bytes_objects, bytes_agents=counters.bytes_agents)


def replace_outcome(outcome: TaskOutcome, **changes: Any) -> TaskOutcome:
    """The outcome with some fields changed."""
    import msgspec

    return msgspec.structs.replace(outcome, **changes)


def payload_bytes_of(table: Any) -> int:
    """Bytes of keys and values."""
    return 0 if table is None else int(table.column("value").nbytes + table.column("key").nbytes)
