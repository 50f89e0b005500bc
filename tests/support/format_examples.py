"""The same orders in every format, with a registry where the format has one."""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import msgspec
from google.protobuf import message_factory
from tests.support.schema_registry import RegistryServer, framed, schema_registry

from holdfast.pipeline.formats.proto_files import compile_proto
from holdfast.pipeline.model.definition import CsvOptions, KafkaConfig

AT = dt.datetime(2026, 11, 15, 8, 30, 0, 125_000, tzinfo=dt.UTC)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}
NEWER_ORDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "coupon", "type": ["null", "string"], "default": None}]}
ORDER_PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; string total = 3; optional string name = 4; }
"""


@dataclass
class FormatExample:
    source: Callable[[str], KafkaConfig]
    """The source of a topic."""
    encode: Callable[[int], bytes]
    """The order of a number."""
    registry: RegistryServer


def order(number: int) -> dict[str, Any]:
    at = AT + dt.timedelta(milliseconds=number)
    return {
        "id": number,
        "at": at,
        "total": Decimal(number) + Decimal("0.50"),
        "name": f"n{number}" if number % 2 else None,
    }


def as_text(number: int) -> dict[str, Any]:
    """The order as JSON has it."""
    made = order(number)
    return {**made, "at": made["at"].isoformat(timespec="milliseconds"), "total": str(made["total"])}


def avro_bytes(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


@contextmanager
def format_example(name: str) -> Iterator[FormatExample]:
    with schema_registry() as registry:
        yield _EXAMPLES[name](registry)


def _json(registry: RegistryServer) -> FormatExample:
    return FormatExample(lambda topic: KafkaConfig(topic=topic), lambda n: msgspec.json.encode(as_text(n)), registry)


def _framed_json(registry: RegistryServer) -> FormatExample:
    number = registry.register('{"type": "object"}', "JSON")
    return FormatExample(
        lambda topic: KafkaConfig(topic=topic, schema_registry=registry.config),
        lambda n: framed(number, msgspec.json.encode(as_text(n))),
        registry,
    )


def _avro(registry: RegistryServer) -> FormatExample:
    number = registry.register(ORDER)
    return FormatExample(
        lambda topic: KafkaConfig(topic=topic, format="avro", schema_registry=registry.config),
        lambda n: framed(number, avro_bytes(ORDER, order(n))),
        registry,
    )


def _local_avro(registry: RegistryServer) -> FormatExample:
    schema = msgspec.json.encode(ORDER).decode()
    return FormatExample(
        lambda topic: KafkaConfig(topic=topic, format="avro", schema=schema),
        lambda n: avro_bytes(ORDER, order(n)),
        registry,
    )


def _protobuf(registry: RegistryServer) -> FormatExample:
    number = registry.register(ORDER_PROTO, "PROTOBUF")
    kind = message_factory.GetMessageClass(compile_proto(ORDER_PROTO).message_named("Order"))

    def encode(n: int) -> bytes:
        made = order(n)
        message: Any = kind(id=n, total=str(made["total"]))
        message.at.FromDatetime(made["at"])
        if made["name"] is not None:
            message.name = made["name"]
        return framed(number, b"\0" + message.SerializeToString())

    return FormatExample(
        lambda topic: KafkaConfig(topic=topic, format="protobuf", schema_registry=registry.config), encode, registry
    )


def _csv(registry: RegistryServer) -> FormatExample:
    columns = ("id", "at", "total", "name")

    def encode(n: int) -> bytes:
        return ",".join("" if (cell := as_text(n)[name]) is None else str(cell) for name in columns).encode()

    return FormatExample(
        lambda topic: KafkaConfig(topic=topic, format="csv", csv=CsvOptions(columns=columns)), encode, registry
    )


_EXAMPLES: dict[str, Callable[[RegistryServer], FormatExample]] = {
    "json": _json,
    "json-registry": _framed_json,
    "avro": _avro,
    "avro-local": _local_avro,
    "protobuf": _protobuf,
    "csv": _csv,
}
FORMATS = tuple(_EXAMPLES)
