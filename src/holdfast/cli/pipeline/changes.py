"""What applying a file changes, field by field. No I/O."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

OPTIONAL_PARTS: Final = {"filters": {}, "sql": {"sql": ""}, "drift": {}, "query": {}}
"""Parts with a default, and what saves it: a file without one of them has the default."""


def declared_parts(parts: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a file, and the default for each stored one that the file leaves out."""
    gone = {name: default for name, default in OPTIONAL_PARTS.items() if name in stored and name not in parts}
    return {**parts, **gone}


def part_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """One line for each field that is added (+), removed (-) or changed (~)."""
    old, new = dict(_fields(before, "")), dict(_fields(after, ""))
    lines = []
    for name in sorted({*old, *new}):
        if name not in old:
            lines.append(f"+ {name}: {new[name]!r}")
        elif name not in new:
            lines.append(f"- {name}: {old[name]!r}")
        elif old[name] != new[name]:
            lines.append(f"~ {name}: {old[name]!r} → {new[name]!r}")
    return lines


def _fields(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _fields(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) and "column" in each for each in value):
        for each in value:  # columns of a mapping, by their names: one in the middle moves none of the others
            rest = {key: inner for key, inner in each.items() if key != "column"}
            yield f"{name}[{each['column']}]", rest
    elif name != "mapping.version":  # counted by the server
        yield name, value


def changed_secrets(before: str, after: str, lines: list[str]) -> Iterator[str]:
    """Parts whose version changes though no field that is shown does, from two ETags of all parts."""
    old, new = _versions(before), _versions(after)
    for part in new:
        if old.get(part) != new[part] and not any(line[2:].startswith(f"{part}.") for line in lines):
            yield f"~ {part}: a secret"


def _versions(etag: str) -> dict[str, str]:
    pieces = (piece.partition(".") for piece in etag.strip('"').removeprefix("parts").split("-") if piece)
    return {name: version for name, _, version in pieces}
