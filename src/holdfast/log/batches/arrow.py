"""Batches as Arrow columns, without a copy of any payload.

The one rule: keys, values and headers are views into the buffers given (or into what was decompressed), and the result
keeps those alive. A buffer that is to be reused must be dropped by its readers first.

Needs `pyarrow` (extra `arrow`); nothing else in the log does.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.log.batches.header import Buffer
from holdfast.log.batches.kernels import BEST, BatchKernel, Columns, HeaderColumns
from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.log.batches.records import DEFAULT_LIMITS, inflate_payload
from holdfast.log.batches.rules import fault_error
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

_BUFFER_BYTES_MAX = 2**31 - 1  # a view's position is 32 bits


def to_arrow(
    batches: Sequence[Buffer],
    *,
    include_headers: bool,
    views: bool = True,
    limits: RecordBatchLimits = DEFAULT_LIMITS,
    kernel: BatchKernel = BEST,
) -> "pa.RecordBatch":
    """The records of many buffers, each one stored batch or several in a row, as one Arrow record batch.

    Columns: offset int64, timestamp int64 (milliseconds), timestamp_type int8 (0 the producer's, 1 the log's), key and
    value binary_view, and headers list<struct<key: string_view, value: binary_view>>. Without `views` they are copied
    into plain binary and string columns, for readers that know no views (Spark). Control batches have no rows. Damage
    raises a `CorruptBatchError` whose position counts over all buffers; checksums are `split`'s work. One call with many
    batches is much faster than many calls.
    """
    for buffer in batches:
        if len(buffer) > _BUFFER_BYTES_MAX:
            raise InvalidError("bytes of one buffer", len(buffer), f"at most {_BUFFER_BYTES_MAX}")

    def inflate(codec: int, payload: memoryview, at: int) -> Buffer:
        return inflate_payload(codec, payload, at=at, limits=limits, stored=True)

    found = kernel.columns(batches, inflate, include_headers)
    if len(found) == 4:
        raise fault_error(found, stored=True)  # type: ignore[arg-type]  # the only answer of four fields
    columns = Columns._make(found)
    if columns.headers is not None:
        columns = columns._replace(headers=HeaderColumns._make(columns.headers))
    table = _assemble(columns)
    return table if views else _without_views(table)


def _assemble(columns: Columns) -> "pa.RecordBatch":
    import pyarrow as pa

    data = [pa.py_buffer(each) for each in columns.data]

    def fixed(kind: Any, rows: int, values: Buffer) -> Any:
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values)], 0)

    def viewed(kind: Any, rows: int, views: Buffer, valid: Buffer | None, nulls: int) -> Any:
        bits = pa.py_buffer(valid) if nulls else None
        return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(views), *data], nulls)

    rows = columns.rows
    arrays = {
        "offset": fixed(pa.int64(), rows, columns.offsets),
        "timestamp": fixed(pa.int64(), rows, columns.timestamps),
        "timestamp_type": fixed(pa.int8(), rows, columns.types),
        "key": viewed(pa.binary_view(), rows, columns.keys, columns.key_valid, columns.key_nulls),
        "value": viewed(pa.binary_view(), rows, columns.values, columns.value_valid, columns.value_nulls),
    }
    if columns.headers is not None:
        entries, lists, keys, values, valid, nulls = columns.headers
        fields = [pa.field("key", pa.string_view(), nullable=False), pa.field("value", pa.binary_view())]
        pairs = pa.StructArray.from_arrays(
            [
                viewed(pa.string_view(), entries, keys, None, 0),
                viewed(pa.binary_view(), entries, values, valid, nulls),
            ],
            fields=fields,
        )
        kind = pa.list_(pa.struct(fields))
        arrays["headers"] = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(lists)], 0, children=[pairs])
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _without_views(table: "pa.RecordBatch") -> "pa.RecordBatch":
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    plain = {"key": pa.binary(), "value": pa.binary(), "headers": pa.list_(pair)}
    fields = [field.with_type(plain.get(field.name, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))
