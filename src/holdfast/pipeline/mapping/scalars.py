"""Conversion of values to scalar column types. docs/pipelines.md has the rules as a table.

The one rule: nothing is changed silently. A value is stored exactly, or rejected with the rule it breaks. The exceptions are in the
table: a fraction of a second finer than the column is truncated, and a number in a Float is the nearest one.

Dates become days and times become ticks since 1970, as a column stores them.
"""

import math
import re
from collections.abc import Callable
from datetime import tzinfo
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any, Final, TypeAlias

from holdfast.clickhouse.types import (
    FLOATS,
    INTEGERS,
    DateTime,
    DateTime64,
    Decimal,
    EnumOf,
    FixedString,
    Json,
    Scalar,
    Type,
)
from holdfast.pipeline.mapping.text_scalars import (
    ConversionError,
    EnumNames,
    FixedTexts,
    ipv4_text,
    ipv6_text,
    json_object_text,
    text_of,
)
from holdfast.pipeline.model.timestamps import NS_PER_S, S_PER_DAY, epoch_ns, load_zone, parse_iso_ns

Convert: TypeAlias = Callable[[Any], Any]

DATE_DAYS_MAX: Final = 65_535  # 2149-06-06
DATE32_DAYS: Final = (-25_567, 120_529)  # 1900-01-01 and 2299-12-31
DATETIME_S_MAX: Final = 2**32 - 1  # 2106-02-07
DATETIME64_S: Final = (-2_208_988_800, 10_413_791_999)  # 1900-01-01 and the last second of 2299
INT64_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")
_HEX: Final = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BOOLS: Final = {"true": True, "false": False, "1": True, "0": False}
FLOAT32_MAX: Final = 3.4028234663852886e38


def scalar_converter(kind: Type) -> Convert:
    """The function that converts a value other than None to this type, or raises `ConversionError`."""
    match kind:
        case Scalar(name) if name in INTEGERS:
            return _integers(name)
        case Scalar(name) if name in FLOATS:
            return _float32 if name == "Float32" else _float64
        case Scalar("Bool"):
            return _bool
        case Scalar("UUID"):
            return _uuid
        case Scalar("Date"):
            return _date
        case Scalar("Date32"):
            return _date32
        case Scalar("IPv4"):
            return ipv4_text
        case Scalar("IPv6"):
            return ipv6_text
        case EnumOf():
            return EnumNames(kind)
        case FixedString(length):
            return FixedTexts(length)
        case Json():
            return json_object_text
        case Decimal(precision, scale):
            return _decimals(precision, scale)
        case DateTime(zone):
            return _seconds(_zone(zone))
        case DateTime64(scale, zone):
            return _ticks(scale, _zone(zone))
    return text_of


def _zone(name: str | None) -> tzinfo | None:
    return None if name is None else load_zone(name)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    if isinstance(value, str) and value.lower() in _BOOLS:
        return _BOOLS[value.lower()]
    raise ConversionError("only true, false, 0, 1 and their texts are a Bool")


def _integers(name: str) -> Convert:
    least, most = INTEGERS[name]

    def convert(value: Any) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not whole and not (isinstance(value, str) and _INTEGER.fullmatch(value)):
            raise ConversionError("only whole numbers, their texts, true and false are an integer")
        number = int(value)
        if not least <= number <= most:
            raise ConversionError(f"{name} holds {least} to {most}")
        return number

    return convert


def _float64(value: Any) -> float:
    if isinstance(value, float):
        return value
    try:
        if isinstance(value, int):
            return float(value)
        if isinstance(value, str):
            if value in _NOT_FINITE:
                return _NOT_FINITE[value]
            if _NUMBER.fullmatch(value) and math.isfinite(number := float(value)):
                return number
    except OverflowError:
        raise ConversionError("beyond the range of a Float64") from None
    raise ConversionError("only numbers within range, their texts, NaN, Infinity, true and false are a float")


def _float32(value: Any) -> float:
    number = _float64(value)
    if math.isfinite(number) and abs(number) > FLOAT32_MAX:
        raise ConversionError("beyond the range of a Float32")
    return number


def _decimals(precision: int, scale: int) -> Convert:
    before = precision - scale

    def convert(value: Any) -> Number:
        number = _number(value)
        if not number:
            return Number(0)
        sign, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)  # finite: checked by `_number`
        while exponent < -scale and digits[-1] == 0:
            digits, exponent = digits[:-1], exponent + 1
        if exponent < -scale:
            raise ConversionError(f"more than {scale} digits behind the point")
        if len(digits) + exponent > before:
            raise ConversionError(f"more than {before} digits before the point")
        return Number((sign, digits, exponent))

    return convert


def _number(value: Any) -> Number:
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return Number(value)
        if isinstance(value, float) and math.isfinite(value):
            return Number(repr(value))  # the digits that were written, not the binary fraction
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            return Number(value)
        if isinstance(value, Number) and value.is_finite():
            return value
    except (InvalidOperation, ValueError):
        pass
    raise ConversionError("only finite numbers and their texts are a Decimal")


def _uuid(value: Any) -> str:
    if isinstance(value, str) and _HEX.fullmatch(value):
        digits = value.replace("-", "").lower()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    raise ConversionError("32 hexadecimal digits, with or without hyphens, are a UUID")


def _ns(value: Any, zone: tzinfo | None = None) -> int:
    """Nanoseconds since 1970 of a text or number; a text without a zone is in `zone`, or UTC."""
    if isinstance(value, str):
        ns = parse_iso_ns(value, zone)
        if ns is not None:
            return ns
        if _INTEGER.fullmatch(value):
            return epoch_ns(int(value))
        if len(value) <= 40 and _NUMBER.fullmatch(value) and math.isfinite(number := float(value)):
            return epoch_ns(number)
    elif (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    ):
        return epoch_ns(value)
    raise ConversionError(
        "ISO 8601 (2026-11-15, 2026-11-15T08:30:00.5Z) and seconds, ms, µs or ns since 1970 are a time"
    )


def _date(value: Any) -> int:
    days = _ns(value) // (S_PER_DAY * NS_PER_S)
    if not 0 <= days <= DATE_DAYS_MAX:
        raise ConversionError("Date holds 1970-01-01 to 2149-06-06")
    return days


def _date32(value: Any) -> int:
    days = _ns(value) // (S_PER_DAY * NS_PER_S)
    if not DATE32_DAYS[0] <= days <= DATE32_DAYS[1]:
        raise ConversionError("Date32 holds 1900-01-01 to 2299-12-31")
    return days


def _seconds(zone: tzinfo | None) -> Convert:
    def convert(value: Any) -> int:
        seconds = _ns(value, zone) // NS_PER_S
        if not 0 <= seconds <= DATETIME_S_MAX:
            raise ConversionError("DateTime holds 1970-01-01 to 2106-02-07 06:28:15")
        return seconds

    return convert


def tick_digits(scale: int) -> int:
    """Fractional digits of the ticks of a DateTime64: Arrow has s, ms, µs and ns."""
    return -(-scale // 3) * 3


def _ticks(scale: int, zone: tzinfo | None) -> Convert:
    cut, pad = int(10 ** (9 - scale)), int(10 ** (tick_digits(scale) - scale))
    least, most = DATETIME64_S
    until = "2262-04-11" if scale == 9 else "2299-12-31"

    def convert(value: Any) -> int:
        ns = _ns(value, zone)
        if not least <= ns // NS_PER_S <= most or (scale == 9 and ns > INT64_MAX):
            raise ConversionError(f"DateTime64({scale}) holds 1900-01-01 to {until}")
        return ns // cut * pad

    return convert
