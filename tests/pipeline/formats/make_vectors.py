"""Writes vectors.json: values as Confluent's own Python serializers write them, with the schemas they registered.

Run it as a program, with `confluent-kafka[avro,json,protobuf,schemaregistry]` and `grpcio-tools` installed.
"""

import datetime as dt
import json
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

ORDER_1 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "user", "type": {"type": "record", "name": "User", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["SMALL", "BIG"]}},
        {"name": "blob", "type": "bytes"},
    ],
}
ORDER_2 = {**ORDER_1, "fields": [*ORDER_1["fields"], {"name": "coupon", "type": "string", "default": "none"}]}
ORDER = {
    "id": 7,
    "name": "Ann",
    "price": Decimal("12.50"),
    "at": dt.datetime(2026, 11, 15, 8, 30, 0, 125_000, tzinfo=dt.UTC),
    "seen": dt.datetime(2026, 11, 15, 8, 30, 0, 125_001, tzinfo=dt.UTC),
    "day": dt.date(2026, 11, 15),
    "uid": UUID("6f2c0c3e-6f1d-4c56-9d0a-3f1f6f7b2a10"),
    "user": {"city": "Zürich"},
    "tags": ["a", "b"],
    "kind": "BIG",
    "blob": b"\x00\xff",
}
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  optional string name = 2;
  google.protobuf.Timestamp at = 3;
  repeated string tags = 4;
  map<string, double> prices = 5;
  Kind kind = 6;
  bytes blob = 7;
  Inner inner = 8;
  enum Kind { SMALL = 0; BIG = 1; }
  message Inner { string city = 1; }
}
message Other { string text = 1; }
"""
JSON_SCHEMA = '{"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}}'


def main() -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    registry = SchemaRegistryClient.new_client({"url": "mock://vectors"})
    context = SerializationContext("orders", MessageField.VALUE)
    made: dict[str, Any] = {}

    def avro(name: str, schema: Any, value: Any) -> None:
        made[name] = AvroSerializer(registry, json.dumps(schema))(value, context)

    avro("avro", ORDER_1, ORDER)
    avro("avro-null", ORDER_1, {**ORDER, "name": None, "seen": None, "price": Decimal("-0.01")})
    avro("avro-newer", ORDER_2, {**ORDER, "coupon": "TEN"})
    with tempfile.TemporaryDirectory() as folder:
        module = _compiled(Path(folder))
        message = module.Order(id=7, name="Ann", tags=["a", "b"], prices={"x": 1.5}, kind=1, blob=b"\x00\xff")
        message.at.FromDatetime(dt.datetime(2026, 11, 15, 8, 30, 0, 125_000))
        message.inner.city = "Zürich"
        proto = {"use.deprecated.format": False}
        made["protobuf"] = ProtobufSerializer(module.Order, registry, proto)(message, context)
        made["protobuf-empty"] = ProtobufSerializer(module.Order, registry, proto)(module.Order(), context)
        made["protobuf-second"] = ProtobufSerializer(module.Other, registry, proto)(module.Other(text="t"), context)
        nested = module.Order.Inner(city="Bern")
        made["protobuf-nested"] = ProtobufSerializer(module.Order.Inner, registry, proto)(nested, context)
    made["json"] = JSONSerializer(JSON_SCHEMA, registry)({"id": 7}, context)
    schemas = {}
    for payload in made.values():
        number = int.from_bytes(payload[1:5], "big")
        found: Schema = registry.get_schema(number)
        schemas[str(number)] = {"schema": found.schema_str, "schemaType": found.schema_type or "AVRO"}
    out = {"schemas": schemas, "values": {name: payload.hex() for name, payload in made.items()}}
    Path(__file__).with_name("vectors.json").write_text(json.dumps(out, indent=1) + "\n")


def _compiled(folder: Path) -> Any:
    from grpc_tools import protoc

    (folder / "order.proto").write_text(PROTO)
    well_known = Path(str(protoc.__file__)).parent / "_proto"
    assert protoc.main(["protoc", f"-I{folder}", f"-I{well_known}", f"--python_out={folder}", "order.proto"]) == 0
    sys.path.insert(0, str(folder))
    import order_pb2  # type: ignore[import-not-found]

    return order_pb2


if __name__ == "__main__":
    main()
