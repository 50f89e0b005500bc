"""The decoder of a source, by its format.

The one rule: what comes out are JSON values, whatever the format, so that filters, mappings, drift and inference know of none.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec

from holdfast.pipeline.formats.avro import AvroDecoder, RegisteredAvro
from holdfast.pipeline.formats.avro_schema import parse_avro
from holdfast.pipeline.formats.connect_schema import without_schema
from holdfast.pipeline.formats.csv_rows import CsvDecoder
from holdfast.pipeline.formats.debezium import Changes, read_changes
from holdfast.pipeline.formats.declared_fields import Declared
from holdfast.pipeline.formats.decoded import BadValueError, Decoded, Payloads, ValueDecoder, decode_each
from holdfast.pipeline.formats.logical_types import base64_text
from holdfast.pipeline.formats.proto_files import compile_proto
from holdfast.pipeline.formats.protobuf import ProtobufDecoder, RegisteredProtobuf
from holdfast.pipeline.formats.registered import RegisteredValues
from holdfast.pipeline.formats.schema_registry import registry_client
from holdfast.pipeline.formats.wire_format import PREFIX_BYTES, schema_id
from holdfast.pipeline.model.definition import DebeziumOptions, KafkaConfig, has_changes
from holdfast.vocabulary.errors import InvalidError

DECODERS_CACHED_MAX: Final = 32
RAW_FIELD: Final = "value"
"""The one field of a raw record."""

_decode_json: Final = msgspec.json.Decoder().decode
_JSON_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadValueError)
_JSON_TITLE: Final = "not JSON"


class JsonDecoder:
    """Plain JSON."""

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a batch."""
        return decode_each(payloads, _decode_json, _JSON_ERRORS, _JSON_TITLE)


class FramedJsonDecoder:
    """JSON behind the id of its JSON Schema. The schema is not needed to read it, and is not asked for."""

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a batch."""
        return decode_each(payloads, self._decode, _JSON_ERRORS, _JSON_TITLE)

    @staticmethod
    def _decode(payload: bytes) -> object:
        schema_id(payload)
        return _decode_json(payload[PREFIX_BYTES:])


class RawDecoder:
    """Any bytes: one field with the value as text."""

    def __init__(self, encoding: str) -> None:
        text = base64_text if encoding == "base64" else partial(str, encoding="utf-8")
        self._decode = lambda payload: {RAW_FIELD: text(payload)}

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a batch."""
        return decode_each(payloads, self._decode, (UnicodeDecodeError,), "not UTF-8")


def value_decoder(config: KafkaConfig) -> ValueDecoder:
    """The decoder of a source's values, shared by the process. `InvalidError`: its schema is wrong. `UnavailableError`."""
    return _decoder(msgspec.structs.replace(config, topic="", brokers=(), group_id="", start=""))


@lru_cache(maxsize=DECODERS_CACHED_MAX)
def _decoder(config: KafkaConfig) -> ValueDecoder:
    registry = config.schema_registry
    match config.format:
        case "avro":
            return RegisteredAvro(registry_client(registry)) if registry.url else _local_avro(config.schema)
        case "protobuf":
            return RegisteredProtobuf(registry_client(registry)) if registry.url else _local_protobuf(config)
        case "csv":
            return CsvDecoder(config.csv)
        case "raw":
            return RawDecoder(config.raw)
    return FramedJsonDecoder() if registry.url else JsonDecoder()


def _local_avro(schema: str) -> AvroDecoder:
    try:
        return AvroDecoder(parse_avro(schema))
    except BadValueError as error:
        raise InvalidError("source.schema", schema[:100], f"an Avro schema: {error}") from None


def _local_protobuf(config: KafkaConfig) -> ProtobufDecoder:
    try:
        return ProtobufDecoder(compile_proto(config.schema), config.message)
    except BadValueError as error:
        allowed = f"a .proto file that defines message {config.message}: {error}"
        raise InvalidError("source.schema", config.schema[:100], allowed) from None


class Envelope:
    """Change events of a source."""

    def __init__(self, options: DebeziumOptions, keys: ValueDecoder) -> None:
        self._options, self._keys = options, keys

    def read(self, decoded: Decoded, payloads: Payloads, keys: Payloads, offsets: Sequence[int]) -> Changes:
        """What decoded events do to rows."""
        return read_changes(decoded, payloads, keys, offsets, options=self._options, key_decoder=self._keys)

    def key_fields(self, keys: Payloads) -> tuple[str, ...]:
        """The fields that keys are made of; none: they are no objects."""
        decoded = self._keys.decode([key for key in keys if key is not None][:1])
        return tuple(key) if decoded.values and isinstance(key := without_schema(decoded.values[0]), dict) else ()


def envelope_of(config: KafkaConfig) -> Envelope | None:
    """None: the records are the rows. Keys have the format of values; beside a schema of the source, they are JSON."""
    if not has_changes(config):
        return None
    plain = (
        config if config.schema_registry.url else msgspec.structs.replace(config, format="json", schema="", message="")
    )
    return Envelope(config.debezium, value_decoder(plain))


def declared_fields(config: KafkaConfig, payloads: Payloads) -> Declared:
    """What the schema of a source's records declares about the fields of its rows; empty: it has none."""
    decoder = value_decoder(config)
    if isinstance(decoder, AvroDecoder | ProtobufDecoder | RegisteredValues):
        return decoder.declared(payloads, events=has_changes(config))
    return {}
