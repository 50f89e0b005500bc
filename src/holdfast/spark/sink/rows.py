"""An Arrow batch as the columns of records, and which columns are allowed.

key, value     any type; JSON unless binary or text; value is required
headers        an array of structs key (text), value (binary or text), as Spark's Kafka source has it
partition      integer; null: by the key
topic          text; null: the option topic
timestamp      timestamp; null, or no such column: the time of writing
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyarrow import types as t

from holdfast.spark.sink.json_values import as_bytes, check_type
from holdfast.spark.sink.partitioner import NumpyArray
from holdfast.vocabulary.errors import InvalidError

COLUMNS: Final[tuple[str, ...]] = ("key", "value", "headers", "partition", "topic", "timestamp")
KAFKA_COLUMNS: Final[tuple[str, ...]] = ("key", "value", "headers", "partition", "topic")
"""What Spark's Kafka connector writes; it ignores others."""

Headers = tuple[tuple[str, bytes | None], ...]


class Rows(NamedTuple):
    """The rows of one batch by column; None: the column is absent."""

    keys: pa.Array | None
    values: pa.Array
    headers: list[Headers] | None
    partitions: pa.Array | None
    topics: pa.Array | None
    times_ms: NumpyArray


def only_columns(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch without other columns."""
    return batch.select([name for name in batch.schema.names if name in names])


def check_columns(schema: pa.Schema, *, topic: str) -> None:
    """Refuse a DataFrame whose columns do not make records."""
    names = schema.names
    for name in names:
        if name not in COLUMNS or names.count(name) > 1:
            raise InvalidError("columns", ", ".join(names), "distinct and among " + ", ".join(COLUMNS))
    if "value" not in names:
        raise InvalidError("columns", ", ".join(names), "a list that includes value")
    if "topic" not in names and not topic:
        raise InvalidError("option topic", "", "a topic, because there is no column topic")
    for name in names:
        kind = schema.field(name).type
        if name in ("key", "value"):
            check_type(kind, name)
        elif not _COLUMN_TYPES[name][0](kind):
            raise InvalidError(f"type of column {name}", str(kind), _COLUMN_TYPES[name][1])


def _is_headers(kind: pa.DataType) -> bool:
    if not t.is_list(kind) or not t.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        return False
    key, value = kind.value_type.field(0), kind.value_type.field(1)
    named = (key.name, value.name) == ("key", "value")
    return named and t.is_string(key.type) and (t.is_binary(value.type) or t.is_string(value.type))


_COLUMN_TYPES: Final[dict[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "headers": (_is_headers, "array<struct<key: string, value: binary>>"),
    "partition": (t.is_integer, "integer"),
    "topic": (t.is_string, "string"),
    "timestamp": (t.is_timestamp, "timestamp"),
}


def read_rows(batch: pa.RecordBatch, *, now_ms: int) -> Rows:
    """The batch as columns of records. `check_columns` has accepted its schema."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Rows(
        keys=as_bytes(columns["key"], "key") if "key" in columns else None,
        values=as_bytes(columns["value"], "value"),
        headers=list(_headers(columns["headers"])) if "headers" in columns else None,
        partitions=columns.get("partition"),
        topics=columns.get("topic"),
        times_ms=_times(columns.get("timestamp"), batch.num_rows, now_ms),
    )


def _headers(column: pa.Array) -> Iterator[Headers]:
    for given in column.to_pylist():
        yield tuple((_header_key(pair), _header_value(pair["value"])) for pair in given or ())


def _header_key(pair: dict[str, Any] | None) -> str:
    if pair is None or pair["key"] is None:
        raise InvalidError("header", pair, "a struct whose key is not null")
    return str(pair["key"])


def _header_value(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _times(column: pa.Array | None, rows: int, now_ms: int) -> NumpyArray:
    if column is None:
        return np.full(rows, now_ms, dtype=np.int64)
    whole = compute.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
    times: NumpyArray = whole.cast(pa.int64()).fill_null(now_ms).to_numpy(zero_copy_only=False)
    if rows and times.min() < 0:
        raise InvalidError("column timestamp", f"{int(times.min())} ms", "1970 or later")
    return times
