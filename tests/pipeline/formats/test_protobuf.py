"""Protobuf of one message, compiled at run time."""

from functools import cache
from typing import Any

import pytest
from google.protobuf import message_factory

from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.formats.proto_files import compile_proto
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.vocabulary.errors import InvalidError

PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Kind { NONE = 0; BIG = 1; }
message Item {
  int64 id = 1;
  bool good = 2;
  optional int32 count = 3;
  oneof choice { string a = 4; bytes b = 5; }
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  google.protobuf.Int64Value wrapped = 8;
  google.protobuf.Struct more = 9;
  repeated Kind kinds = 10;
  map<int32, Item> parts = 11;
  Item parent = 12;
  repeated bytes blobs = 13;
}
"""
CONFIG = KafkaConfig(topic="t", format="protobuf", schema=PROTO, message="shop.Item")
EMPTY: dict[str, Any] = {"id": 0, "good": False, "kinds": [], "parts": {}, "blobs": []}


@cache  # a compiler runs for each
def item_class() -> Any:
    return message_factory.GetMessageClass(compile_proto(PROTO).message_named("shop.Item"))


def item(**fields: Any) -> Any:
    return item_class()(**fields)


def read(*messages: Any) -> list[Any]:
    found = value_decoder(CONFIG).decode([message.SerializeToString() for message in messages])
    assert not found.bad
    return found.values


def test_fields_without_presence_have_their_default_and_others_are_absent() -> None:
    assert read(item()) == [EMPTY]
    assert read(item(count=0, a="")) == [{**EMPTY, "count": 0, "a": ""}]


def test_values_are_json_values() -> None:
    full = item(id=2**62, good=True, b=b"\xff", kinds=[1, 0, 7], blobs=[b"ab"])
    full.at.seconds, full.at.nanos, full.took.seconds = 5, 7, 3
    full.wrapped.value = 9
    full.more["x"] = [1, "t", None]
    full.parts[4].id = 8
    full.parent.parent.id = 3
    assert read(full) == [
        {
            "id": 2**62,
            "good": True,
            "b": "/w==",
            "at": "1970-01-01T00:00:05.000000007Z",
            "took": "3s",
            "wrapped": 9,
            "more": {"x": [1.0, "t", None]},
            "kinds": ["BIG", "NONE", 7],
            "parts": {"4": {**EMPTY, "id": 8}},
            "parent": {**EMPTY, "parent": {**EMPTY, "id": 3}},
            "blobs": ["YWI="],
        }
    ]


@pytest.mark.slow
def test_times_are_those_of_protobufs_own_json() -> None:
    times = []
    for seconds in (0, -1, 1_794_729_600, -62_135_596_800, 253_402_300_799):
        for nanos in (0, 1, 1_000, 1_000_000, 999_999_999, 120_000_000):
            times.append(item())
            times[-1].at.seconds, times[-1].at.nanos = seconds, nanos
    assert [each["at"] for each in read(*times)] == [each.at.ToJsonString() for each in times]
    for seconds, nanos in ((2**40, 0), (0, -1)):
        made = item()
        made.at.seconds, made.at.nanos = seconds, nanos
        ((_, reason),) = value_decoder(CONFIG).decode([made.SerializeToString()]).bad
        assert "out of range" in reason


def test_bytes_that_are_no_message_are_rejected() -> None:
    found = value_decoder(CONFIG).decode([b"\x08", item(id=1).SerializeToString(), None])
    assert found.values[1] == {**EMPTY, "id": 1}
    assert [row for row, _ in found.bad] == [0, 2]
    assert found.bad[0][1].startswith("not Protobuf of its schema")


@pytest.mark.parametrize(
    ("schema", "message", "says"),
    [
        ("syntax = 3;", "A", "holdfast_value.proto:1:10"),
        (PROTO, "shop.Other", "unknown message 'shop.Other'"),
        ('syntax = "proto3"; import "nowhere.proto"; message A {}', "A", "nowhere.proto"),
        ('syntax = "proto3"; import "../../etc/passwd"; message A {}', "A", "not allowed"),
    ],
)
def test_a_definition_that_is_none_is_an_error_of_the_source(schema: str, message: str, says: str) -> None:
    with pytest.raises(InvalidError, match=says) as raised:
        value_decoder(KafkaConfig(topic="t", format="protobuf", schema=schema, message=message))
    assert "/tmp" not in str(raised.value)  # where it was compiled
