"""Protobuf values: by the schema of their id from a registry and the message its indexes name, or all by one message.

The one rule: as for Avro, a record is read by the definition it was written with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.pipeline.formats.declared_fields import Declared, proto_fields
from holdfast.pipeline.formats.decoded import BadValueError, Decode, Decoded, Payloads, decode_each
from holdfast.pipeline.formats.proto_files import ProtoFile, compile_proto
from holdfast.pipeline.formats.proto_values import message_converter
from holdfast.pipeline.formats.registered import RegisteredValues
from holdfast.pipeline.formats.schema_registry import RegisteredSchema
from holdfast.pipeline.formats.wire_format import PREFIX_BYTES, message_indexes

_TITLE: Final = "not Protobuf of its schema"


class ProtobufDecoder:
    """Values of one message, without anything before them."""

    def __init__(self, file: ProtoFile, message: str) -> None:
        self._descriptor = file.message_named(message)
        self._decode = _message_decoder(self._descriptor)

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a batch."""
        return decode_each(payloads, self._decode, _errors(), _TITLE)

    def declared(self, _payloads: Payloads, *, events: bool) -> Declared:
        """What the message declares."""
        return proto_fields(self._descriptor, events=events)


@dataclass(slots=True)
class _CompiledSchema:
    file: ProtoFile
    decoders: dict[tuple[int, ...], Decode] = field(default_factory=dict)
    """By message indexes."""

    def decoder(self, indexes: tuple[int, ...]) -> Decode:
        if indexes not in self.decoders:
            self.decoders[indexes] = _message_decoder(self.file.message_at(indexes))
        return self.decoders[indexes]


class RegisteredProtobuf(RegisteredValues):
    """Values that begin with the id of their schema and the indexes of their message."""

    type = "PROTOBUF"

    def decode_group(self, schema: RegisteredSchema, number: int, payloads: Sequence[bytes]) -> Decoded:
        """Of one schema."""
        compiled: _CompiledSchema = self.compiled(number, schema)
        first = (
            compiled.decoder((0,))
            if all(payload[PREFIX_BYTES : PREFIX_BYTES + 1] == b"\0" for payload in payloads)
            else None
        )

        def decode(payload: bytes) -> Any:
            if first is not None:
                return first(payload[PREFIX_BYTES + 1 :])
            indexes, begin = message_indexes(payload)
            return compiled.decoder(indexes)(payload[begin:])

        return decode_each(payloads, decode, _errors(), _TITLE)

    def declared_by(self, schema: RegisteredSchema, number: int, payload: bytes, *, events: bool) -> Declared:
        """What a value's message declares."""
        compiled: _CompiledSchema = self.compiled(number, schema)
        return proto_fields(compiled.file.message_at(message_indexes(payload)[0]), events=events)

    def compile(self, schema: RegisteredSchema) -> _CompiledSchema:
        """Compile a schema."""
        return _CompiledSchema(compile_proto(schema.text, schema.references))


def _errors() -> tuple[type[Exception], ...]:
    from google.protobuf.message import DecodeError

    return (BadValueError, DecodeError, ValueError, RecursionError)


def _message_decoder(descriptor: Any) -> Decode:
    from google.protobuf import message_factory

    parse, convert = message_factory.GetMessageClass(descriptor).FromString, message_converter(descriptor)
    return lambda payload: convert(parse(payload))
