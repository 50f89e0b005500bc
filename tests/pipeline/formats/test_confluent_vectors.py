"""Bytes that Confluent's own serializers wrote (`make_vectors.py`), read through a registry over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.schema_registry import RegistryServer, schema_registry

from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.model.definition import KafkaConfig

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
ORDER = {
    "id": 7,
    "name": "Ann",
    "price": "12.50",
    "at": "2026-11-15T08:30:00.125Z",
    "seen": "2026-11-15T08:30:00.125001Z",
    "day": "2026-11-15",
    "uid": "6f2c0c3e-6f1d-4c56-9d0a-3f1f6f7b2a10",
    "user": {"city": "Zürich"},
    "tags": ["a", "b"],
    "kind": "BIG",
    "blob": "AP8=",
}
EXPECTED: dict[str, tuple[Any, Any]] = {
    "avro": ("avro", ORDER),
    "avro-null": ("avro", {**ORDER, "name": None, "seen": None, "price": "-0.01"}),
    "avro-newer": ("avro", {**ORDER, "coupon": "TEN"}),
    "protobuf": (
        "protobuf",
        {
            "id": 7,
            "name": "Ann",
            "at": "2026-11-15T08:30:00.125Z",
            "tags": ["a", "b"],
            "prices": {"x": 1.5},
            "kind": "BIG",
            "blob": "AP8=",
            "inner": {"city": "Zürich"},
        },
    ),
    "protobuf-empty": ("protobuf", {"id": 0, "tags": [], "prices": {}, "kind": "SMALL", "blob": ""}),
    "protobuf-second": ("protobuf", {"text": "t"}),
    "protobuf-nested": ("protobuf", {"city": "Bern"}),
    "json": ("json", {"id": 7}),
}


def registered(registry: RegistryServer) -> RegistryServer:
    registry.schemas = {int(number): {**schema, "references": []} for number, schema in VECTORS["schemas"].items()}
    return registry


def test_every_vector_is_expected() -> None:
    assert set(VECTORS["values"]) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_value_of_confluents_serializer_is_read(name: str) -> None:
    kind, expected = EXPECTED[name]
    with schema_registry() as registry:
        config = KafkaConfig(topic="t", format=kind, schema_registry=registered(registry).config)
        found = value_decoder(config).decode([bytes.fromhex(VECTORS["values"][name])])
    assert found.values == [expected]
    assert not found.bad


def test_values_of_several_schemas_keep_their_order_and_each_schema_is_asked_for_once() -> None:
    names = ["avro", "avro-newer", "avro-null", "avro"]
    with schema_registry() as registry:
        config = KafkaConfig(topic="t", format="avro", schema_registry=registered(registry).config)
        payloads = [bytes.fromhex(VECTORS["values"][name]) for name in names]
        for _ in range(3):
            assert value_decoder(config).decode(payloads).values == [EXPECTED[name][1] for name in names]
        assert sorted(registry.asked.values()) == [1, 1]
