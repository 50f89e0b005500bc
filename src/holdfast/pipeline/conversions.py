"""What happens to values when a column's type becomes another: nothing, more room, a loss, or it cannot be done.

The one rule: `SAME` and `WIDENS` keep every value exactly; whoever changes a table on its own does nothing else.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.pipeline.types import (
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
    bare,
    takes_null,
)

_EXACT_INTEGER_BITS: Final = {"Float32": 24, "Float64": 53}
_DIGITS: Final = {"Int8": 3, "Int16": 5, "Int32": 10, "Int64": 19, "UInt8": 3, "UInt16": 5, "UInt32": 10, "UInt64": 20}


class Keeps(Enum):
    """How much of a value survives."""

    SAME = "same"
    WIDENS = "widens"
    LOSES = "loses"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Conversion:
    """From one type to another: what it keeps. `why` is what it loses, or why it cannot be done."""

    keeps: Keeps
    why: str = ""

    @property
    def exact(self) -> bool:
        """Whether every value stays what it was."""
        return self.keeps in (Keeps.SAME, Keeps.WIDENS)


SAME: Final = Conversion(Keeps.SAME)
WIDENS: Final = Conversion(Keeps.WIDENS)


def conversion(given: Type, wanted: Type) -> Conversion:
    """What becomes of values of `given` that are stored as `wanted`."""
    if given == wanted:
        return SAME
    if takes_null(given) and not takes_null(wanted):
        if isinstance(wanted, Array | Map):
            return _impossible(given, wanted)
        return Conversion(Keeps.LOSES, "nulls")
    one, other = bare(given), bare(wanted)
    if one == other:
        return WIDENS
    if isinstance(one, Array) and isinstance(other, Array):
        return conversion(one.of, other.of)
    if isinstance(one, Map) and isinstance(other, Map):
        return conversion(one.of, other.of)
    if isinstance(one, Array | Map):
        return _impossible(given, wanted)
    if other == STRING:
        return WIDENS  # every scalar has one text
    if isinstance(other, Array | Map):
        return _impossible(given, wanted)
    return _scalar(one, other)


def comparable(one: Type, other: Type) -> bool:
    """Whether ClickHouse can say which of two values is greater."""
    families = _family(bare(one)), _family(bare(other))
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
            inner = _family(bare(of))
            return None if inner is None else f"Array({inner})"
    return None


def _impossible(given: Type, wanted: Type) -> Conversion:
    return Conversion(Keeps.IMPOSSIBLE, f"{given} cannot become {wanted}")


def _loses(why: str) -> Conversion:
    return Conversion(Keeps.LOSES, why)


def _scalar(one: Type, other: Type) -> Conversion:
    """Between two different types that are neither nested nor text on the right."""
    if one == STRING:
        return _loses(f"texts that are no {other}")
    if _family(one) != _family(other) or isinstance(one, Nullable | LowCardinality):
        return _impossible(one, other)
    if _family(one) == "time":
        return _times(one, other)
    return _numbers(one, other)


def _times(one: Type, other: Type) -> Conversion:
    match one, other:
        case DateTime(), DateTime():
            return WIDENS  # the zone is for display
        case DateTime64(few, _), DateTime64(many, _):
            if many < few:
                return _loses(f"fractions of a second beyond {many} digits")
            if many == 9 and few < 9:
                return _loses("times after 2262-04-11")
            return WIDENS
        case (Scalar(), DateTime64()) | (DateTime(), DateTime64()):
            return WIDENS
        case Scalar(), DateTime():
            return _loses("days after 2106-02-07")
        case _, Scalar():
            return _loses("the time of day")
    return _loses("fractions of a second, and times before 1970 or after 2106-02-07")


def _numbers(one: Type, other: Type) -> Conversion:
    match one, other:
        case Scalar("Bool"), _:
            return WIDENS
        case _, Scalar("Bool"):
            return _loses("numbers other than 0 and 1")
        case Scalar(a), Scalar(b) if a in INTEGERS and b in INTEGERS:
            inside = INTEGERS[b][0] <= INTEGERS[a][0] and INTEGERS[a][1] <= INTEGERS[b][1]
            return WIDENS if inside else _loses(f"numbers outside {INTEGERS[b][0]}…{INTEGERS[b][1]}")
        case Scalar(a), Scalar(b) if a in INTEGERS and b in FLOATS:
            exact = INTEGERS[a][1].bit_length() <= _EXACT_INTEGER_BITS[b]
            return WIDENS if exact else _loses(f"integers beyond 2^{_EXACT_INTEGER_BITS[b]}")
        case Scalar("Float32"), Scalar("Float64"):
            return WIDENS
        case Scalar(a), Decimal(precision, scale) if a in INTEGERS:
            fits = precision - scale >= _DIGITS[a]
            return WIDENS if fits else _loses(f"numbers of more than {precision - scale} digits before the point")
        case Decimal(p, s), Decimal(precision, scale):
            if scale < s:
                return _loses(f"digits beyond {scale} behind the point")
            fits = precision - scale >= p - s
            return WIDENS if fits else _loses(f"numbers of more than {precision - scale} digits before the point")
        case Decimal(), Scalar(b) if b in FLOATS:
            return _loses("digits a binary fraction cannot hold")
    return _loses("fractions, and numbers out of range")
