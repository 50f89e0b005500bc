"""What Delta and Iceberg tables have in common: types, staged files, and dead letters.

The one rule: tasks only stage. A staged file has a unique name per attempt and counts only once the driver's commit lists it; a
file that no commit lists is garbage, which the table's own vacuum removes.

Both formats have signed integers, microseconds and 38 digits only. So UInt64 becomes `decimal(20, 0)`, nanoseconds are truncated,
and decimals of more digits are text. Offsets fit a signed integer.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.pipeline.mapping.arrow import arrow_type
from holdfast.pipeline.model.column_mapping import OVERFLOW_COLUMN
from holdfast.pipeline.sinks.contract import DeadLetterRow, FencedRange, SinkTarget
from holdfast.pipeline.sinks.dead_letter_rows import dead_letter_rows
from holdfast.pipeline.sinks.files import parquet_bytes

DLQ_FOLDER: Final = "_dlq"
_SIGNED: Final = {"uint8": "int16", "uint16": "int32", "uint32": "int64"}


class StagedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that no commit lists yet."""

    path: str
    size: int
    rows: int
    values: dict[str, str | None] = {}
    """Of the columns a Delta table is partitioned by."""


def staged_text(files: Sequence[StagedFile]) -> str:
    """Encoded for the way from a task to the driver."""
    return msgspec.json.encode(files).decode()


def staged_files(text: str) -> list[StagedFile]:
    """The same, decoded."""
    return msgspec.json.decode(text, type=list[StagedFile]) if text else []


def lake_schema(target: SinkTarget) -> Any:
    """The columns of a target in types of both formats."""
    import pyarrow as pa

    fields = [pa.field(column.column, lake_type(arrow_type(column.kind))) for column in target.columns]
    if target.overflow:
        fields.append(pa.field(OVERFLOW_COLUMN, pa.string()))
    return pa.schema(
        [
            *fields,
            pa.field("_generation", pa.int64()),
            pa.field("_topic", pa.string()),
            pa.field("_partition", pa.int64()),
            pa.field("_offset", pa.int64()),
        ]
    )


def lake_type(kind: Any) -> Any:
    """The type an Arrow type is stored as."""
    import pyarrow as pa

    if str(kind) in _SIGNED:
        return getattr(pa, _SIGNED[str(kind)])()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(lake_type(kind.key_type), lake_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, lake_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(lake_type(kind.value_type))
    return kind


def to_lake(rows: Any, schema: Any) -> Any:
    """The rows in types of both formats."""
    import pyarrow as pa

    columns = [rows.column(field.name).cast(field.type, safe=False) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


class FileStore(Protocol):
    """A place for whole files."""

    def put(self, name: str, body: bytes) -> None:
        """Write a file, or raise `BlockedError`."""
        ...


def put_dead_letters(
    location: FileStore, target: SinkTarget, fenced_range: FencedRange, refused: Sequence[DeadLetterRow]
) -> None:
    """Dead letters as a Parquet file named by its range: written again, it is the same file."""
    if refused:
        name = f"{DLQ_FOLDER}/{fenced_range.identity(target).full_name}.parquet"
        location.put(name, parquet_bytes(dead_letter_rows(target, fenced_range, refused)))
