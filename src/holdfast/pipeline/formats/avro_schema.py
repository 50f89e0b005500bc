"""Avro schemas, prepared for reading JSON values: logical types and bytes are converted column by column.

The one rule: the value of a field that a plain path reaches (through records and nullable unions) is read as it is stored, and a
whole column of them is converted afterwards. Elsewhere (in arrays, maps, other unions, types that are used twice) values are
converted one by one while they are read.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from holdfast.pipeline.formats.decoded import BadValueError
from holdfast.pipeline.formats.logical_types import EVERY, Logical, avro_logical, to_texts
from holdfast.vocabulary.installation import NotInstalledError

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_MEANING: Final = ("logicalType", "scale", "precision", "connect.name", "connect.parameters", "connect.version")


@dataclass(frozen=True, slots=True)
class _Column:
    """A field to convert: the fields that lead to its record, its name, and what it means."""

    path: tuple[str, ...]
    name: str
    logical: Logical


@dataclass(slots=True)
class AvroSchema:
    """A parsed schema, and the columns that are converted after records have been read."""

    parsed: Any
    columns: list[_Column] = field(default_factory=list)

    def convert(self, values: Sequence[Any]) -> None:
        """Convert the columns of these records in place. `BadValueError`: some value is out of range."""
        known: dict[tuple[str, ...], list[dict[str, Any]]] = {(): list(values)}
        for column in self.columns:
            records = _records_at(column.path, known)
            texts = to_texts(column.logical, [record[column.name] for record in records])
            for record, text in zip(records, texts, strict=True):
                record[column.name] = text


def _records_at(path: tuple[str, ...], known: dict[tuple[str, ...], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    if path not in known:
        outer = _records_at(path[:-1], known)
        known[path] = [inner for record in outer if (inner := record[path[-1]]) is not None]
    return known[path]


def parse_avro(text: str, references: Sequence[tuple[str, str]] = ()) -> AvroSchema:
    """Prepare a schema. `BadValueError`: it is none."""
    fastavro = _fastavro()
    try:
        schema, others = _json(text), [_json(other) for _, other in references]
        used = Counter(name for each in (schema, *others) for name in _names_used(each))
        named: dict[str, Any] = {}
        for other in others:
            fastavro.parse_schema(_inline(other), named_schemas=named)
        columns: list[_Column] = []
        prepared = _Preparation(used, columns).prepared(schema)
        return AvroSchema(fastavro.parse_schema(prepared, named_schemas=named), columns)
    except (
        fastavro.schema.SchemaParseException,
        msgspec.DecodeError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        raise BadValueError(f"the Avro schema cannot be parsed: {type(error).__name__}: {error}") from None


def _json(text: str) -> Any:
    """A schema's JSON; the name of a primitive type may stand without quotes."""
    return text.strip() if text.strip() in _PRIMITIVES else msgspec.json.decode(text)


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.read
        import fastavro.schema
    except ImportError:
        raise NotInstalledError("format avro", "fastavro", "formats") from None
    _register_readers(fastavro.read.LOGICAL_READERS)
    return fastavro


def _register_readers(readers: dict[str, Any]) -> None:
    """Readers of logical types under names of our own, so that other users of the library see no difference."""
    for logical in EVERY:
        for kind in ("bytes", "fixed", "int", "long"):
            readers[f"{kind}-{logical.name}"] = _reader(logical)


def _reader(logical: Logical) -> Any:
    def read(value: Any, writer_schema: Any = None, _reader_schema: Any = None) -> Any:
        scale = int((writer_schema or {}).get("scale", 0)) if logical.kind == "decimal" else 0
        return to_texts(Logical(logical.kind, logical.unit, scale), [value])[0]

    return read


@dataclass(slots=True)
class _Preparation:
    """A walk over a schema along plain paths, which notes the columns to convert."""

    used: Counter[str]
    columns: list[_Column]

    def prepared(self, schema: Any, path: tuple[str, ...] = ()) -> Any:
        if not (isinstance(schema, dict) and schema.get("type") == "record" and not self._is_used(schema)):
            return _inline(schema)
        fields = [{**each, "type": self._field(each["type"], path, each["name"])} for each in schema["fields"]]
        return {**schema, "fields": fields}

    def _field(self, kind: Any, path: tuple[str, ...], name: str) -> Any:
        if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
            return [each if each == "null" else self._field(each, path, name) for each in kind]
        if isinstance(kind, list):
            return _inline(kind)
        definition = kind if isinstance(kind, dict) else {"type": kind}
        if definition.get("type") == "record":
            return self.prepared(definition, (*path, name))
        logical = avro_logical(definition)
        if logical is None or self._is_used(definition):
            return _inline(kind)
        self.columns.append(_Column(path, name, logical))
        return _without_meaning(definition)

    def _is_used(self, schema: dict[str, Any]) -> bool:
        """Whether a named type is referred to elsewhere, where no column would be converted."""
        return "name" in schema and self.used[str(schema["name"]).rpartition(".")[2]] > 0


def _without_meaning(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in _MEANING}


def _inline(schema: Any) -> Any:
    """The schema with our own logical types, whose values are converted as they are read."""
    if isinstance(schema, list):
        return [_inline(each) for each in schema]
    if isinstance(schema, str):
        return {"type": "bytes", "logicalType": _base64_name()} if schema == "bytes" else schema
    kind = schema.get("type")
    if kind in ("record", "error"):
        return {**schema, "fields": [{**each, "type": _inline(each["type"])} for each in schema["fields"]]}
    if kind == "array":
        return {**schema, "items": _inline(schema["items"])}
    if kind == "map":
        return {**schema, "values": _inline(schema["values"])}
    if isinstance(kind, dict | list):
        return _inline(kind)
    logical = avro_logical(schema)
    plain = _without_meaning(schema)
    return plain if logical is None else {**plain, "logicalType": logical.name, "scale": logical.scale}


def _base64_name() -> str:
    return Logical("base64").name


def _names_used(schema: Any) -> Iterator[str]:
    """Names of types that are referred to, without their namespaces."""
    if isinstance(schema, str):
        if schema not in _PRIMITIVES and schema not in _NAMED:
            yield schema.rpartition(".")[2]
    elif isinstance(schema, list):
        for each in schema:
            yield from _names_used(each)
    elif isinstance(schema, dict):
        for each in schema.get("fields", ()):
            yield from _names_used(each["type"])
        for key in ("type", "items", "values"):
            if key in schema and schema[key] not in ("array", "map"):
                yield from _names_used(schema[key])
