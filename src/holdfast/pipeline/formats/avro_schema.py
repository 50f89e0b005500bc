"""Avro schemas, prepared for reading JSON values: logical types and bytes are converted column by column.

The one rule: the value of a field that a plain path reaches (through records and nullable unions) is read as it is stored, and a
whole column of them is converted afterwards. Elsewhere (in arrays, maps, other unions, types that are used twice) values are
converted one by one while they are read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from holdfast.pipeline.formats.avro_sizes import has_empty_items
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
    given: Any = None
    """The schema's JSON."""
    recursive: bool = False
    """Whether a type contains itself, so that a value may be nested to any depth."""
    empty_items: bool = False
    """Whether an array may have items that take no bytes, so that a value may have any number of them."""

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
        elsewhere = {name for each in others for name in _used_elsewhere(each, plain=False)} | set(
            _used_elsewhere(schema)
        )
        named: dict[str, Any] = {}
        for other in others:
            fastavro.parse_schema(_inline(other), named_schemas=named)
        columns: list[_Column] = []
        prepared = _Preparation(frozenset(elsewhere), columns).prepared(schema)
        parsed = fastavro.parse_schema(prepared, named_schemas=named)
        return AvroSchema(
            parsed,
            columns,
            schema,
            recursive=any(map(_contains_itself, (schema, *others))),
            empty_items=has_empty_items([schema, *others]),
        )
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
    """A walk over a schema along plain paths, which notes the columns to convert. `elsewhere` are types that other paths reach."""

    elsewhere: frozenset[str]
    columns: list[_Column]
    _known: dict[str, list[_Column]] = field(default_factory=dict)
    """By record type, with paths from it on: it may be used again."""

    def prepared(self, schema: Any, path: tuple[str, ...] = (), namespace: str = "") -> Any:
        if not (isinstance(schema, dict) and schema.get("type") == "record"):
            return _inline(schema)
        name = _full_name(schema["name"], schema.get("namespace", namespace))
        if name in self.elsewhere:
            return _inline(schema)
        first, inner = len(self.columns), name.rpartition(".")[0]
        fields = [{**each, "type": self._field(each["type"], path, each["name"], inner)} for each in schema["fields"]]
        self._known[name] = [_Column(each.path[len(path) :], each.name, each.logical) for each in self.columns[first:]]
        return {**schema, "fields": fields}

    def _field(self, kind: Any, path: tuple[str, ...], name: str, namespace: str) -> Any:
        if isinstance(kind, list):
            plain = _is_nullable(kind)
            return [
                self._field(each, path, name, namespace) if plain and each != "null" else _inline(each) for each in kind
            ]
        if isinstance(kind, str) and (known := self._known.get(_full_name(kind, namespace))) is not None:
            self.columns += [_Column((*path, name, *each.path), each.name, each.logical) for each in known]
            return kind
        definition = kind if isinstance(kind, dict) else {"type": kind}
        if definition.get("type") == "record":
            return self.prepared(definition, (*path, name), namespace)
        logical = avro_logical(definition)
        if logical is None or "name" in definition:  # a named type may be used elsewhere
            return _inline(kind)
        self.columns.append(_Column(path, name, logical))
        return _without_meaning(definition)


def _is_nullable(union: list[Any]) -> bool:
    return len(union) == 2 and "null" in union


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


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


def _used_elsewhere(
    schema: Any, namespace: str = "", inside: tuple[str, ...] = (), *, plain: bool = True
) -> Iterator[str]:
    """Full names of types that are used on a path that is not plain, or within themselves."""
    if isinstance(schema, str):
        if schema not in _PRIMITIVES and (not plain or _full_name(schema, namespace) in inside):
            yield _full_name(schema, namespace)
    elif isinstance(schema, list):
        for each in schema:
            yield from _used_elsewhere(each, namespace, inside, plain=plain and _is_nullable(schema))
    elif schema.get("type") in ("record", "error"):
        name = _full_name(schema["name"], schema.get("namespace", namespace))
        if not plain or schema["type"] == "error":
            yield name
        for each in schema["fields"]:
            yield from _used_elsewhere(each["type"], name.rpartition(".")[0], (*inside, name), plain=plain)
    elif schema.get("type") in ("array", "map"):
        yield from _used_elsewhere(schema.get("items", schema.get("values")), namespace, inside, plain=False)
    elif isinstance(schema.get("type"), dict | list) or schema.get("type") not in (*_PRIMITIVES, *_NAMED):
        yield from _used_elsewhere(schema["type"], namespace, inside, plain=False)


def _contains_itself(schema: Any, inside: tuple[str, ...] = ()) -> bool:
    """Whether a type is used within its own definition. Names count without their namespaces: rather too often than not."""
    if isinstance(schema, str):
        return schema.rpartition(".")[2] in inside
    if isinstance(schema, list):
        return any(_contains_itself(each, inside) for each in schema)
    match schema["type"]:
        case "record" | "error":
            within = (*inside, schema["name"].rpartition(".")[2])
            return any(_contains_itself(each["type"], within) for each in schema["fields"])
        case "array":
            return _contains_itself(schema["items"], inside)
        case "map":
            return _contains_itself(schema["values"], inside)
        case "enum" | "fixed":
            return False
        case kind:
            return _contains_itself(kind, inside)
