"""Tasks of pipelines with SQL: the first emits mapped rows, the second writes the rows that SQL makes of them.

The one rule: dead letters are written by the first task and rows by the second, each under its own token. So either can be repeated
without the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from holdfast.pipeline.driver import sql
from holdfast.pipeline.driver.task_outcomes import TaskOutcome, to_batch
from holdfast.pipeline.driver.tasks import (
    RangeJob,
    outcome_of,
    payload_bytes_of,
    read_fenced_range,
    tables_by_partition,
    write_to_sink,
)
from holdfast.pipeline.mapping.arrow import arrow_type
from holdfast.pipeline.mapping.transform import MappedBatch, map_records
from holdfast.pipeline.sinks.contract import DeadLetterRow, FencedRange, SinkTarget
from holdfast.pipeline.sinks.lake import lake_schema, to_lake
from holdfast.spark.ranges import ReadCounters
from holdfast.vocabulary import failpoints


class RangeStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the first task counted in a range; a column carries it along with the rows."""

    read: int = 0
    payload_bytes: int = 0
    refused: int = 0
    filtered: int = 0
    newest_ms: int = 0
    bytes_objects: int = 0
    bytes_agents: int = 0


class MapRanges:
    """The first task over a Holdfast topic: number i is range i of the job."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                counters = ReadCounters()
                table = read_fenced_range(self._job, self._job.fenced_ranges[number], counters)
                if table is not None:
                    yield mapped_rows(self._job, self._job.fenced_ranges[number], table, counters)


class MapRecords:
    """The first task over Spark's Kafka connector."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for fenced_range, table in tables_by_partition(self._job, batches):
            failpoints.reached("pipeline.read")
            yield mapped_rows(self._job, fenced_range, table, ReadCounters())


def mapped_rows(job: RangeJob, fenced_range: FencedRange, table: Any, counters: ReadCounters) -> Any:
    """The mapped view of a range as one Arrow batch. Dead letters are written here."""
    import pyarrow as pa

    mapped = map_records(job.target.revision, job.target.generation, table)
    failpoints.reached("pipeline.mapped")
    view = view_target(job.target)
    schema = lake_schema(view)
    if mapped.refused:
        write_dead_letters(job.target, fenced_range, mapped.refused)
    rows = to_lake(mapped.rows, schema)
    stats = _stats(mapped, table, counters)
    rows = rows.append_column(sql.STATS, pa.repeat(pa.scalar(stats, pa.string()), rows.num_rows))
    return rows.combine_chunks().to_batches()[0] if rows.num_rows else _empty(rows.schema)


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


class WriteRows:
    """The second task: writes the SQL's result for a range."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job
        self._ranges = {fenced_range.partition: fenced_range for fenced_range in job.fenced_ranges}

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        table = pa.Table.from_batches(found)
        for number in pc.unique(table.column(sql.PARTITION)).to_pylist():
            part = table.filter(pc.equal(table.column(sql.PARTITION), number))
            fenced_range = self._ranges[number]
            yield to_batch([outcome_of(partial(self._write, part), fenced_range)])

    def _write(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        stats = msgspec.json.decode(table.column(sql.STATS)[0].as_py(), type=RangeStats)
        written = write_to_sink(self._job.target, fenced_range, sink_rows(self._job.target, fenced_range, table), [])
        failpoints.reached("pipeline.task-done")
        return TaskOutcome(
            partition=fenced_range.partition,
            kind="done",
            rows=written.rows,
            refused=stats.refused,
            filtered=stats.filtered,
            read=stats.read,
            payload_bytes=stats.payload_bytes,
            staged=written.staged,
            warnings=written.warnings,
            newest_ms=stats.newest_ms,
            bytes_objects=stats.bytes_objects,
            bytes_agents=stats.bytes_agents,
        )


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
    return column.cast(kind)


def _stats(mapped: MappedBatch, table: Any, counters: ReadCounters) -> str:
    stats = RangeStats(
        read=table.num_rows,
        payload_bytes=payload_bytes_of(table),
        refused=len(mapped.refused),
        filtered=mapped.filtered,
        newest_ms=mapped.newest_ms,
        bytes_objects=counters.bytes_objects,
        bytes_agents=counters.bytes_agents,
    )
    return msgspec.json.encode(stats).decode()


def _empty(schema: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=schema)
