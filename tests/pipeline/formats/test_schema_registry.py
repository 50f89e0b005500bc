"""What a registry says about a record, and what only about itself."""

from io import BytesIO
from typing import Any

import fastavro
import msgspec
import pytest
from tests.support.schema_registry import PASSWORD, framed, schema_registry

from holdfast.pipeline.formats import schema_registry as client
from holdfast.pipeline.formats.decoded import NO_VALUE, Decoded
from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.formats.schema_registry import SchemaRegistryClient
from holdfast.pipeline.model.definition import KafkaConfig, SchemaRegistry
from holdfast.vocabulary.errors import UnavailableError

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "long"}]}


def avro(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def decode(registry: SchemaRegistry, *payloads: bytes | None, kind: Any = "avro") -> Decoded:
    return value_decoder(KafkaConfig(topic="t", format=kind, schema_registry=registry)).decode(payloads)


def test_records_are_rejected_one_by_one_with_a_reason() -> None:
    with schema_registry() as registry:
        number, proto = registry.register(ITEM), registry.register('syntax = "proto3"; message A {}', "PROTOBUF")
        broken = registry.register('{"type": "nothing"}')
        good = framed(number, avro(ITEM, {"id": 300}))
        payloads = [
            good, framed(99, b"\x02"), b"\x01" + good[1:], b"\0\0", None, good[:-1], good + b"!", framed(proto, b""), b"",
            framed(broken, b""),
        ]  # fmt: skip
        found = decode(registry.config, *payloads, good)
    assert [value for value in found.values if value is not None] == [{"id": 300}] * 2
    reasons = dict(found.bad)
    assert list(reasons) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert reasons[1] == "unknown schema id 99: the registry has no such schema"
    assert reasons[2].startswith("wrong magic byte 1")
    assert reasons[3].startswith("truncated: 2 bytes")
    assert reasons[4] == NO_VALUE
    assert reasons[5].startswith("not Avro of its schema")
    assert reasons[6] == "not Avro of its schema: 1 bytes are left behind the value"
    assert reasons[7] == f"schema {proto} is PROTOBUF, not AVRO"
    assert reasons[8].startswith("truncated: 0 bytes")
    assert reasons[9].startswith("the Avro schema cannot be parsed")


@pytest.mark.parametrize("status", [500, 503, 429, 404, 401, 302])
def test_a_registry_that_does_not_answer_as_one_rejects_nothing(status: int) -> None:
    with schema_registry() as registry:
        number = registry.register(ITEM)
        payload = framed(number, avro(ITEM, {"id": 1}))
        registry.status = status
        with pytest.raises(UnavailableError, match=f"status {status}") as raised:
            decode(registry.config, payload)
        assert "secret" not in str(raised.value)
        registry.status = 200
        assert decode(registry.config, payload).values == [{"id": 1}]
        registry.status = 500  # what is known stays known
        assert decode(registry.config, payload).values == [{"id": 1}]


def test_a_registry_that_is_gone_rejects_nothing() -> None:
    with schema_registry() as registry:
        config = registry.config
    with pytest.raises(UnavailableError, match="the schema registry at http://127"):
        decode(config, framed(1, b""))


def test_a_registry_that_answers_byte_by_byte_is_left_after_the_timeout() -> None:
    with schema_registry() as registry:
        number = registry.register({**ITEM, "doc": "x" * 1_000})
        registry.drips = True
        config = msgspec.structs.replace(registry.config, timeout_ms=500)
        with pytest.raises(UnavailableError, match="no answer within 500 ms"):
            SchemaRegistryClient(config).schema(number)


@pytest.mark.parametrize(
    "references",
    [5, {"name": "a"}, [5], [{"name": "a"}], [{"name": "a", "subject": "s", "version": "v"}], "[" * 100_000],
    ids=lambda references: str(references)[:20],
)
def test_references_that_are_none_reject_nothing(references: Any) -> None:
    with schema_registry() as registry:
        number = registry.register(ITEM)
        registry.schemas[number]["references"] = references
        with pytest.raises(UnavailableError, match="references"):
            decode(registry.config, framed(number, b"\x02"))


def test_an_answer_nested_without_end_rejects_nothing() -> None:
    with schema_registry() as registry:
        registry.status, registry.body = 201, b"[" * 200_000
        with pytest.raises(UnavailableError, match="status 201"):
            decode(registry.config, framed(1, b"\x02"))


def test_schemas_that_refer_to_each_other_reject_nothing() -> None:
    with schema_registry() as registry:
        registry.register(ITEM, subject="a", references=[{"name": "B", "subject": "b", "version": 1}])
        number = registry.register(ITEM, subject="b", references=[{"name": "A", "subject": "a", "version": 1}])
        with pytest.raises(UnavailableError, match="references"):
            decode(registry.config, framed(number, b"\x02"))
        assert sum(registry.asked.values()) < 10


def test_a_schema_whose_type_is_null_is_avro() -> None:
    with schema_registry() as registry:
        number = registry.register(ITEM)
        registry.schemas[number]["schemaType"] = None
        assert decode(registry.config, framed(number, b"\x02")).values == [{"id": 1}]


def test_an_unknown_id_is_asked_for_again() -> None:
    with schema_registry() as registry:
        assert decode(registry.config, framed(1, b"\x02")).bad
        registry.register(ITEM)
        assert decode(registry.config, framed(1, b"\x02")).values == [{"id": 1}]


def test_credentials_are_sent_and_never_shown() -> None:
    with schema_registry(with_auth=True) as registry:
        registry.register(ITEM)
        assert decode(registry.config, framed(1, b"\x02")).values == [{"id": 1}]
        anonymous = SchemaRegistry(url=registry.url)
        with pytest.raises(UnavailableError, match="status 401, error code 40101"):
            decode(anonymous, framed(1, b"\x02"))
        in_url = SchemaRegistry(url=registry.url.replace("//", f"//reader:{PASSWORD}@"))
        assert decode(in_url, framed(1, b"\x02")).values == [{"id": 1}]
        registry.status = 500
        with pytest.raises(UnavailableError) as raised:
            decode(in_url, framed(2, b"\x02"))
        assert PASSWORD not in str(raised.value)
        assert PASSWORD not in repr(registry.config)


def test_schemas_refer_to_others() -> None:
    with schema_registry() as registry:
        registry.register(ITEM, subject="item")
        needs = [{"name": "Item", "subject": "item", "version": 1}]
        box = {"type": "record", "name": "Box", "fields": [{"name": "item", "type": "Item"}]}
        number = registry.register(box, references=needs)
        assert decode(registry.config, framed(number, b"\x04")).values == [{"item": {"id": 2}}]
        registry.register('syntax = "proto3"; package p; message Item { int64 id = 1; }', "PROTOBUF", subject="p/item")
        proto = 'syntax = "proto3"; import "p/item.proto"; message Box { p.Item item = 1; }'
        needs = [{"name": "p/item.proto", "subject": "p/item", "version": 1}]
        number = registry.register(proto, "PROTOBUF", references=needs)
        found = decode(registry.config, framed(number, b"\0\x0a\x02\x08\x05"), kind="protobuf")
    assert found.values == [{"item": {"id": 5}}]


def test_a_name_of_an_imported_file_cannot_leave_its_folder() -> None:
    with schema_registry() as registry:
        registry.register('syntax = "proto3";', "PROTOBUF", subject="s")
        needs = [{"name": "../../x.proto", "subject": "s", "version": 1}]
        number = registry.register('syntax = "proto3"; message A {}', "PROTOBUF", references=needs)
        found = decode(registry.config, framed(number, b"\0"), kind="protobuf")
    assert "must be a relative path" in found.bad[0][1]


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SCHEMAS_CACHED_MAX", 2)
    with schema_registry() as registry:
        numbers = [registry.register(ITEM) for _ in range(3)]
        known = SchemaRegistryClient(registry.config)
        for number in (*numbers, numbers[2], numbers[0]):
            assert known.schema(number) is not None
        assert registry.asked == {"/schemas/ids/1": 2, "/schemas/ids/2": 1, "/schemas/ids/3": 1}
