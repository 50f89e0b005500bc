"""Avro of one schema: logical types as texts, wherever they are."""

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest

from holdfast.pipeline.formats.avro import EMPTY_ITEMS_MAX, NESTED_MAX
from holdfast.pipeline.formats.avro_schema import parse_avro
from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.vocabulary.errors import InvalidError

MS = {"type": "long", "logicalType": "timestamp-millis"}
US = {"type": "long", "logicalType": "timestamp-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
AT = dt.datetime(2026, 11, 15, 8, 30, 0, 125_000, tzinfo=dt.UTC)
AT_TEXT = "2026-11-15T08:30:00.125Z"


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def read(schema: Any, *values: Any) -> list[Any]:
    payloads = []
    for value in values:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, schema, value)
        payloads.append(stream.getvalue())
    found = value_decoder(KafkaConfig(topic="t", format="avro", schema=json.dumps(schema))).decode(payloads)
    assert not found.bad
    return found.values


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (MS, AT, AT_TEXT),
        (MS, dt.datetime(1970, 1, 1, 0, 0, 0, 5_000, tzinfo=dt.UTC), "1970-01-01T00:00:00.005Z"),
        (US, AT, "2026-11-15T08:30:00.125000Z"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_000_000_007, "1970-01-01T00:00:01.000000007Z"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_000, "1970-01-01T00:00:01.000"),
        ({"type": "int", "logicalType": "date"}, dt.date(1969, 12, 31), "1969-12-31"),
        ({"type": "int", "logicalType": "time-millis"}, dt.time(1, 2, 3, 4_000), "01:02:03.004"),
        ({"type": "long", "logicalType": "time-micros"}, dt.time(1, 2, 3, 4), "01:02:03.000004"),
        (MONEY, Decimal("-1234567.891"), "-1234567.891"),
        (MONEY, Decimal("0.001"), "0.001"),
        ({**MONEY, "scale": 0}, Decimal(17), "17"),
        ({**MONEY, "type": "fixed", "name": "F", "size": 6}, Decimal("5.5"), "5.500"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=5), str(UUID(int=5))),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, 1_500_000, "1970-01-01T00:00:01.500000"),
        ({"type": "int", "connect.name": "io.debezium.time.Date"}, 20_000, "2024-10-04"),
        ("bytes", b"\x00\xff", "AP8="),
        ({"type": "fixed", "name": "G", "size": 2}, b"ab", "YWI="),
        ("boolean", True, True),
        ("double", 1.5, 1.5),
    ],
)  # fmt: skip
def test_a_value_is_what_its_type_means_in_every_place(kind: Any, given: Any, text: Any) -> None:
    assert read(record(x=kind), {"x": given}) == [{"x": text}]
    assert read(record(x=["null", kind]), {"x": given}, {"x": None}) == [{"x": text}, {"x": None}]
    inner = {"type": "record", "name": "I", "fields": [{"name": "y", "type": kind}]}
    assert read(record(x=["null", inner]), {"x": None}, {"x": {"y": given}}) == [{"x": None}, {"x": {"y": text}}]
    assert read(record(x={"type": "array", "items": kind}), {"x": [given, given]}) == [{"x": [text, text]}]
    assert read(record(x={"type": "map", "values": kind}), {"x": {"k": given}}) == [{"x": {"k": text}}]


def test_a_union_of_several_types_has_the_type_of_its_value() -> None:
    schema = record(x=["null", "string", MS])
    assert read(schema, {"x": AT}, {"x": "t"}, {"x": None}) == [{"x": AT_TEXT}, {"x": "t"}, {"x": None}]


def test_types_that_are_used_twice_or_contain_themselves() -> None:
    stamp = {"type": "record", "name": "Stamp", "fields": [{"name": "at", "type": MS}]}
    assert read(record(a=stamp, b="Stamp"), {"a": {"at": AT}, "b": {"at": AT}}) == [
        {"a": {"at": AT_TEXT}, "b": {"at": AT_TEXT}}
    ]
    fields = [{"name": "at", "type": MS}, {"name": "next", "type": ["null", "Node"]}]
    node = {"type": "record", "name": "Node", "fields": fields}
    assert read(node, {"at": AT, "next": {"at": AT, "next": None}}) == [
        {"at": AT_TEXT, "next": {"at": AT_TEXT, "next": None}}
    ]


DEEP = """
import json
from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.model.definition import KafkaConfig

inside = [["null", "N"], {"type": "array", "items": "N"}, {"type": "map", "values": "N"}]
for kind, step in zip(inside, [b"\\2", b"\\2", b"\\2\\2k"]):
    schema = {"type": "record", "name": "N", "namespace": "a.b", "fields": [{"name": "n", "type": kind}]}
    decoder = value_decoder(KafkaConfig(topic="t", format="avro", schema=json.dumps(schema)))
    found = decoder.decode([b"\\0", step * 100_000, step * 300 + b"\\0" * 301, b"\\0"])
    assert [row for row, _ in found.bad] == [1, 2], found.bad
"""


def test_a_value_nested_without_end_is_rejected_and_does_not_end_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_types_that_contain_themselves_are_read_to_a_depth() -> None:
    schema = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    decoder = value_decoder(KafkaConfig(topic="t", format="avro", schema=json.dumps(schema)))
    found = decoder.decode([b"\2" * (NESTED_MAX - 1) + b"\0", b"\2" * NESTED_MAX + b"\0"])
    assert found.bad == [(1, f"not Avro of its schema: nested more than {NESTED_MAX} deep")]


NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}
NO_BYTES = {"type": "fixed", "name": "NoBytes", "size": 0}


@pytest.mark.parametrize(
    "items",
    ["null", NOTHING, NO_BYTES, {"type": "null"}, {"type": "array", "items": "null"}, record(x=NOTHING, y="Nothing")],
    ids=str,
)
def test_a_few_bytes_that_announce_any_number_of_empty_items_are_rejected(items: Any) -> None:
    schema = {"type": "record", "name": "O", "fields": [{"name": "xs", "type": {"type": "array", "items": items}}]}
    decoder = value_decoder(KafkaConfig(topic="t", format="avro", schema=json.dumps(schema)))
    many, nested = varint(2**40), isinstance(items, dict) and items["type"] == "array"
    bombs = [
        (varint(1) if nested else b"") + many,
        (varint(1) if nested else b"") + varint(-(2**40)) + varint(0) + many,
    ]
    if nested:
        bombs.append(varint(1_000) + (varint(1_000) + b"\0") * 1_000 + b"\0")
    found = decoder.decode([*bombs, b"\0"])
    rejected = f"not Avro of its schema: more than {EMPTY_ITEMS_MAX} items without bytes"
    assert found.bad == [(at, rejected) for at in range(len(bombs))]
    assert found.values[-1] == {"xs": []}
    three = decoder.decode([varint(3) + (b"\0\0\0" if nested else b"") + b"\0"])
    assert not three.bad
    assert len(three.values[0]["xs"]) == 3


def varint(number: int) -> bytes:
    """A long, as Avro has it."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


@pytest.mark.parametrize(
    ("items", "empty"),
    [
        ("null", True),
        ("long", False),
        (["null", "long"], False),
        ("R", False),
        (record(x="null", y="int"), False),
        ({"type": "map", "values": "null"}, False),
        ({"type": "fixed", "name": "F", "size": 1}, False),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, False),
        (NO_BYTES, True),
    ],
    ids=str,
)
def test_only_schemas_whose_arrays_may_have_empty_items_are_read_slowly(items: Any, empty: bool) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "xs", "type": {"type": "array", "items": items}}]}
    if isinstance(items, dict) and items["type"] == "record":
        schema["name"] = "Outer"
    assert parse_avro(json.dumps(schema)).empty_items is empty


def test_a_time_out_of_range_rejects_its_record_alone() -> None:
    config = KafkaConfig(topic="t", format="avro", schema=json.dumps(record(x=MS)))
    payloads = []
    for value in (1, 2**60, 2):
        stream = BytesIO()
        fastavro.schemaless_writer(stream, record(x="long"), {"x": value})
        payloads.append(stream.getvalue())
    found = value_decoder(config).decode(payloads)
    assert [value and value["x"] for value in found.values] == [
        "1970-01-01T00:00:00.001Z",
        None,
        "1970-01-01T00:00:00.002Z",
    ]
    assert found.bad == [(1, f"timestamp {2**60} ms is out of range")]


def test_any_bytes_are_a_value_or_rejected() -> None:
    letters = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = record(a="long", b=["null", "string"], c={"type": "array", "items": "double"}, d=letters)
    config = KafkaConfig(topic="t", format="avro", schema=json.dumps(schema))
    payloads = [
        bytes([first, second, third]) * 3 for first in range(0, 256, 7) for second in (0, 2, 255) for third in (0, 8)
    ]
    found = value_decoder(config).decode(payloads)
    assert len(found.bad) + sum(value is not None for value in found.values) == len(payloads)


def test_a_schema_that_is_none_is_an_error_of_the_source() -> None:
    with pytest.raises(InvalidError, match="an Avro schema"):
        value_decoder(KafkaConfig(topic="t", format="avro", schema='{"type": "record"}'))


def test_a_type_that_is_used_twice_on_plain_paths_is_converted_in_both_places() -> None:
    value = {"type": "record", "name": "Value", "fields": [{"name": "at", "type": MS}, {"name": "n", "type": "int"}]}
    envelope: dict[str, Any] = {
        "type": "record",
        "name": "Envelope",
        "namespace": "db.orders",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "last", "type": "db.orders.Value"},
        ],
    }
    assert parse_avro(json.dumps(envelope)).columns[0].path == ("before",)
    assert len(parse_avro(json.dumps(envelope)).columns) == 3
    row = {"at": AT, "n": 1}
    assert read(envelope, {"before": None, "after": row, "last": row}, {"before": row, "after": None, "last": row}) == [
        {"before": None, "after": {"at": AT_TEXT, "n": 1}, "last": {"at": AT_TEXT, "n": 1}},
        {"before": {"at": AT_TEXT, "n": 1}, "after": None, "last": {"at": AT_TEXT, "n": 1}},
    ]
    envelope["fields"].append({"name": "all", "type": {"type": "array", "items": "Value"}})
    assert not parse_avro(json.dumps(envelope)).columns  # the array's are converted while they are read, so all are
    assert read(envelope, {"before": None, "after": row, "last": row, "all": [row]})[0]["all"] == [
        {"at": AT_TEXT, "n": 1}
    ]


def test_types_of_one_name_in_two_namespaces_are_two() -> None:
    one = {"type": "record", "name": "V", "namespace": "a", "fields": [{"name": "x", "type": MS}]}
    two = {"type": "record", "name": "V", "namespace": "b", "fields": [{"name": "x", "type": "long"}]}
    schema = record(p=one, q=two, r="a.V", s="b.V")
    given = {"p": {"x": AT}, "q": {"x": 5}, "r": {"x": AT}, "s": {"x": 6}}
    assert read(schema, given) == [{"p": {"x": AT_TEXT}, "q": {"x": 5}, "r": {"x": AT_TEXT}, "s": {"x": 6}}]
