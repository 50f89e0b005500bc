"""Protobuf messages as JSON values, by functions that are composed once per message type.

The one rule: fields have the names of their definition. A field without presence has its default where it is not set; one with
presence (optional, in a oneof, a message) is absent. Well-known types are what they stand for: times and decimals as text, wrappers
as their value; bytes are base64; enums are names.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from holdfast.pipeline.formats.decoded import BadValueError
from holdfast.pipeline.formats.logical_types import base64_text, decimal_text

ToValue = Callable[[Any], Any]

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TEXTS: Final = frozenset(f"google.protobuf.{kind}" for kind in ("Duration", "FieldMask"))
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1)
_YEARS_S: Final = (-62_135_596_800, 253_402_300_799)  # 0001-01-01 to 9999-12-31
_JSON: Final = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue"))
_DECIMAL: Final = "confluent.type.Decimal"
_DATE: Final = "google.type.Date"


def message_converter(descriptor: Any) -> ToValue:
    """The function that makes a JSON object of a message of this type."""
    return _Converters().of_message(descriptor)


class _Converters:
    """By message type, so that recursive types end."""

    def __init__(self) -> None:
        self._known: dict[str, ToValue] = {}

    def of_message(self, descriptor: Any) -> ToValue:
        name = descriptor.full_name
        if name == _TIMESTAMP:
            return timestamp_text
        if name in _TEXTS:
            return lambda message: message.ToJsonString()
        if name in _WRAPPERS:
            return base64_of_value if name.endswith("BytesValue") else attrgetter("value")
        if name in _JSON:
            return _json_of
        if name == _DECIMAL:
            return lambda message: decimal_text(message.value, message.scale)
        if name == _DATE:
            return _date_text
        if name not in self._known:
            # A message that contains itself finds this function, and calls it when the other is there.
            self._known[name] = lambda message: self._known[name](message)
            self._known[name] = self._composed(descriptor)
        return self._known[name]

    def _composed(self, descriptor: Any) -> ToValue:
        plain = [field.name for field in descriptor.fields if _is_plain(field)]
        others = [(field.name, self._of_field(field)) for field in descriptor.fields if not _is_plain(field)]
        many = attrgetter(*plain) if len(plain) > 1 else None

        def convert(message: Any) -> dict[str, Any]:
            if many is not None:
                value = dict(zip(plain, many(message), strict=True))
            else:
                value = {name: getattr(message, name) for name in plain}
            for name, read in others:
                if (found := read(message)) is not None:
                    value[name] = found
            return value

        return convert

    def _of_field(self, field: Any) -> ToValue:
        name = field.name
        if _is_map(field):
            return _map_reader(name, self._of_element(field.message_type.fields_by_name["value"]))
        element = self._of_element(field)
        if field.is_repeated:
            if element is None:
                return lambda message: list(getattr(message, name))
            return lambda message: [element(each) for each in getattr(message, name)]
        if not field.has_presence:
            return (
                (lambda message: getattr(message, name))
                if element is None
                else (lambda message: element(getattr(message, name)))
            )

        def present(message: Any) -> Any:
            if not message.HasField(name):
                return None
            found = getattr(message, name)
            return found if element is None else element(found)

        return present

    def _of_element(self, field: Any) -> ToValue | None:
        """The conversion of one value of a field; None: it is a JSON value as it is."""
        if field.message_type is not None:
            return self.of_message(field.message_type)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return base64_text if field.type == field.TYPE_BYTES else None


def _is_plain(field: Any) -> bool:
    """A scalar that is always there and is a JSON value."""
    special = field.message_type is not None or field.enum_type is not None or field.type == field.TYPE_BYTES
    return not special and not field.is_repeated and not field.has_presence


def _is_map(field: Any) -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


def _map_reader(name: str, element: ToValue | None) -> ToValue:
    if element is None:
        return lambda message: {_key(key): value for key, value in getattr(message, name).items()}
    return lambda message: {_key(key): element(value) for key, value in getattr(message, name).items()}


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def base64_of_value(message: Any) -> str:
    """Of a `BytesValue`."""
    return base64_text(message.value)


def timestamp_text(message: Any) -> str:
    """ISO 8601 in UTC with 0, 3, 6 or 9 digits of a second, as Protobuf's own JSON has it; that is written in Python, and slow."""
    nanos = message.nanos
    second = _second_text(message.seconds)
    if not nanos:
        return f"{second}Z"
    if not 0 < nanos < 1_000_000_000:
        raise BadValueError(f"timestamp with {nanos} ns is out of range")
    if nanos % 1_000_000 == 0:
        return f"{second}.{nanos // 1_000_000:03d}Z"
    return f"{second}.{nanos // 1_000:06d}Z" if nanos % 1_000 == 0 else f"{second}.{nanos:09d}Z"


@lru_cache(maxsize=10_000)
def _second_text(seconds: int) -> str:
    if not _YEARS_S[0] <= seconds <= _YEARS_S[1]:
        raise BadValueError(f"timestamp {seconds} s is out of range")
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def _json_of(message: Any) -> Any:
    from google.protobuf import json_format

    return json_format.MessageToDict(message)


def _date_text(message: Any) -> str:
    return f"{message.year:04d}-{message.month:02d}-{message.day:02d}"
