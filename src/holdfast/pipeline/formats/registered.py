"""Values that begin with the id of their schema, grouped by it: a schema is looked up once per batch, compiled once per process.

The one rule: an id that the registry does not know, a schema of another type and one that cannot be parsed are reasons to reject
the records that have it. A registry that does not answer is not: the batch is retried.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any, ClassVar

from holdfast.pipeline.formats.declared_fields import Declared
from holdfast.pipeline.formats.decoded import NO_VALUE, BadValueError, Decoded, Payloads
from holdfast.pipeline.formats.schema_registry import SCHEMAS_CACHED_MAX, RegisteredSchema, SchemaRegistryClient
from holdfast.pipeline.formats.wire_format import PREFIX_BYTES, schema_id


class RegisteredValues(ABC):
    """Decoder of one type of schema. Safe for threads."""

    type: ClassVar[str]

    def __init__(self, registry: SchemaRegistryClient) -> None:
        self._registry = registry
        self._compiled: OrderedDict[int, Any] = OrderedDict()
        self._lock = Lock()

    @abstractmethod
    def decode_group(self, schema: RegisteredSchema, number: int, payloads: Sequence[bytes]) -> Decoded:
        """Decode values of one schema, prefix included."""

    @abstractmethod
    def declared_by(self, schema: RegisteredSchema, number: int, payload: bytes, *, events: bool) -> Declared:
        """What the schema of a value declares about its fields. `BadValueError`."""

    @abstractmethod
    def compile(self, schema: RegisteredSchema) -> Any:
        """What is kept of a schema. `BadValueError`: it cannot be used."""

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a batch."""
        groups: dict[bytes | None, list[int]] = {}
        for row, payload in enumerate(payloads):
            groups.setdefault(None if payload is None else payload[:PREFIX_BYTES], []).append(row)
        found = Decoded([None] * len(payloads))
        for prefix, rows in groups.items():
            self._add_group(prefix, rows, payloads, found)
        found.bad.sort()
        return found

    def declared(self, payloads: Payloads, *, events: bool) -> Declared:
        """What the schema of the last value that has one declares."""
        for payload in reversed(payloads):
            if payload is not None:
                try:
                    number = schema_id(payload[:PREFIX_BYTES])
                    return self.declared_by(self._schema(number), number, payload, events=events)
                except BadValueError:
                    continue
        return {}

    def _add_group(self, prefix: bytes | None, rows: list[int], payloads: Payloads, found: Decoded) -> None:
        if prefix is None:
            found.bad += [(row, NO_VALUE) for row in rows]
            return
        try:
            number = schema_id(prefix)
            group = self.decode_group(self._schema(number), number, [payloads[row] or b"" for row in rows])
        except BadValueError as error:
            found.bad += [(row, str(error)) for row in rows]
            return
        for row, value in zip(rows, group.values, strict=True):
            found.values[row] = value
        found.bad += [(rows[at], reason) for at, reason in group.bad]

    def _schema(self, number: int) -> RegisteredSchema:
        schema = self._registry.schema(number)
        if schema is None:
            raise BadValueError(f"unknown schema id {number}: the registry has no such schema")
        if schema.type != self.type:
            raise BadValueError(f"schema {number} is {schema.type}, not {self.type}")
        return schema

    def compiled(self, number: int, schema: RegisteredSchema) -> Any:
        """The schema as `compile` made it."""
        with self._lock:
            if (known := self._compiled.get(number)) is not None:
                self._compiled.move_to_end(number)
                return known
        made = self.compile(schema)
        with self._lock:
            self._compiled[number] = made
            if len(self._compiled) > SCHEMAS_CACHED_MAX:
                self._compiled.popitem(last=False)
        return made
