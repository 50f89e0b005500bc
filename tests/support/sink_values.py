"""Targets, ranges and rows for tests of sinks."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.definition import DriftPolicy, KafkaConfig, Revision, SinkConfig
from holdfast.pipeline.sinks.contract import DeadLetterRow, FencedRange, PipelineSink, SinkTarget, WriteResult

COLUMNS = (Column("id", "id", "Int64"), Column("name", "name", "LowCardinality(String)"))
EVERY_TYPE = (
    ("bool", "Bool", True, True),
    ("i8", "Int8", -3, -3),
    ("u64", "UInt64", 2**64 - 1, 2**64 - 1),
    ("f32", "Float32", 1.5, 1.5),
    ("dec", "Decimal(18, 4)", "12.3456", "12.3456"),
    ("text", "String", "a'b\\c\n日", "a'b\\c\n日"),
    ("day", "Date", "2025-11-15", "2025-11-15"),
    ("at", "DateTime64(3)", "2025-11-15T10:00:00.125Z", "2025-11-15T10:00:00.125"),
    ("uuid", "UUID", "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("list", "Array(Nullable(Int32))", [1, None], [1, None]),
    ("map", "Map(String, Float64)", {"x": 1.5}, {"x": 1.5}),
    ("maybe", "Nullable(String)", None, None),
)


def target_of(
    sink: SinkConfig,
    *,
    columns: tuple[Column, ...] = COLUMNS,
    drift: str = "ignore",
    pipeline_id: str = "p1",
    **more: Any,
) -> SinkTarget:
    revision = Revision(
        version=1,
        source=KafkaConfig(topic="orders"),
        sink=sink,
        mapping=Mapping(columns),
        drift=DriftPolicy(unknown_fields=drift),  # type: ignore[arg-type]
    )
    return SinkTarget(pipeline_id=pipeline_id, generation=1, revision=revision, columns=columns, **more)


def fenced_range(
    start: int, end: int, *, partition: int = 0, epoch: int = 1, may_be_written: bool = False, fence: int = 0
) -> FencedRange:
    return FencedRange(
        partition=partition, start=start, end=end, epoch=epoch, may_be_written=may_be_written, fence=fence
    )


def records_of(values: list[bytes], *, partition: int = 0, start: int = 0) -> pa.Table:
    """Records as Spark's Kafka source has them."""
    count = len(values)
    return pa.table(
        {
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )


def rows_of(target: SinkTarget, of: FencedRange, *, bad: tuple[int, ...] = ()) -> tuple[pa.Table, list[DeadLetterRow]]:
    """What a revision makes of a range: its rows, and dead letters for the bad offsets."""
    values = [
        b"\xffbad" if offset in bad else msgspec.json.encode({"id": offset, "name": f"n{offset % 3}", "more": offset})
        for offset in range(of.start, of.end)
    ]
    table = records_of(values, partition=of.partition, start=of.start)
    mapped = map_records(target.revision, target.generation, table)
    return pa.Table.from_batches([mapped.rows]), list(mapped.refused)


def row_of_every_type(target: SinkTarget) -> pa.Table:
    value = msgspec.json.encode({name: given for name, _, given, _ in EVERY_TYPE})
    mapped = map_records(target.revision, 1, records_of([value]))
    assert not mapped.refused
    return pa.Table.from_batches([mapped.rows])


def plain(value: Any) -> Any:
    """A stored value, however its sink's client shows it."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        case date() | UUID():
            return str(value)
        case Decimal():
            return int(value) if value == int(value) else str(value)
        case list() if value and isinstance(value[0], tuple):
            return dict(value)
    return value


def write(sink: PipelineSink, target: SinkTarget, of: FencedRange, *, bad: tuple[int, ...] = ()) -> WriteResult:
    """A task's part."""
    rows, refused = rows_of(target, of, bad=bad)
    return sink.write(of, rows, refused)


def put(sink: PipelineSink, target: SinkTarget, of: FencedRange, *, bad: tuple[int, ...] = ()) -> WriteResult:
    """The whole of it."""
    written = write(sink, target, of, bad=bad)
    sink.commit([written])
    return written


def again(of: FencedRange, *, epoch: int | None = None) -> FencedRange:
    """The same range by a successor."""
    return replace(of, may_be_written=True, epoch=of.epoch + 1 if epoch is None else epoch)
