"""What happens to values when a column's type becomes another: nothing, more room, a loss, or it cannot be done.

The one rule: `SAME` and `WIDENS` keep every value exactly; whoever changes a table on its own does nothing else.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.clickhouse.types import (
    FLOATS,
    INTEGERS,
    STRING,
    Array,
    DateTime,
    DateTime64,
    Decimal,
    LowCardinality,
    Map,
    Nullable,
    Scalar,
    Type,
    is_nullable,
    unwrap,
)

_EXACT_INTEGER_BITS: Final = {"Float32": 24, "Float64": 53}
_DIGITS: Final = {"Int8": 3, "Int16": 5, "Int32": 10, "Int64": 19, "UInt8": 3, "UInt16": 5, "UInt32": 10, "UInt64": 20}


class ConversionKind(Enum):
    """How much of a value survives."""

    IDENTICAL = "same"
    WIDENING = "widens"
    LOSSY = "loses"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Conversion:
    """From one type to another: what it keeps. `why` is what it loses, or why it cannot be done."""

    keeps: ConversionKind
    why: str = ""

    @property
    def exact(self) -> bool:
        """Whether every value stays what it was."""
        return self.keeps in (ConversionKind.IDENTICAL, ConversionKind.WIDENING)


IDENTICAL: Final = Conversion(ConversionKind.IDENTICAL)
WIDENING: Final = Conversion(ConversionKind.WIDENING)


def conversion(given: Type, wanted: Type) -> Conversion:
    """What becomes of values of `given` that are stored as `wanted`."""
    if given == wanted:
        return IDENTICAL
    if is_nullable(given) and not is_nullable(wanted):
        if isinstance(wanted, Array | Map):
            return _impossible(given, wanted)
        return Conversion(ConversionKind.LOSSY, "nulls")
    one, other = unwrap(given), unwrap(wanted)
    if one == other:
        return WIDENING
    if isinstance(one, Array) and isinstance(other, Array):
        return conversion(one.of, other.of)
    if isinstance(one, Map) and isinstance(other, Map):
        return conversion(one.of, other.of)
    if isinstance(one, Array | Map):
        return _impossible(given, wanted)
    if other == STRING:
        return WIDENING  # every scalar has one text
    if isinstance(other, Array | Map):
        return _impossible(given, wanted)
    return _scalar(one, other)


def is_comparable(one: Type, other: Type) -> bool:
    """Whether ClickHouse can say which of two values is greater."""
    families = _family(unwrap(one)), _family(unwrap(other))
    return None not in families and families[0] == families[1]


def _family(kind: Type) -> str | None:
    match kind:
        case Scalar("String" | "UUID"):
            return kind.name
        case Scalar("Date") | DateTime() | DateTime64():
            return "time"
        case Scalar() | Decimal():
            return "number"
        case Array(of):
            inner = _family(unwrap(of))
            return None if inner is None else f"Array({inner})"
    return None


def _impossible(given: Type, wanted: Type) -> Conversion:
    return Conversion(ConversionKind.IMPOSSIBLE, f"{given} cannot become {wanted}")


def _lossy(why: str) -> Conversion:
    return Conversion(ConversionKind.LOSSY, why)


def _scalar(one: Type, other: Type) -> Conversion:
    """Between two different types that are neither nested nor text on the right."""
    if one == STRING:
        return _lossy(f"texts that are no {other}")
    if _family(one) != _family(other) or isinstance(one, Nullable | LowCardinality):
        return _impossible(one, other)
    if _family(one) == "time":
        return _times(one, other)
    return _numbers(one, other)


def _times(one: Type, other: Type) -> Conversion:
    match one, other:
        case DateTime(), DateTime():
            return WIDENING  # the zone is for display
        case DateTime64(few, _), DateTime64(many, _):
            if many < few:
                return _lossy(f"fractions of a second beyond {many} digits")
            if many == 9 and few < 9:
                return _lossy("times after 2262-04-11")
            return WIDENING
        case (Scalar(), DateTime64()) | (DateTime(), DateTime64()):
            return WIDENING
        case Scalar(), DateTime():
            return _lossy("days after 2106-02-07")
        case _, Scalar():
            return _lossy("the time of day")
    return _lossy("fractions of a second, and times before 1970 or after 2106-02-07")


def _numbers(one: Type, other: Type) -> Conversion:
    match one, other:
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
                return _lossy(f"digits beyond {scale} behind the point")
            fits = precision - scale >= p - s
            return WIDENING if fits else _lossy(f"numbers of more than {precision - scale} digits before the point")
        case Decimal(), Scalar(b) if b in FLOATS:
            return _lossy("digits a binary fraction cannot hold")
    return _lossy("fractions, and numbers out of range")
