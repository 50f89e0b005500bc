"""Tasks where records go through a DataFrame: mapped rows out of the first, the rows SQL makes of them into the second.

The one rule: what is refused is written by the first task and what is a row by the second, each under its own token. So either
may be done again without the other.
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
    read_fenced_range,
    sized,
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
    """What the first task knows of a range; it travels with its rows."""

    read: int = 0
    payload_bytes: int = 0
    refused: int = 0
    filtered: int = 0
    newest_ms: int = 0
    bytes_objects: int = 0
    bytes_agents: int = 0


class MapRanges:
    """The first task over a Holdfast topic: number i is portion i."""

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
    """The mapped view of a range as one Arrow batch. What is refused is written here."""
    import pyarrow as pa

    mapped = map_records(job.target.recipe, job.target.generation, table)
    failpoints.reached("pipeline.mapped")
    view = view_target(job.target)
    schema = lake_schema(view)
    if mapped.refused:
        write_refused(job.target, fenced_range, mapped.refused)
    rows = to_lake(mapped.rows, schema)
    figures = _figures(mapped, table, counters)
    rows = rows.append_column(sql.FIGURES, pa.repeat(pa.scalar(figures, pa.string()), rows.num_rows))
    return rows.combine_chunks().to_batches()[0] if rows.num_rows else _empty(rows.schema)


def view_target(target: SinkTarget) -> SinkTarget:
    """The target as if the mapped view were written."""
    return replace(target, columns=target.recipe.mapping.columns)


def write_refused(target: SinkTarget, fenced_range: FencedRange, refused: Sequence[DeadLetterRow]) -> None:
    """Refused records alone. A sink that the driver commits puts them where no commit is needed."""
    import pyarrow as pa

    nothing = pa.table({"_offset": pa.array([], pa.uint64())})
    empty = (
        nothing
        if target.recipe.sink.__struct_config__.tag in ("clickhouse", "parquet")
        else lake_schema(target).empty_table()
    )
    write_to_sink(target, fenced_range, empty, refused)


class WriteRows:
    """The second task: what the SQL made of a range, into the sink."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job
        self._portions = {fenced_range.partition: fenced_range for fenced_range in job.fenced_ranges}

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        table = pa.Table.from_batches(found)
        for number in pc.unique(table.column(sql.PARTITION)).to_pylist():
            part = table.filter(pc.equal(table.column(sql.PARTITION), number))
            fenced_range = self._portions[number]
            yield to_batch([outcome_of(partial(self._write, part), fenced_range)])

    def _write(self, table: Any, fenced_range: FencedRange) -> TaskOutcome:
        figures = msgspec.json.decode(table.column(sql.FIGURES)[0].as_py(), type=RangeStats)
        written = write_to_sink(self._job.target, fenced_range, sink_rows(self._job.target, fenced_range, table), [])
        failpoints.reached("pipeline.task-done")
        return TaskOutcome(
            partition=fenced_range.partition,
            kind="done",
            rows=written.rows,
            refused=figures.refused,
            filtered=figures.filtered,
            read=figures.read,
            payload_bytes=figures.payload_bytes,
            staged=written.staged,
            warnings=written.warnings,
            newest_ms=figures.newest_ms,
            bytes_objects=figures.bytes_objects,
            bytes_agents=figures.bytes_agents,
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
            "_topic": pa.repeat(pa.scalar(target.recipe.source.topic, pa.string()), count),
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


def _figures(mapped: MappedBatch, table: Any, counters: ReadCounters) -> str:
    figures = RangeStats(
        read=table.num_rows,
        payload_bytes=sized(table),
        refused=len(mapped.refused),
        filtered=mapped.filtered,
        newest_ms=mapped.newest_ms,
        bytes_objects=counters.bytes_objects,
        bytes_agents=counters.bytes_agents,
    )
    return msgspec.json.encode(figures).decode()


def _empty(schema: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=schema)
