"""JSON of Kafka Connect with its schema in every record: `{"schema": …, "payload": …}`.

The one rule: the schema of a record says what its numbers and bytes mean; without one they are what JSON says. Records of one
schema are converted together, column by column.
"""

import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.pipeline.formats.decoded import BadValueError
from holdfast.pipeline.formats.logical_types import Logical, connect_logical, to_texts

_PARTS: Final = frozenset({"schema", "payload"})
_STATES: Final = ("before", "after")

_Column = tuple[str, str, Logical]
"""State, field and meaning."""


def without_schema(value: Any) -> Any:
    """The payload of a value with a schema, or the value."""
    return value["payload"] if isinstance(value, dict) and value.keys() == _PARTS else value


def converted_rows(values: Sequence[Any]) -> tuple[list[Any], list[tuple[int, str]]]:
    """Events without their schemas, the rows in them converted by those; and the numbers of events that do not fit theirs."""
    events = [without_schema(value) for value in values]
    bad: list[tuple[int, str]] = []
    for schema, numbers in _by_schema(values):
        try:
            columns = _columns(schema)
        except BadValueError as error:
            bad += [(number, str(error)) for number in numbers]
            continue
        if not columns:
            continue
        try:
            _convert(columns, [events[number] for number in numbers])
        except BadValueError:  # of some row: nothing was converted yet
            bad += _convert_each(columns, events, numbers)
    return events, bad


def converted_keys(values: Sequence[Any]) -> tuple[list[Any], list[tuple[int, str]]]:
    """The same of keys: a key is a row by itself, and a delete that has nothing else must mean the same values as the row had."""
    events, bad = converted_rows([_as_event(value) for value in values])
    return [event["after"] for event in events], bad


def _as_event(key: Any) -> dict[str, Any]:
    event = {"after": without_schema(key)}
    if not _has_schema(key):
        return event
    return {"schema": {"fields": [{"field": "after", "fields": key["schema"].get("fields")}]}, "payload": event}


def _has_schema(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == _PARTS and isinstance(value["schema"], dict)


def _by_schema(values: Sequence[Any]) -> list[tuple[Mapping[str, Any], list[int]]]:
    """Runs of records with equal schemas. Comparing is much cheaper than compiling, and most are equal to the one before."""
    groups: list[tuple[Mapping[str, Any], list[int]]] = []
    for number, value in enumerate(values):
        if not _has_schema(value):
            continue
        if not groups or groups[-1][0] != value["schema"]:
            groups.append((value["schema"], []))
        groups[-1][1].append(number)
    return groups


def _columns(schema: Mapping[str, Any]) -> list[_Column]:
    """The fields that are converted. `BadValueError`: it is no schema."""
    states = [each for each in _fields(schema) if each.get("field") in _STATES]
    return [
        (str(state["field"]), str(each.get("field")), logical)
        for state in states
        for each in _fields(state)
        if (logical := connect_logical(each)) is not None
    ]


def _fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields = schema.get("fields") or []
    if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
        raise BadValueError("not of Kafka Connect: the fields of its schema are no list of objects")
    return fields


def _convert(columns: Sequence[_Column], events: Sequence[Any]) -> None:
    """All columns or, with a `BadValueError`, none."""
    converted = []
    for state, name, logical in columns:
        rows = [row for event in events if (row := _row(event, state)) is not None and name in row]
        converted.append((name, rows, to_texts(logical, [_raw(logical, row[name]) for row in rows])))
    for name, rows, texts in converted:
        for row, text in zip(rows, texts, strict=True):
            row[name] = text


def _convert_each(columns: Sequence[_Column], events: Sequence[Any], numbers: Sequence[int]) -> list[tuple[int, str]]:
    bad = []
    for number in numbers:
        try:
            _convert(columns, [events[number]])
        except BadValueError as error:
            bad.append((number, str(error)))
    return bad


def _row(event: Any, state: str) -> dict[str, Any] | None:
    row = event.get(state) if isinstance(event, dict) else None
    return row if isinstance(row, dict) else None


def _raw(logical: Logical, value: Any) -> Any:
    """The value that JSON has as another: bytes are base64 there."""
    if logical.kind != "decimal" or value is None:
        return value
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, TypeError, ValueError):
        raise BadValueError(f"not a decimal: {str(value)[:50]!r} is no base64") from None
