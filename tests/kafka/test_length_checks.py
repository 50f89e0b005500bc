"""What a request claims to be long is held against what is there, before kio makes room for it."""

import dataclasses
import hashlib
import io
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer
from tests.support.kafka_wire import build, versions_of

from holdfast.gateways.kafka.api_table import APIS
from holdfast.kafka.codec import decode
from holdfast.kafka.length_checks import check_lengths, nested_entity
from holdfast.kafka.wire import MalformedRequestError

# Each worker that runs one of them imports every schema that kio has.
pytestmark = pytest.mark.xdist_group("kafka-schemas")

DESCRIBE_CONFIGS = 32  # answered by hand, read by kio
CONTROL = [key for key, api in APIS.items() if api.control is not None or key == DESCRIBE_CONFIGS]
REQUESTS = [(key, version) for key in CONTROL for version in versions_of(key)]
ABSURD = {
    "compact": (10, 4, b"\0\xff\xff\xff\xff\x0f"),
    "classic": (21, 0, b"\x7f\xff\xff\xff"),
    "inside another": (11, 5, b"\0\1g" + bytes(8) + b"\0\0\xff\xff\0\0\x7f\xff\xff\xff"),
}


def full(kind: Any) -> Any:
    """A request with two of everything."""
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        inner, kafka_type = nested_entity(field.type), field.metadata.get("kafka_type", "")
        value: Any = {"string": "ab", "bytes": b"abc", "bool": True, "uuid": UUID(int=5)}.get(kafka_type, 7)
        if kafka_type.startswith("timedelta"):
            value = timedelta(milliseconds=7)
        if inner is not None:
            value = full(inner)
        given[field.name] = (value, value) if "tuple[" in str(field.type) else value
    return kind(**given)


@pytest.mark.parametrize(("key", "version", "body"), ABSURD.values(), ids=ABSURD.keys())
def test_an_absurd_length_is_refused_and_the_process_lives(key: int, version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequestError, match="remaining length"):
        decode(key, version, memoryview(body))


@pytest.mark.parametrize(("key", "version"), REQUESTS)
def test_every_request_is_walked_to_its_end_and_no_part_of_one_passes(key: int, version: int) -> None:
    kind = load_request_schema(key, version)
    for request in (build(kind, {}), full(kind)):
        out = io.BytesIO()
        entity_writer(kind)(out, request)
        body = out.getvalue()
        assert check_lengths(kind, memoryview(body)) == len(body)
        assert decode(key, version, memoryview(body)) == request
        for size in range(len(body)):
            with pytest.raises(MalformedRequestError):
                decode(key, version, memoryview(body[:size]))


@pytest.mark.slow
def test_noise_is_refused_or_understood() -> None:
    for key, version in REQUESTS:
        for size in (1, 5, 20, 200):
            try:
                decode(key, version, memoryview(hashlib.shake_128(b"%d %d" % (key, version)).digest(size)))
            except MalformedRequestError:
                continue
