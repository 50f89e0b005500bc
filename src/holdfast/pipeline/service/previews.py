"""Previews: what a pipeline would do with some records, and the table it would write. Nothing is written.

The one rule: a preview runs the same code as workers do (`mapping.transform`, `mapping.ddl`), so it cannot differ. What it leaves
out is listed in its notes.
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
NO_SQL: Final = "sql is not run in a preview: these are the rows it reads; the table is that of its result"


def preview(revision: Revision, records: Sequence[KafkaRecord], *, generation: int = 1) -> Preview:
    """Map a sample by a revision. Blocks: call it in a thread."""
    rows: list[PreviewedRow] = []
    refused: list[PreviewedRefusal] = []
    filtered, notes = 0, [NO_SQL] if revision.sql else []
    for partition in sorted({record.partition for record in records}):
        mine = sorted((each for each in records if each.partition == partition), key=lambda each: each.offset)
        mapped = map_records(revision, generation, kafka_table(revision.source.topic, mine))
        filtered += mapped.filtered
        rows += _rows(partition, mapped.rows)
        refused += [
            PreviewedRefusal(
                partition=partition, offset=row.offset, payload=_payload_text(row.payload), reason=row.reason
            )
            for row in mapped.refused
        ]
    notes += _drift(revision, records)
    ddl = create_table(table_of(revision)) if isinstance(revision.sink, ClickHouseConfig) and not revision.sql else ""
    return Preview(
        sampled=len(records),
        filtered=filtered,
        rows=tuple(rows),
        refused=tuple(refused),
        ddl=ddl,
        notes=tuple(notes),
    )


def _drift(revision: Revision, records: Sequence[KafkaRecord]) -> Iterable[str]:
    """Notes about unknown fields that would change the table or stop the pipeline."""
    if not records:
        return
    match survey(revision, kafka_table(revision.source.topic, records)):
        case AddColumns(columns=columns):
            added = ", ".join(f"{column.column} {column.kind}" for column in columns)
            yield f"drift: columns would be added: {added}"
        case StopPipeline(fields=fields, reason=reason):
            yield f"drift: the pipeline would stop: {reason}: {', '.join(fields)}"


def kafka_table(topic: str, records: Sequence[KafkaRecord]) -> Any:
    """Records as a `pyarrow.Table` with the schema of Spark's Kafka source."""
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


def _payload_text(payload: bytes | None) -> str:
    return (payload or b"")[: PAYLOAD_CHARS_MAX * 4].decode("utf-8", "backslashreplace")[:PAYLOAD_CHARS_MAX]


def table_diff(found: TableDifferences | None) -> TableDiff:
    """Differences as a response; None: the table does not exist."""
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
