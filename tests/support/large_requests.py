"""Requests with many elements in one of their arrays, for any API: its arrays are those of kio's schema."""

import dataclasses
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.serial import entity_writer
from tests.support.kafka_wire import _zero, request_schema

from holdfast.gateways.kafka.api_table import APIS
from holdfast.kafka.length_checks import nested_entity

Path = tuple[str, ...]  # names of fields, from the request inwards

_NAMES = {"name", "topic", "group_id", "resource_name", "key"}
_NUMBERS = {"partition_index", "partition", "index"}
_GIVEN = {"group_id": "g", "session_epoch": -1, "max_wait": timedelta(0)}


def arrays(key: int) -> Iterator[Path]:
    """Every array of a request in its newest version."""
    yield from _arrays(request_schema(key, APIS[key].versions[1]), ())


def _arrays(kind: type, prefix: Path) -> Iterator[Path]:
    for field in dataclasses.fields(kind):
        if _is_array(field):
            yield (*prefix, field.name)
            if (inner := nested_entity(field.type)) is not None:
                yield from _arrays(inner, (*prefix, field.name))


def large_request(key: int, array: Path, count: int) -> bytes:
    """A request with `count` different elements in this array, and one in each around it, with its length."""
    version = APIS[key].versions[1]
    kind = request_schema(key, version)
    request = _with_array(kind, array, count)
    given = {each.name: _GIVEN[each.name] for each in dataclasses.fields(kind) if each.name in _GIVEN}
    body = io.BytesIO()
    entity_writer(kind)(body, dataclasses.replace(request, **given))
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\0\5tests"
    frame = head + (b"\0" if APIS[key].is_flexible(version) else b"") + body.getvalue()
    return len(frame).to_bytes(4, "big") + frame


def _is_array(field: "dataclasses.Field[Any]") -> bool:
    return "tuple[" in str(field.type)


def _with_array(kind: Any, array: Path, count: int) -> Any:
    field = next(each for each in dataclasses.fields(kind) if each.name == array[0])
    if len(array) == 1:
        return _entity(kind, 0, {field.name: tuple(_value(field, number) for number in range(count))})
    return _entity(kind, 0, {field.name: (_with_array(nested_entity(field.type), array[1:], count),)})


def _entity(kind: Any, number: int, given: dict[str, Any]) -> Any:
    return kind(**{each.name: given.get(each.name, _field(each, number)) for each in dataclasses.fields(kind)})


def _field(field: "dataclasses.Field[Any]", number: int) -> Any:
    if _is_array(field):
        return ()
    if field.name in _NAMES | _NUMBERS:
        return _value(field, number)
    return _zero(field) if nested_entity(field.type) is None else _value(field, number)


def _value(field: "dataclasses.Field[Any]", number: int) -> Any:
    """One of many."""
    inner = nested_entity(field.type)
    if inner is not None:
        return _entity(inner, number, {})
    kind = field.metadata.get("kafka_type", "")
    made = {
        "string": f"t{number}",
        "uuid": UUID(int=number + 1),
        "int8": 1,
        "int16": 1,
        "int32": number,
        "int64": number,
    }
    return made[kind]
