"""Tasks of pipelines with SQL: the first emits mapped rows, the second hashes or writes the rows that SQL makes of them.

The one rule: the first task has the dead letters and the second the rows. Where ranges are written, each is compared with what was
recorded and has its own token, so that either can be repeated without the other. A failure of the first is the job's, which is then
repeated range by range: a range that is missing in the result of a job is one of which SQL has dropped every row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from holdfast.pipeline.driver import mapped_files, sql
from holdfast.pipeline.driver.mapped_ranges import NOTHING, check_refused, check_rows
from holdfast.pipeline.driver.task_outcomes import TaskOutcome, to_batch
from holdfast.pipeline.driver.tasks import (
    RangeJob,
    mapped_range,
    numbered,
    outcome_of,
    read_fenced_range,
    replace_outcome,
    tables_by_partition,
    with_counters,
    write_to_sink,
)
from holdfast.pipeline.mapping.arrow import arrow_type
from holdfast.pipeline.mapping.content_hash import rows_hash
from holdfast.pipeline.sinks.contract import DeadLetterRow, FencedRange, SinkTarget
from holdfast.pipeline.sinks.lake import lake_schema, to_lake
from holdfast.spark.ranges import ReadCounters
from holdfast.vocabulary import failpoints


class ViewRanges:
    """The first task over a Holdfast topic: number i is range i of the job."""

    def __init__(self, job: RangeJob, *, writes: bool) -> None:
        self._job, self._writes = job, writes

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range in numbered(self._job, batches):
            counters = ReadCounters()
            table = read_fenced_range(self._job, fenced_range, counters)
            yield from view_of(self._job, fenced_range, table, counters, writes=self._writes)


class ViewRecords:
    """The first task over Spark's Kafka connector."""

    def __init__(self, job: RangeJob, *, writes: bool) -> None:
        self._job, self._writes = job, writes

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in tables_by_partition(self._job, batches):
            failpoints.reached("pipeline.read")
            yield from view_of(self._job, fenced_range, table, ReadCounters(), writes=self._writes)


def view_of(
    job: RangeJob, fenced_range: FencedRange, table: Any, counters: ReadCounters, *, writes: bool
) -> Iterator[Any]:
    """The mapped view of a range as one Arrow batch, if it has rows. Dead letters are written, or kept until they may be."""
    import pyarrow as pa

    mapped = mapped_range(job, fenced_range, table)
    if writes:
        check_refused(fenced_range, mapped.digest)
        if mapped.refused:
            write_dead_letters(job.target, fenced_range, mapped.refused)
    else:
        mapped_files.put_refused(job.target, fenced_range, mapped.refused)
    if mapped.rows.num_rows:
        rows = to_lake(mapped.rows, lake_schema(view_target(job.target)))
        stats = msgspec.json.encode(with_counters(mapped.outcome, counters)).decode()
        rows = rows.append_column(sql.STATS, pa.repeat(pa.scalar(stats, pa.string()), rows.num_rows))
        yield rows.combine_chunks().to_batches()[0]


def view_target(target: SinkTarget) -> SinkTarget:
    """The target as if the mapped view were written."""
    return replace(target, columns=target.revision.mapping.columns)


def write_dead_letters(target: SinkTarget, fenced_range: FencedRange, refused: Sequence[DeadLetterRow]) -> None:
    """Dead letters alone. Sinks that the driver commits keep them where no commit is needed."""
    import pyarrow as pa

    nothing = pa.table({"_offset": pa.array([], pa.uint64())})
    empty = (
        nothing
        if target.revision.sink.__struct_config__.tag in ("clickhouse", "parquet")
        else lake_schema(target).empty_table()
    )
    write_to_sink(target, fenced_range, empty, refused)


class HashRows:
    """The second task before ranges are written: hashes the SQL's result for a range and keeps it."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in results_by_range(self._job, batches):
            yield to_batch([outcome_of(partial(self._keep, table), fenced_range)])

    def _keep(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        rows = sink_rows(self._job.target, fenced_range, table)
        mapped_files.put_rows(self._job.target, fenced_range, rows)
        return with_rows(outcome_in(table), rows)


class WriteRows:
    """The second task that writes the SQL's result for a range."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in results_by_range(self._job, batches):
            yield to_batch([outcome_of(partial(self._write, table), fenced_range)])

    def _write(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        rows = sink_rows(self._job.target, fenced_range, table)
        outcome = with_rows(outcome_in(table), rows)
        check_rows(fenced_range, outcome.digest or NOTHING)
        written = write_to_sink(self._job.target, fenced_range, rows, [])
        failpoints.reached("pipeline.task-done")
        return replace_outcome(outcome, rows=written.rows, staged=written.staged, warnings=written.warnings)


def results_by_range(job: RangeJob, batches: Iterator[Any]) -> Iterator[tuple[FencedRange, Any]]:
    """The SQL's result for each range, in the order in which it comes: rows stay in that of offsets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    fenced_ranges = {fenced_range.partition: fenced_range for fenced_range in job.fenced_ranges}
    for number in pc.unique(table.column(sql.PARTITION)).to_pylist():
        yield fenced_ranges[number], table.filter(pc.equal(table.column(sql.PARTITION), number))


def outcome_in(table: Any) -> TaskOutcome:
    """What the first task has counted; a column carries it along with the rows."""
    return msgspec.json.decode(table.column(sql.STATS)[0].as_py(), type=TaskOutcome)


def with_rows(outcome: TaskOutcome, rows: Any) -> TaskOutcome:
    """The outcome with the rows of the SQL's result instead of the view's."""
    digest = msgspec.structs.replace(outcome.digest or NOTHING, rows=rows.num_rows, rows_hash=rows_hash(rows))
    return replace_outcome(outcome, rows=rows.num_rows, digest=digest)


def sink_rows(target: SinkTarget, fenced_range: FencedRange, table: Any) -> Any:
    """Rows as Spark has them, with the types of the sink's columns and their provenance."""
    import pyarrow as pa

    count = table.num_rows
    columns = {column.column: _cast(table.column(column.column), arrow_type(column.kind)) for column in target.columns}
    return pa.table(
        {
            **columns,
            "_generation": pa.repeat(pa.scalar(target.generation, pa.uint32()), count),
            "_topic": pa.repeat(pa.scalar(target.revision.source.topic, pa.string()), count),
            "_partition": pa.repeat(pa.scalar(fenced_range.partition, pa.uint32()), count),
            "_offset": table.column(sql.OFFSET).cast(pa.uint64()),
        }
    )


def _cast(column: Any, kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_map(kind):
        filled = column.combine_chunks()
        if filled.null_count:  # an empty one stands for null
            filled = pa.array([[] if value is None else value for value in filled.to_pylist()], kind)
        return filled.cast(kind)
    if pa.types.is_struct(kind):
        whole = column.combine_chunks()
        fields = [field.with_type(part.type) for field, part in zip(whole.type, whole.flatten(), strict=True)]
        return pa.StructArray.from_arrays(whole.flatten(), fields=fields).cast(kind)  # a null one is one of nulls
    return column.cast(kind)
