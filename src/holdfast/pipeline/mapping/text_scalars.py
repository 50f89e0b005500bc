"""Conversion of values to the types that ClickHouse reads from text: enums, addresses, texts of fixed length, JSON.

The one rule: the text is one that ClickHouse reads as exactly this value. A text it would refuse fails a whole insert, so it is
rejected here, with its record.
"""

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, Final

from holdfast.clickhouse.types import EnumOf
from holdfast.pipeline.model.records import json_text

NAMES_SHOWN_MAX: Final = 10
JSON_DEPTH_MAX: Final = 64
_JSON_INTEGERS: Final = (-(2**63), 2**64 - 1)


class ConversionError(Exception):
    """A value is rejected: the rule it breaks."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def text_of(value: Any) -> str:
    """Text as it is; anything else as its JSON."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ConversionError("text with a lone surrogate is not Unicode")
        return value
    try:
        return json_text(value)
    except ValueError:
        raise ConversionError("only JSON values have a text") from None


class EnumNames:
    """The name of an enum's value, from its name or its number."""

    def __init__(self, kind: EnumOf) -> None:
        self._kind = kind
        self._names = frozenset(name for name, _ in kind.values)
        self._by_number = {number: name for name, number in kind.values}

    def __call__(self, value: Any) -> str:
        if isinstance(value, str) and value in self._names:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value in self._by_number:
            return self._by_number[value]
        raise ConversionError(f"invalid {self._kind.name} value {_shown(value)}: must be one of {self._allowed()}")

    def _allowed(self) -> str:
        names = [name for name, _ in self._kind.values]
        more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        return ", ".join(map(repr, names[:NAMES_SHOWN_MAX])) + more


class FixedTexts:
    """Texts of at most so many bytes; ClickHouse fills the rest with zero bytes."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __call__(self, value: Any) -> str:
        text = text_of(value)
        size = len(text.encode())
        if size > self._length:
            raise ConversionError(
                f"invalid FixedString({self._length}) value: {size} bytes of UTF-8, at most {self._length} fit"
            )
        return text


def ipv4_text(value: Any) -> str:
    """An IPv4 address in four decimal numbers."""
    try:
        if isinstance(value, str):
            return str(IPv4Address(value))
    except AddressValueError:
        pass
    raise ConversionError(f"invalid IPv4 value {_shown(value)}: must be an address such as '192.0.2.1'")


def ipv6_text(value: Any) -> str:
    """An IPv6 address; an IPv4 address is its IPv4-mapped one, as in ClickHouse."""
    try:
        if isinstance(value, str) and "%" not in value:
            if ":" not in value:
                return f"::ffff:{IPv4Address(value)}"
            address = IPv6Address(value)
            # Python's own text of an IPv4-mapped address depends on its version, and rows must not.
            return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)
    except AddressValueError:
        pass
    raise ConversionError(
        f"invalid IPv6 value {_shown(value)}: must be an address such as '2001:db8::1' or '192.0.2.1'"
    )


def json_object_text(value: Any) -> str:
    """An object as JSON that a column of type JSON stores."""
    if not isinstance(value, dict):
        raise ConversionError(f"invalid JSON value {_shown(value)}: must be an object")
    text = text_of(value)
    seen: set[tuple[str, ...]] = set()
    for path in _paths(value, (), 1):
        if path in seen:
            raise ConversionError(f"invalid JSON value: two values have the path {'.'.join(path)}")
        seen.add(path)
    return text


def _paths(value: Any, steps: tuple[str, ...], depth: int) -> Iterator[tuple[str, ...]]:
    """The paths of an object's leaves: ClickHouse takes a dot in a key for a step. Leaves are checked on the way."""
    for key, inner in value.items():
        path = (*steps, *key.split("."))
        if isinstance(inner, dict):
            if depth >= JSON_DEPTH_MAX:
                raise ConversionError(f"invalid JSON value: nested more than {JSON_DEPTH_MAX} deep")
            yield from _paths(inner, path, depth + 1)
        else:
            _check_leaf(inner, depth)
            yield path


def _check_leaf(value: Any, depth: int) -> None:
    if isinstance(value, list):
        if depth >= JSON_DEPTH_MAX:
            raise ConversionError(f"invalid JSON value: nested more than {JSON_DEPTH_MAX} deep")
        for element in value:
            if isinstance(element, dict):
                json_object_text(element)
            _check_leaf(element, depth + 1)
    elif isinstance(value, int) and not _JSON_INTEGERS[0] <= value <= _JSON_INTEGERS[1]:
        raise ConversionError("invalid JSON value: a whole number beyond 64 bits, which ClickHouse would store as text")


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, str) else _json_shown(value)
    return shown if len(shown) <= 100 else shown[:100] + "…"


def _json_shown(value: Any) -> str:
    try:
        return json_text(value)
    except ValueError:
        return type(value).__name__
