"""RecordBatches to Arrow, in the columns of Spark's Kafka source.

The one rule: exactly the records of the range, in offset order. Batches are whole, so the first may begin before the range and the
last may end after it; such rows are cut off here. Payloads are copied once, into the plain columns that Spark requires.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.log.batches import Buffer, to_arrow
from holdfast.vocabulary.settings import MIB

TABLE_BYTES_MAX: Final = 16 * MIB
TABLE_ROWS_MIN: Final = 10_000

_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", _HEADER_TYPE))


@cache
def arrow_schema(include_headers: bool) -> pa.Schema:
    """The columns of Spark's Kafka source, in the types of Spark's Python data sources."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, pa.field("headers", HEADERS_TYPE)] if include_headers else fields)


def to_tables(
    batches: Sequence[Buffer], *, topic: str, partition: int, start: int, end: int, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The records of whole batches whose offsets are in [start, end), in tables of about `TABLE_BYTES_MAX` at most."""
    viewed = to_arrow(batches, include_headers=include_headers)
    offsets = viewed.column(0)
    rows = len(offsets)
    if not rows:
        return
    if offsets[0].as_py() < start or offsets[rows - 1].as_py() >= end:
        numbers = offsets.to_numpy()
        first, last = (int(each) for each in numbers.searchsorted([start, end]))
        viewed = viewed.slice(first, last - first)
    rows = viewed.num_rows
    if rows:
        parts = -(-_payload_bytes(batches, viewed) // TABLE_BYTES_MAX)
        step = max(1, -(-rows // parts))
        for at in range(0, rows, step):
            yield from _to_plain_columns(viewed.slice(at, step), topic, partition, include_headers)


def _payload_bytes(batches: Sequence[Buffer], viewed: pa.RecordBatch) -> int:
    """An upper bound for the size of the payloads: the memory that the views point into."""
    pointed = {buffer.address: buffer.size for buffer in viewed.column("value").buffers()[2:] if buffer is not None}
    return max(1, sum(pointed.values()) or sum(map(len, batches)))


def _to_plain_columns(
    viewed: pa.RecordBatch, topic: str, partition: int, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    rows = viewed.num_rows
    try:
        columns: list[Any] = [
            viewed.column("key").cast(pa.binary()),
            viewed.column("value").cast(pa.binary()),
            pa.repeat(topic, rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            viewed.column("offset"),
            viewed.column("timestamp").view(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            viewed.column("timestamp_type").cast(pa.int32()),
        ]
        if include_headers:
            columns.append(_headers(viewed.column("headers")))
    except pa.ArrowInvalid:
        if rows == 1:
            raise
        # Rows of very different sizes: more than a plain column can hold, so halve again.
        for at, size in ((0, rows // 2), (rows // 2, rows - rows // 2)):
            yield from _to_plain_columns(viewed.slice(at, size), topic, partition, include_headers)
        return
    yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers))


def _headers(viewed: Any) -> Any:
    """Lists of pairs; null for a record without headers, as in Spark's Kafka source."""
    lists = viewed.cast(HEADERS_TYPE)
    lengths = pc.list_value_length(lists)
    if pc.min(lengths).as_py():
        return lists
    none = pc.equal(lengths, 0)
    if pc.all(none).as_py():
        return pa.nulls(len(lists), HEADERS_TYPE)
    first = lists.offsets[0].as_py()
    offsets = pc.subtract(lists.offsets, pa.scalar(first, pa.int32()))
    return pa.ListArray.from_arrays(offsets, lists.flatten(), type=HEADERS_TYPE, mask=none)
