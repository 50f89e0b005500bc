"""Values of a query's source as JSON texts: what JSON has no number for is kept as Spark reads it."""

import json
import math
import struct
from typing import Any

import pyarrow as pa
import pytest

from holdfast.pipeline.formats.stream_values import TEXT, DecodeValues, decoder_config
from holdfast.pipeline.model.query import StreamSource

FIELDS: list[dict[str, Any]] = [
    {"name": "x", "type": "double"},
    {"name": "all", "type": {"type": "array", "items": "double"}},
    {"name": "none", "type": "null"},
]


def texts(*payloads: bytes) -> list[str]:
    schema = json.dumps({"type": "record", "name": "Reading", "fields": FIELDS})
    source = StreamSource(topic="readings", name="readings", schema="x DOUBLE", format="avro", value_schema=schema)
    batch = pa.RecordBatch.from_pydict({"value": pa.array(payloads, pa.binary())})
    (decoded,) = DecodeValues(decoder_config(source))([batch])
    return [str(text) for text in decoded.column(TEXT).to_pylist()]


@pytest.mark.parametrize(
    ("number", "text"), [(math.nan, '"NaN"'), (math.inf, '"Infinity"'), (-math.inf, '"-Infinity"'), (1.5, "1.5")]
)
def test_numbers_that_are_not_finite_are_not_nulls(number: float, text: str) -> None:
    packed = struct.pack("<d", number)
    assert texts(packed + b"\x02" + packed + b"\x00") == [f'{{"x":{text},"all":[{text}],"none":null}}']
