"""Values that are not bytes, as JSON text. docs/spark.md has the table of types.

The one rule: a type without a JSON form is refused before the first row; no value is written as one that reads back differently.
"""

import base64
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import types as t

from holdfast.vocabulary.errors import InvalidError

Convert = Callable[[Any], Any]

_ALLOWED: Final = (
    "string, binary, boolean, a number, decimal, date, timestamp, day-time interval, or a struct, array or map of these"
)
_encoder: Final = msgspec.json.Encoder(decimal_format="number")


def as_bytes(column: pa.Array, name: str) -> pa.Array:
    """The column as binaries: text and binaries as they are, everything else as JSON. Nulls stay null."""
    kind = column.type
    if t.is_binary(kind) or t.is_large_binary(kind):
        return column
    if t.is_string(kind) or t.is_large_string(kind):
        return column.cast(pa.binary() if t.is_string(kind) else pa.large_binary())
    return pa.array(_to_json(column, name), pa.binary())


def check_type(kind: pa.DataType, name: str) -> None:
    """Refuse a type that has no JSON form."""
    _converter(kind, name)


def _to_json(column: pa.Array, name: str) -> list[bytes | None]:
    convert = _converter(column.type, name)
    encode = _encoder.encode
    values = column.to_pylist()
    if convert is None:
        return [None if value is None else encode(value) for value in values]
    return [None if value is None else encode(convert(value)) for value in values]


def _converter(kind: pa.DataType, name: str) -> Convert | None:
    """Converts a Python value to one that JSON has; None: no conversion is needed."""
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_string(kind) or t.is_large_string(kind) or t.is_null(kind):
        return None
    if t.is_decimal(kind) or t.is_date(kind) or t.is_timestamp(kind) or t.is_duration(kind):
        return None
    if t.is_floating(kind):
        return _finite
    if t.is_binary(kind) or t.is_large_binary(kind):
        return _base64
    if t.is_struct(kind):
        return _struct(kind, name)
    if t.is_map(kind):
        return _map(kind, name)
    if t.is_list(kind) or t.is_large_list(kind):
        return _list(kind, name)
    raise InvalidError(f"type of column {name}", str(kind), _ALLOWED)


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _struct(kind: pa.DataType, name: str) -> Convert | None:
    fields = [(field.name, _converter(field.type, f"{name}.{field.name}")) for field in kind]
    if len({field for field, _ in fields}) < len(fields):
        raise InvalidError(f"fields of column {name}", [field for field, _ in fields], "of different names")
    changed = [(field, convert) for field, convert in fields if convert is not None]
    if not changed:
        return None

    def converted(value: dict[str, Any]) -> dict[str, Any]:
        for field, convert in changed:
            if value[field] is not None:
                value[field] = convert(value[field])
        return value

    return converted


def _list(kind: pa.DataType, name: str) -> Convert | None:
    convert = _converter(kind.value_type, f"{name}[]")
    if convert is None:
        return None
    return lambda values: [None if value is None else convert(value) for value in values]


def _map(kind: pa.DataType, name: str) -> Convert:
    keys, items = _key_converter(kind.key_type, name), _converter(kind.item_type, f"{name}{{}}")

    def converted(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        return {keys(key): value if value is None or items is None else items(value) for key, value in pairs}

    return converted


def _key_converter(kind: pa.DataType, name: str) -> Convert:
    """A key of a JSON object is text: the JSON form of the key, without quotes."""
    if t.is_string(kind) or t.is_large_string(kind):
        return str
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_date(kind) or t.is_timestamp(kind) or t.is_decimal(kind):
        return lambda key: _encoder.encode(key).decode().strip('"')
    raise InvalidError(
        f"type of the keys of column {name}", str(kind), "string, integer, boolean, decimal, date or timestamp"
    )
