"""What a schema declares about the fields of its records, for inference: a sample does not show every null.

The one rule: only facts that a sample cannot contradict: whether a field may be null, and the digits of a decimal. A type is taken
from the schema where the sample has no value at all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.pipeline.formats.logical_types import avro_logical
from holdfast.pipeline.model.field_paths import Path

DEPTH_MAX: Final = 8
STATES: Final = ("before", "after")
"""Of a row, in a change event."""
PRECISION_MAX: Final = 76

_AVRO_TYPES: Final = {
    "boolean": "Bool",
    "int": "Int32",
    "long": "Int64",
    "float": "Float32",
    "double": "Float64",
    "enum": "LowCardinality(String)",
}
_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True, slots=True)
class DeclaredField:
    """A field of a schema. `type` is ClickHouse's; '': as the values say."""

    nullable: bool
    type: str = ""
    exact: bool = False
    """The type holds whatever the sample shows."""


Declared = Mapping[str, DeclaredField]
"""By path."""


def avro_fields(schema: Any, *, events: bool = False) -> dict[str, DeclaredField]:
    """Of the fields that plain paths lead to; with `events` from the row in a change event."""
    row = _row_of(schema) if events else schema
    return {str(Path(steps)): found for steps, found in _avro(row, (), nullable=False)}


def _row_of(event: Any) -> Any:
    """The record that is before a change and after it: it is defined in one place, and named in the other."""
    fields = event.get("fields", ()) if isinstance(event, dict) else ()
    for each in fields:
        branches = each["type"] if isinstance(each["type"], list) else [each["type"]]
        for branch in branches:
            if each["name"] in STATES and isinstance(branch, dict) and branch.get("type") == "record":
                return branch
    return "null"


def _avro(schema: Any, steps: tuple[str, ...], *, nullable: bool) -> Iterator[tuple[tuple[str, ...], DeclaredField]]:
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) == 1:
            yield from _avro(others[0], steps, nullable=nullable or len(schema) > 1)
        elif steps:
            yield steps, DeclaredField(nullable or "null" in schema)
        return
    definition = schema if isinstance(schema, dict) else {"type": schema}
    if definition.get("type") == "record" and len(steps) < DEPTH_MAX:
        for each in definition.get("fields", ()):
            yield from _avro(each["type"], (*steps, each["name"]), nullable=nullable)
    elif steps:
        yield steps, _avro_field(definition, nullable)


def _avro_field(definition: dict[str, Any], nullable: bool) -> DeclaredField:
    logical, precision = avro_logical(definition), int(definition.get("precision", 0))
    if logical is None:
        return DeclaredField(nullable, _AVRO_TYPES.get(str(definition.get("type")), ""))
    if logical.kind == "decimal" and 0 <= logical.scale <= precision <= PRECISION_MAX and precision:
        return DeclaredField(nullable, f"Decimal({precision}, {logical.scale})", exact=True)
    if logical.kind in ("timestamp", "local-timestamp"):
        return DeclaredField(nullable, f"DateTime64({_DIGITS[logical.unit]})")
    return DeclaredField(nullable, {"date": "Date", "uuid": "UUID"}.get(logical.kind, ""))


def proto_fields(descriptor: Any, *, events: bool = False) -> dict[str, DeclaredField]:
    """Of a message: what has presence may be absent."""
    if events:
        states = [each.message_type for each in descriptor.fields if each.name in STATES]
        if not states or states[0] is None:
            return {}
        descriptor = states[0]
    return {str(Path(steps)): found for steps, found in _proto(descriptor, (), nullable=False)}


def _proto(
    descriptor: Any, steps: tuple[str, ...], *, nullable: bool
) -> Iterator[tuple[tuple[str, ...], DeclaredField]]:
    for field in descriptor.fields:
        path, absent = (*steps, field.name), nullable or bool(field.has_presence)
        inner = field.message_type
        own = inner is not None and not field.is_repeated and not inner.full_name.startswith("google.")
        if own and len(path) < DEPTH_MAX:
            yield from _proto(inner, path, nullable=absent)
        elif not field.is_repeated:
            yield path, DeclaredField(absent)
