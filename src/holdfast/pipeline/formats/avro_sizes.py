"""Which Avro types may take no bytes: null, fixed of size 0, and records of nothing else. A count of such items is unbounded.

Names count without their namespaces, and one that is not defined here as empty: rather too often than not.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

_WITH_BYTES: Final = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", "enum"})


def has_empty_items(schemas: Sequence[Any]) -> bool:
    """Whether an array in these schemas may have items without bytes."""
    found = [each for schema in schemas for each in _definitions(schema)]
    named: dict[str, list[Any]] = {}
    for each in found:
        if "name" in each:
            named.setdefault(_short(each["name"]), []).append(each)
    return any(_is_empty(each["items"], named) for each in found if each["type"] == "array")


def _definitions(schema: Any) -> Iterator[dict[str, Any]]:
    """Every definition of a type within a schema."""
    if isinstance(schema, list):
        for each in schema:
            yield from _definitions(each)
    elif isinstance(schema, dict):
        yield schema
        for inner in (schema["type"], schema.get("items"), schema.get("values")):
            yield from _definitions(inner)
        for each in schema.get("fields", ()):
            yield from _definitions(each["type"])


def _is_empty(schema: Any, named: dict[str, list[Any]], inside: tuple[str, ...] = ()) -> bool:
    """Whether values of a type may take no bytes. A union's index takes one."""
    if isinstance(schema, list) or (isinstance(schema, str) and schema in _WITH_BYTES):
        return False
    if isinstance(schema, str):
        known = named.get(_short(schema), []) if _short(schema) not in inside else []
        return not known or any(_is_empty(each, named, inside) for each in known)
    match schema["type"]:
        case "record" | "error":
            within = (*inside, _short(schema["name"]))
            return all(_is_empty(each["type"], named, within) for each in schema["fields"])
        case "fixed":
            return int(schema["size"]) == 0
        case kind:
            return _is_empty(kind, named, inside)


def _short(name: str) -> str:
    return name.rpartition(".")[2]
