"""How each type is written: the table of docs/spark.md."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from holdfast.spark.sink.json_values import as_bytes, check_type
from holdfast.vocabulary.errors import InvalidError

UTC = dt.UTC
STRUCT = pa.struct([("id", pa.int64()), ("x", pa.float64()), ("raw", pa.binary())])
WRITTEN: list[tuple[pa.DataType, Any, bytes]] = [
    (pa.string(), "grün", "grün".encode()),
    (pa.binary(), b"\x00\xff", b"\x00\xff"),
    (pa.bool_(), True, b"true"),
    (pa.int8(), -5, b"-5"),
    (pa.int64(), 2**63 - 1, b"9223372036854775807"),
    (pa.float64(), 1.5, b"1.5"),
    (pa.float64(), float("nan"), b'"NaN"'),
    (pa.float64(), float("-inf"), b'"-Infinity"'),
    (pa.float32(), 0.5, b"0.5"),
    (
        pa.decimal128(38, 10),
        Decimal("1234567890123456789012345678.0123456789"),
        b"1234567890123456789012345678.0123456789",
    ),
    (pa.date32(), dt.date(2026, 11, 15), b'"2026-11-15"'),
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), b'"2026-01-02T03:04:05.000006Z"'),
    (pa.timestamp("us"), dt.datetime(2026, 1, 2, 3, 4, 5), b'"2026-01-02T03:04:05"'),
    (pa.duration("us"), dt.timedelta(days=1, seconds=2), b'"P1DT2S"'),
    (pa.list_(pa.float64()), [1.0, None, float("inf")], b'[1.0,null,"Infinity"]'),
    (pa.list_(pa.int32()), [], b"[]"),
    (STRUCT, {"id": 1, "x": None, "raw": b"\x01"}, b'{"id":1,"x":null,"raw":"AQ=="}'),
    (pa.list_(STRUCT), [{"id": 1, "x": 2.0, "raw": None}], b'[{"id":1,"x":2.0,"raw":null}]'),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)], b'{"a":1,"b":null}'),
    (pa.map_(pa.int64(), STRUCT), [(7, {"id": 1, "x": 1.0, "raw": None})], b'{"7":{"id":1,"x":1.0,"raw":null}}'),
    (pa.map_(pa.date32(), pa.bool_()), [(dt.date(2026, 1, 2), True)], b'{"2026-01-02":true}'),
]


@pytest.mark.parametrize(("kind", "value", "text"), WRITTEN, ids=[f"{kind} {text!r:.20}" for kind, _, text in WRITTEN])
def test_a_value_is_written_as_documented(kind: pa.DataType, value: object, text: bytes) -> None:
    assert as_bytes(pa.array([value, None], kind), "value").to_pylist() == [text, None]


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.map_(pa.float64(), pa.int32()), pa.time64("us")])
def test_a_type_without_a_form_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(InvalidError, match="value"):
        check_type(kind, "value")


def test_a_field_deep_inside_is_named() -> None:
    with pytest.raises(InvalidError, match=r"column value\.a\[\]\.b "):
        check_type(pa.struct([("a", pa.list_(pa.struct([("b", pa.time64("us"))])))]), "value")
