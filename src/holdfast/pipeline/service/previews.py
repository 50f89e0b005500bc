"""What a pipeline would do with some records: the rows, the refusals, the table. Nothing is written anywhere.

The one rule: a preview goes through the same code as the work (`driver.mapping_records`, `mapping.ddl`), so that it cannot be wrong
about it. What it leaves out is said in its notes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.client.topic_reader import KafkaRecord
from holdfast.pipeline.catalog.revisions import table_of
from holdfast.pipeline.mapping.ddl import create_table
from holdfast.pipeline.mapping.drift import AddColumns, StopPipeline
from holdfast.pipeline.mapping.table_diff import TableDifferences
from holdfast.pipeline.mapping.transform import map_records, survey
from holdfast.pipeline.model.definition import ClickHouseConfig, Revision
from holdfast.pipeline.service.responses import ColumnDiffers, Preview, PreviewedRefusal, PreviewedRow, TableDiff

PAYLOAD_CHARS_MAX: Final = 10_000
NO_SQL: Final = "sql is not run in a preview: these are the rows it reads, and the table is that of its result"


def preview(recipe: Revision, records: Sequence[KafkaRecord], *, generation: int = 1) -> Preview:
    """Map a sample by a recipe. For a thread."""
    rows: list[PreviewedRow] = []
    refused: list[PreviewedRefusal] = []
    filtered, notes = 0, [NO_SQL] if recipe.sql else []
    for partition in sorted({record.partition for record in records}):
        mine = sorted((each for each in records if each.partition == partition), key=lambda each: each.offset)
        mapped = map_records(recipe, generation, kafka_table(recipe.source.topic, mine))
        filtered += mapped.filtered
        rows += _rows(partition, mapped.rows)
        refused += [
            PreviewedRefusal(partition=partition, offset=row.offset, payload=_shown(row.payload), reason=row.reason)
            for row in mapped.refused
        ]
    notes += _drift(recipe, records)
    ddl = create_table(table_of(recipe)) if isinstance(recipe.sink, ClickHouseConfig) and not recipe.sql else ""
    return Preview(
        sampled=len(records),
        filtered=filtered,
        rows=tuple(rows),
        refused=tuple(refused),
        ddl=ddl,
        notes=tuple(notes),
    )


def _drift(recipe: Revision, records: Sequence[KafkaRecord]) -> Iterable[str]:
    """What fields the mapping does not know would lead to, where that is more than a row or a refusal."""
    if not records:
        return
    match survey(recipe, kafka_table(recipe.source.topic, records)):
        case AddColumns(columns=columns):
            added = ", ".join(f"{column.column} {column.kind}" for column in columns)
            yield f"drift: these columns would be added: {added}"
        case StopPipeline(fields=fields, reason=reason):
            yield f"drift: the pipeline would stop: {reason}: {', '.join(fields)}"


def kafka_table(topic: str, records: Sequence[KafkaRecord]) -> Any:
    """Records as a `pyarrow.Table`, shaped as Spark's Kafka source has it."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": pa.array([topic] * len(records), pa.string()),
            "partition": pa.array([record.partition for record in records], pa.int32()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": pa.array([record.timestamp_ms * 1_000 for record in records], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * len(records), pa.int32()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in record.headers] for record in records],
                pa.list_(header),
            ),
        }
    )


def _rows(partition: int, batch: Any) -> Iterable[PreviewedRow]:
    for row in batch.to_pylist():
        yield PreviewedRow(partition=partition, offset=row["_offset"], row=row)


def _shown(payload: bytes | None) -> str:
    return (payload or b"")[: PAYLOAD_CHARS_MAX * 4].decode("utf-8", "backslashreplace")[:PAYLOAD_CHARS_MAX]


def shown_diff(found: TableDifferences | None) -> TableDiff:
    """A diff as an answer; None: there is no such table yet."""
    if found is None:
        return TableDiff(exists=False)
    return TableDiff(
        exists=True,
        missing=found.missing,
        differs=tuple(
            ColumnDiffers(column=each.column, has=each.has, wants=each.wants, fits=each.fits, why=each.why)
            for each in found.differs
        ),
        extra=tuple(column.name for column in found.extra),
        statements=found.statements,
        blockers=found.blockers,
        warnings=found.warnings,
    )
