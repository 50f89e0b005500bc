"""Checks every length in a request against the bytes that follow it, before kio decodes it.

kio allocates as many elements as an array claims, and a process out of memory is killed without an exception: one absurd number
would end the whole server. It also decodes null as an array that may not be null, which handlers do not expect. Elements are
counted: each takes the server far longer than it takes a client to send it.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Any, Final, get_args

from holdfast.kafka.wire import ENTRIES_MAX, INT16, MalformedRequestError, WireReader

Skip = Callable[[WireReader], object]

_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "uuid": 16,
}


def check_lengths(kind: type, body: memoryview, *, entries_max: int = ENTRIES_MAX) -> int:
    """Skip through a request of a kio type; where its last field ends.

    `MalformedRequestError`: a length exceeds the rest, or there are more entries.
    """
    reader = WireReader(body, flexible=kind.__flexible__, entries_max=entries_max)  # type: ignore[attr-defined]
    _entity(kind)(reader)
    return reader.at


def nested_entity(annotation: Any) -> type | None:
    """The entity inside `X`, `X | None`, `tuple[X, ...]` or both."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for inner in get_args(annotation) if (found := nested_entity(inner)) is not None), None)


@cache
def _entity(kind: type) -> Skip:
    """A function that skips a `kind`."""
    steps: list[Skip] = []
    for fixed, run in groupby(dataclasses.fields(kind), _is_fixed):
        fields = list(run)
        steps += [_fixed(sum(map(_size, fields)))] if fixed else map(_field, fields)

    def skip(reader: WireReader) -> None:
        for step in steps:
            step(reader)
        reader.tags()

    return skip


def _is_fixed(field: "dataclasses.Field[Any]") -> bool:
    return "tuple[" not in str(field.type) and field.metadata.get("kafka_type") in _SIZES


def _size(field: "dataclasses.Field[Any]") -> int:
    return _SIZES[field.metadata["kafka_type"]]


def _fixed(size: int) -> Skip:
    return lambda reader: reader.take(size)


def _field(field: "dataclasses.Field[Any]") -> Skip:
    inner = nested_entity(field.type)
    kafka_type = field.metadata.get("kafka_type")
    is_array, nullable = "tuple[" in str(field.type), type(None) in get_args(field.type)
    size = _SIZES.get(kafka_type or "") if inner is None else None
    if size is not None:
        return _fixed_array(size, nullable=nullable) if is_array else _fixed(size)
    one = _TEXTS[kafka_type] if inner is None else _entity(inner)
    if is_array:
        return _array_of(one, nullable=nullable)
    return _nullable(one) if inner is not None and type(None) in get_args(field.type) else one


def _array_of(one: Skip, *, nullable: bool) -> Skip:
    def skip(reader: WireReader) -> None:
        for _ in range(_array_length(reader, nullable=nullable)):
            one(reader)

    return skip


def _fixed_array(size: int, *, nullable: bool) -> Skip:
    return lambda reader: reader.take(size * max(0, _array_length(reader, nullable=nullable)))


def _array_length(reader: WireReader, *, nullable: bool) -> int:
    length = reader.nullable_array()
    if length < 0 and not nullable:
        raise MalformedRequestError("array", None, "non-null")
    return length


def _nullable(one: Skip) -> Skip:
    """An entity that may be null, marked by its first byte."""

    def skip(reader: WireReader) -> None:
        if reader.int8() >= 0:
            one(reader)

    return skip


def _string(reader: WireReader) -> None:
    length = reader.length(INT16)
    reader.check_string(length)
    reader.take(max(0, length))


def _bytes(reader: WireReader) -> None:
    reader.take(max(0, reader.length()))


_TEXTS: Final[dict[Any, Skip]] = {"string": _string, "bytes": _bytes}
