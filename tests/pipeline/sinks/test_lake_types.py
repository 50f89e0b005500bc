"""Nested and textual types in lakes, topics and SQL."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.pipeline_values import mapping_of, records_of

from holdfast.clickhouse.types import parse_type
from holdfast.pipeline.mapping.coercion import make_coercion_plan

pa = pytest.importorskip("pyarrow")
from holdfast.pipeline.mapping.arrow import arrow_type  # noqa: E402
from holdfast.pipeline.mapping.arrow_columns import coerce_all  # noqa: E402
from holdfast.pipeline.sinks.json_rows import json_rows  # noqa: E402
from holdfast.pipeline.sinks.lake import lake_type, to_lake  # noqa: E402

KINDS = {
    "address": "IPv6",
    "state": "Enum8('new' = 1)",
    "line": "Tuple(id UInt64, at DateTime64(3))",
    "lines": "Array(Tuple(id UInt32, tags Map(UInt64, String)))",
    "doc": "JSON",
}
RECORD: dict[str, Any] = {
    "address": "2001:DB8::1",
    "state": 1,
    "line": {"id": 2**64 - 1, "at": "2026-11-15T10:00:00Z"},
    "lines": [{"id": 1, "tags": {"7": "x"}}],
    "doc": {"a": 1},
}


def mapped() -> Any:
    return coerce_all(make_coercion_plan(mapping_of(**KINDS)), records_of(RECORD)).batch


def test_unsigned_numbers_inside_are_stored_in_types_a_lake_has() -> None:
    rows = pa.Table.from_batches([mapped()])
    schema = pa.schema([(name, lake_type(arrow_type(parse_type(kind)))) for name, kind in KINDS.items()])
    (row,) = to_lake(rows, schema).to_pylist()
    assert row["line"]["id"] == 2**64 - 1
    assert row["lines"] == [{"id": 1, "tags": [(7, "x")]}]
    assert (row["address"], row["state"], row["doc"]) == ("2001:db8::1", "new", '{"a":1}')
    assert str(schema.field("lines").type.value_type.field("id").type) == "int64"


def test_a_topic_gets_objects_for_tuples() -> None:
    (value,) = map(json.loads, json_rows(mapped()).to_pylist())
    assert value["line"] == {"id": 2**64 - 1, "at": "2026-11-15T10:00:00Z"}
    assert value["lines"] == [{"id": 1, "tags": {"7": "x"}}]


def test_a_struct_of_sql_is_a_tuple() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from holdfast.pipeline.driver.sql import CARRIED, columns_of

    inner = StructType([StructField("a", LongType(), False), StructField("b", StringType(), True)])
    carried = [StructField(name, StringType()) for name in CARRIED]
    frame: Any = SimpleNamespace(
        schema=StructType([*carried, StructField("s", inner, False), StructField("n", inner, True)])
    )
    always, maybe = columns_of(frame, ())
    assert str(always.kind) == "Tuple(a Int64, b Nullable(String))"
    assert str(maybe.kind) == "Tuple(a Nullable(Int64), b Nullable(String))"
    assert maybe.when_null == "default"
