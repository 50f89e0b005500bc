"""What runs on an executor: a range is read, decoded, filtered, mapped and written, and its outcome is returned.

The one rule: a task is made of values. Filters, mappings and connections are created on the executor, once per process and
revision, from the `RangeJob`, which pickles.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.read_grants import ReadGrant
from holdfast.pipeline.driver.mapped_ranges import (
    NOTHING,
    MappedRange,
    check_refused,
    check_rows,
    keep_mapped,
    kept_range,
    map_range,
    without_rows,
)
from holdfast.pipeline.driver.task_outcomes import COLUMN, TaskOutcome, to_batch
from holdfast.pipeline.driver.versions import ComponentVersions, check_versions, installed_versions
from holdfast.pipeline.mapping.drift import AddColumns, StopPipeline
from holdfast.pipeline.mapping.transform import prepared_revision, survey
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
    versions: ComponentVersions = field(default_factory=installed_versions)
    """The driver's."""
    grants: Mapping[int, ReadGrant] = field(default_factory=dict, hash=False)
    """What tasks may read without credentials, by partition; none: they have the cluster's whole address."""


class WarmUp:
    """Imports what tasks need: otherwise the first task of a process takes seconds. Returns the versions that it found."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute

        for _ in batches:
            found = msgspec.json.encode(installed_versions()).decode()
            yield pa.RecordBatch.from_arrays([pa.array([found], pa.string())], names=[COLUMN])


class MapRanges:
    """For `spark.range(n).mapInArrow`: number i is range i of the job. No record passes through the JVM. Nothing is written."""

    def __init__(self, job: RangeJob, *, rows: bool = True) -> None:
        self._job, self._rows = job, rows

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range in numbered(self._job, batches):
            yield to_batch([outcome_of(self._map, fenced_range)])

    def _map(self, fenced_range: FencedRange) -> TaskOutcome:
        counters = ReadCounters()
        table = read_fenced_range(self._job, fenced_range, counters)
        return with_counters(mapped_and_kept(self._job, fenced_range, table, rows=self._rows), counters)


class WriteRanges:
    """The same ranges, written as they were mapped, if that is at hand. If not they are mapped again; without `maps`, where records
    come through a frame, they are `absent`."""

    def __init__(self, job: RangeJob, *, maps: bool = True) -> None:
        self._job, self._maps = job, maps

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range in numbered(self._job, batches):
            yield to_batch([outcome_of(self._write, fenced_range)])

    def _write(self, fenced_range: FencedRange) -> TaskOutcome:
        counters = ReadCounters()
        mapped = kept_range(self._job.target, fenced_range)
        if mapped is None and not self._maps:
            return TaskOutcome(partition=fenced_range.partition, kind="absent")
        if mapped is None:
            mapped = mapped_range(self._job, fenced_range, read_fenced_range(self._job, fenced_range, counters))
        return with_counters(write_mapped(self._job, fenced_range, mapped), counters)


class SurveyRanges:
    """The same before ranges are begun: what do the records require of the mapping?"""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range in numbered(self._job, batches):
            yield to_batch([outcome_of(self._survey, fenced_range)])

    def _survey(self, fenced_range: FencedRange) -> TaskOutcome:
        return surveyed(self._job, fenced_range, read_fenced_range(self._job, fenced_range, ReadCounters()))


class MapRecords:
    """For records that come through Spark's Kafka connector: a partition of the frame is a range. Nothing is written."""

    def __init__(self, job: RangeJob, *, rows: bool = True) -> None:
        self._job, self._rows = job, rows

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in tables_by_partition(self._job, batches):
            failpoints.reached("pipeline.read")
            yield to_batch([outcome_of(partial(self._map, table), fenced_range)])

    def _map(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        return mapped_and_kept(self._job, fenced_range, table, rows=self._rows)


class WriteRecords:
    """The same records, written."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in tables_by_partition(self._job, batches):
            failpoints.reached("pipeline.read")
            yield to_batch([outcome_of(partial(self._write, table), fenced_range)])

    def _write(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        return write_mapped(self._job, fenced_range, mapped_range(self._job, fenced_range, table))


class SurveyRecords:
    """The survey of the same records."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in tables_by_partition(self._job, batches):
            yield to_batch([outcome_of(partial(self._survey, table), fenced_range)])

    def _survey(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        return surveyed(self._job, fenced_range, table)


def numbered(job: RangeJob, batches: Iterator[Any]) -> Iterator[FencedRange]:
    """The ranges whose numbers a task got."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield job.fenced_ranges[number]


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
            grant=job.grants.get(fenced_range.partition),
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


def mapped_range(job: RangeJob, fenced_range: FencedRange, table: Any) -> MappedRange:
    """Map a range's records. `VersionsDifferError`: this executor came after the driver had compared."""
    check_versions(job.versions)
    mapped = map_range(job.target, fenced_range, table)
    failpoints.reached("pipeline.mapped")
    return mapped


def mapped_and_kept(job: RangeJob, fenced_range: FencedRange, table: Any, *, rows: bool) -> TaskOutcome:
    """Map a range's records, and keep the result for the task that writes it. Without `rows` only dead letters count: SQL made no
    row of the others."""
    mapped = mapped_range(job, fenced_range, table)
    if not rows:
        mapped = without_rows(mapped)
    keep_mapped(job.target, fenced_range, mapped)
    return mapped.outcome


def write_mapped(job: RangeJob, fenced_range: FencedRange, mapped: MappedRange) -> TaskOutcome:
    """Write rows and dead letters to the sink, if they are those that were recorded."""
    check_rows(fenced_range, mapped.digest)
    check_refused(fenced_range, mapped.digest)
    if mapped.digest == NOTHING and not mapped.outcome.read:
        failpoints.reached("pipeline.task-done")
        return mapped.outcome
    written = write_to_sink(job.target, fenced_range, mapped.rows, mapped.refused)
    failpoints.reached("pipeline.task-done")
    return replace_outcome(
        mapped.outcome, rows=written.rows, refused=written.refused, staged=written.staged, warnings=written.warnings
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
    return msgspec.structs.replace(outcome, **changes)
