"""What happens to values when the type of a column changes: nothing, widening, loss, or no conversion exists.

The one rule: `IDENTICAL` and `WIDENING` keep every value exactly; no table is changed automatically in any other way.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.clickhouse.types import (
    FLOATS,
    INTEGERS,
    NO_NULL,
    STRING,
    Array,
    DateTime,
    DateTime64,
    Decimal,
    EnumOf,
    FixedString,
    Json,
    LowCardinality,
    Map,
    Nullable,
    Scalar,
    Tuple,
    Type,
    is_nullable,
    unwrap,
)

_EXACT_INTEGER_BITS: Final = {"Float32": 24, "Float64": 53}
_DIGITS: Final = {"Int8": 3, "Int16": 5, "Int32": 10, "Int64": 19, "UInt8": 3, "UInt16": 5, "UInt32": 10, "UInt64": 20}


class ConversionKind(Enum):
    """How much of a value is kept, most first."""

    IDENTICAL = "identical"
    WIDENING = "widening"
    LOSSY = "lossy"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Conversion:
    """From one type to another. `why`: what is lost, or why it is impossible."""

    kind: ConversionKind
    why: str = ""

    @property
    def exact(self) -> bool:
        """Whether every value is kept exactly."""
        return self.kind in (ConversionKind.IDENTICAL, ConversionKind.WIDENING)


IDENTICAL: Final = Conversion(ConversionKind.IDENTICAL)
WIDENING: Final = Conversion(ConversionKind.WIDENING)


def conversion(given: Type, wanted: Type) -> Conversion:
    """What happens to values of `given` that are stored as `wanted`."""
    if given == wanted:
        return IDENTICAL
    if is_nullable(given) and not is_nullable(wanted):
        if isinstance(wanted, NO_NULL):
            return _impossible(given, wanted)
        return Conversion(ConversionKind.LOSSY, "nulls")
    source, target = unwrap(given), unwrap(wanted)
    if source == target:
        return WIDENING
    match source, target:
        case Array(of), Array(wanted_of):
            return conversion(of, wanted_of)
        case Map(of, key), Map(wanted_of, wanted_key):
            return _worst(conversion(key, wanted_key), conversion(of, wanted_of))
        case Tuple(elements, names), Tuple(others, wanted_names) if (
            len(elements) == len(others) and names == wanted_names
        ):
            return _worst(*(conversion(*pair) for pair in zip(elements, others, strict=True)))
    if isinstance(source, NO_NULL):
        return _impossible(given, wanted)
    if target == STRING:
        return WIDENING  # every scalar has one text form
    if isinstance(target, NO_NULL):
        return _impossible(given, wanted)
    return _scalar(source, target)


def _worst(*conversions: Conversion) -> Conversion:
    order = list(ConversionKind)
    return max(conversions, key=lambda each: order.index(each.kind))


def _family(kind: Type) -> str | None:
    match kind:
        case Scalar("String" | "UUID"):
            return kind.name
        case Scalar("IPv4" | "IPv6"):
            return "address"
        case EnumOf() | FixedString() | Json():
            return type(kind).__name__
        case Scalar("Date" | "Date32") | DateTime() | DateTime64():
            return "time"
        case Scalar() | Decimal():
            return "number"
    return None


def _impossible(given: Type, wanted: Type) -> Conversion:
    return Conversion(ConversionKind.IMPOSSIBLE, f"{given} cannot become {wanted}")


def _lossy(why: str) -> Conversion:
    return Conversion(ConversionKind.LOSSY, why)


def _scalar(source: Type, target: Type) -> Conversion:
    """Between two different types; neither is nested, and `target` is not String."""
    if source == STRING:
        return _lossy(f"strings that are not a valid {target}")
    if _family(source) != _family(target) or isinstance(source, Nullable | LowCardinality):
        return _impossible(source, target)
    match source, target:
        case EnumOf(), EnumOf():
            gone = [text for text, number in source.values if (text, number) not in target.values]
            return _lossy(f"{', '.join(map(repr, gone[:3]))} with its number") if gone else WIDENING
        case FixedString(few), FixedString(many):
            return WIDENING if few <= many else _lossy(f"texts of more than {many} bytes")
        case Json(), Json():
            return WIDENING  # limits are about storage
        case Scalar("IPv4"), Scalar("IPv6"):
            return WIDENING  # as ::ffff:192.0.2.1
        case Scalar("IPv6"), Scalar("IPv4"):
            return _lossy("addresses that are not IPv4")
    if _family(source) == "time":
        return _times(source, target)
    return _numbers(source, target)


def _times(source: Type, target: Type) -> Conversion:
    match source, target:
        case Scalar("Date"), Scalar("Date32"):
            return WIDENING
        case Scalar("Date32"), Scalar("Date"):
            return _lossy("dates before 1970 or after 2149-06-06")
        case Scalar("Date32"), DateTime64(9, _):
            return _lossy("dates after 2262-04-11")
        case Scalar("Date32"), DateTime():
            return _lossy("dates before 1970 or after 2106-02-07")
        case DateTime(), DateTime():
            return WIDENING  # the zone is for display only
        case DateTime64(few, _), DateTime64(many, _):
            if many < few:
                return _lossy(f"fractions of a second beyond {many} digits")
            if many == 9 and few < 9:
                return _lossy("times after 2262-04-11")
            return WIDENING
        case (Scalar(), DateTime64()) | (DateTime(), DateTime64()):
            return WIDENING
        case Scalar(), DateTime():
            return _lossy("dates after 2106-02-07")
        case _, Scalar():
            return _lossy("the time of day")
    return _lossy("fractions of a second, and times before 1970 or after 2106-02-07")


def _numbers(source: Type, target: Type) -> Conversion:
    match source, target:
        case Scalar("Bool"), _:
            return WIDENING
        case _, Scalar("Bool"):
            return _lossy("numbers other than 0 and 1")
        case Scalar(a), Scalar(b) if a in INTEGERS and b in INTEGERS:
            inside = INTEGERS[b][0] <= INTEGERS[a][0] and INTEGERS[a][1] <= INTEGERS[b][1]
            return WIDENING if inside else _lossy(f"numbers outside {INTEGERS[b][0]}…{INTEGERS[b][1]}")
        case Scalar(a), Scalar(b) if a in INTEGERS and b in FLOATS:
            exact = INTEGERS[a][1].bit_length() <= _EXACT_INTEGER_BITS[b]
            return WIDENING if exact else _lossy(f"integers beyond 2^{_EXACT_INTEGER_BITS[b]}")
        case Scalar("Float32"), Scalar("Float64"):
            return WIDENING
        case Scalar(a), Decimal(precision, scale) if a in INTEGERS:
            fits = precision - scale >= _DIGITS[a]
            return WIDENING if fits else _lossy(f"numbers of more than {precision - scale} digits before the point")
        case Decimal(p, s), Decimal(precision, scale):
            if scale < s:
                return _lossy(f"digits beyond {scale} after the point")
            fits = precision - scale >= p - s
            return WIDENING if fits else _lossy(f"numbers of more than {precision - scale} digits before the point")
        case Decimal(), Scalar(b) if b in FLOATS:
            return _lossy("digits a binary fraction cannot hold")
    return _lossy("fractions, and numbers out of range")
