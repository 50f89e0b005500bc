"""Partitions of an Iceberg table: its spec, and the rows of each partition.

The one rule: a file holds rows of one partition. The client derives the partition from the least and greatest value in the file.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from holdfast.pipeline.model.partition_fields import TIME_TRANSFORMS, PartitionField
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.errors import InvalidError

_TEXT_BYTES_MAX: Final = 1_000  # Parquet has no least and greatest value of texts that are much longer
_POSITION: Final = "\0position"  # no name of a column


def check_fields(fields: Sequence[PartitionField], schema: Any) -> None:
    """`InvalidError`: a field names no column, or one of a type that cannot be partitioned by."""
    import pyarrow as pa

    for field in fields:
        if field.column not in schema.names:
            raise InvalidError("partition_by", str(field), "of a column: one of " + ", ".join(schema.names))
        kind = schema.field(field.column).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise InvalidError("partition_by", str(field), f"of a column that is no float, list or map; this is {kind}")
        timed = pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and field.transform != "hour")
        if field.transform in TIME_TRANSFORMS and not timed:
            raise InvalidError("partition_by", str(field), f"of a time; this is {kind}")
        cut = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind)
        if field.transform == "truncate" and not cut:
            raise InvalidError("partition_by", str(field), f"of an integer, a decimal or text; this is {kind}")


def check_spec(table: Any, fields: Sequence[PartitionField]) -> bool:
    """Whether a table has the spec; False: it is empty and has none yet. `BlockedError`: it has another."""
    existing = [(each.name, str(each.transform)) for each in table.spec().fields]
    wanted = [(field.name, str(_transform(field))) for field in fields]
    if existing == wanted:
        return True
    if existing or table.current_snapshot() is not None:
        raise BlockedError(f"the table is partitioned by {existing or 'nothing'}, not by {wanted}")
    return False


def create_spec(table: Any, fields: Sequence[PartitionField]) -> None:
    """Set the spec of a new table. `BlockedError`: it has another, or data."""
    if check_spec(table, fields):
        return
    with table.update_spec() as update:
        for field in fields:
            update.add_field(field.column, _transform(field), field.name)


def split_rows(rows: Any, fields: Sequence[PartitionField]) -> Iterator[Any]:
    """The rows of each partition."""
    import numpy as np
    import pyarrow as pa

    if not fields:
        yield rows
        return
    keys = {str(number): _group_key(field, rows.column(field.column)) for number, field in enumerate(fields)}
    table = pa.table({**keys, _POSITION: pa.array(np.arange(rows.num_rows))})
    groups = table.group_by(list(keys), use_threads=False).aggregate([(_POSITION, "list")])
    for positions in groups.column(f"{_POSITION}_list").to_pylist():
        yield rows.take(positions)


def _group_key(field: PartitionField, column: Any) -> Any:
    """Values that are equal for rows of one partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = column.combine_chunks()
    if pa.types.is_string(values.type) and (pc.max(pc.binary_length(values)).as_py() or 0) > _TEXT_BYTES_MAX:
        raise BlockedError(f"{field.column} is partitioned by, and has a text of more than {_TEXT_BYTES_MAX} bytes")
    if field.transform in TIME_TRANSFORMS:
        return pc.floor_temporal(values, unit=field.transform)
    if field.transform == "truncate":
        encoded = values.dictionary_encode()
        cut = [_truncated(value, field.width) for value in encoded.dictionary.to_pylist()]
        return pa.array(cut, pa.string()).take(encoded.indices)
    return values


def _truncated(value: Any, width: int) -> str:
    """As text: a key is compared, and not stored."""
    if isinstance(value, str):
        return value[:width]
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent  # the column's, for every value of it
        assert isinstance(exponent, int)
        value = int(value.scaleb(-exponent))
    return str(value // width)


def _transform(field: PartitionField) -> Any:
    from pyiceberg import transforms

    if field.transform == "truncate":
        return transforms.TruncateTransform(field.width)
    return {
        "identity": transforms.IdentityTransform,
        "year": transforms.YearTransform,
        "month": transforms.MonthTransform,
        "day": transforms.DayTransform,
        "hour": transforms.HourTransform,
    }[field.transform]()
