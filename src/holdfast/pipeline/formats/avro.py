"""Avro values: by the schema of their id from a registry, or all by one schema. Needs `fastavro` (extra `formats`).

The one rule: a record is read by the schema it was written with, never by another one's. What a newer schema adds is in the value,
where the drift policy finds it.
"""

import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, Final

from holdfast.pipeline.formats.avro_schema import AvroSchema, parse_avro
from holdfast.pipeline.formats.declared_fields import Declared, avro_fields
from holdfast.pipeline.formats.decoded import BadValueError, Decoded, Payloads, decode_each
from holdfast.pipeline.formats.registered import RegisteredValues
from holdfast.pipeline.formats.schema_registry import RegisteredSchema, SchemaRegistryClient

_ERRORS: Final = (
    BadValueError, EOFError, ValueError, IndexError, KeyError, OverflowError, RecursionError, TypeError, struct.error,
)  # fmt: skip
_TITLE: Final = "not Avro of its schema"
NESTED_MAX: Final = 100
"""As deep as a Protobuf value may be. The reader in C has no limit, and deep values end the process."""
EMPTY_ITEMS_MAX: Final = 65_536
"""Items of arrays that a value may have beyond its number of bytes: a null takes none, so ten bytes can announce 2⁶² of them."""


class AvroDecoder:
    """Values of one schema, without anything before them."""

    def __init__(self, schema: AvroSchema, *, skipped: int = 0) -> None:
        self._schema, self._skipped, self._reader = schema, skipped, _reader(schema)

    def decode(self, payloads: Payloads) -> Decoded:
        """Read all, then convert column by column; if one is bad, record by record."""
        try:
            values = [self._read(payload) for payload in payloads if payload is not None]
            if len(values) == len(payloads):
                self._schema.convert(values)
                return Decoded(values)
        except _ERRORS:
            pass
        return decode_each(payloads, self._decode, _ERRORS, _TITLE)

    def declared(self, _payloads: Payloads, *, events: bool) -> Declared:
        """What the schema declares."""
        return avro_fields(self._schema.given, events=events)

    def _decode(self, payload: bytes) -> Any:
        value = self._read(payload)
        self._schema.convert([value])
        return value

    def _read(self, payload: bytes) -> Any:
        body = payload[self._skipped :] if self._skipped else payload
        stream = BytesIO(body)
        value = self._reader(stream, self._schema.parsed, None)
        if (left := len(body) - stream.tell()) != 0:
            raise BadValueError(f"{_TITLE}: {left} bytes are left behind the value")
        if self._schema.recursive and _is_deep(value):
            raise BadValueError(f"{_TITLE}: nested more than {NESTED_MAX} deep")
        return value


def _reader(schema: AvroSchema) -> Any:
    """The library's reader; where a few bytes can be any depth or any number of items, the one in Python, with an end to both."""
    if schema.recursive or schema.empty_items:
        return _bounded_reader()
    from fastavro import schemaless_reader

    return schemaless_reader


def _bounded_reader() -> Any:
    """The library's reader in Python, which counts the items of arrays."""
    from fastavro import parse_schema
    from fastavro._read_py import read_data
    from fastavro.io.binary_decoder import BinaryDecoder

    class BoundedDecoder(BinaryDecoder):
        def __init__(self, stream: BytesIO) -> None:
            super().__init__(stream)  # type: ignore[no-untyped-call]
            self._items_left = stream.getbuffer().nbytes + EMPTY_ITEMS_MAX

        def iter_array(self) -> Iterator[None]:
            for _ in super().iter_array():  # type: ignore[no-untyped-call]
                self._items_left -= 1
                if self._items_left < 0:
                    raise BadValueError(f"{_TITLE}: more than {EMPTY_ITEMS_MAX} items without bytes")
                yield

    def read(stream: BytesIO, schema: Any, _reader_schema: None) -> Any:
        named: dict[str, dict[str, Any]] = {"writer": {}, "reader": {}}
        decoder, parsed = BoundedDecoder(stream), parse_schema(schema, named["writer"])
        return read_data(decoder, parsed, named, None, {})  # type: ignore[no-untyped-call]

    return read


def _is_deep(value: Any) -> bool:
    """Whether objects and arrays are nested more than `NESTED_MAX` deep."""
    level = [value]
    for _ in range(NESTED_MAX + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


class RegisteredAvro(RegisteredValues):
    """Values that begin with the id of their schema."""

    type = "AVRO"

    def __init__(self, registry: SchemaRegistryClient) -> None:
        super().__init__(registry)

    def decode_group(self, schema: RegisteredSchema, number: int, payloads: Sequence[bytes]) -> Decoded:
        """Of one schema."""
        compiled: AvroSchema = self.compiled(number, schema)
        return AvroDecoder(compiled, skipped=5).decode(payloads)

    def declared_by(self, schema: RegisteredSchema, number: int, payload: bytes, *, events: bool) -> Declared:
        """What a value's schema declares."""
        compiled: AvroSchema = self.compiled(number, schema)
        return avro_fields(compiled.given, events=events)

    def compile(self, schema: RegisteredSchema) -> AvroSchema:
        """Prepare a schema."""
        return parse_avro(schema.text, schema.references)
