"""The ClickHouse types a pipeline writes: values, their text, and its parser.

The one rule: `parse_type(str(kind)) == kind` for every type here; any other is an error that lists the supported ones.
Which type converts into which is in `conversions`.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.clickhouse.quoting import quote_literal
from holdfast.vocabulary.errors import InvalidError

INTEGERS: Final = {
    **{f"Int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
FLOATS: Final = ("Float32", "Float64")
SCALARS: Final = ("Bool", *INTEGERS, *FLOATS, "String", "Date", "UUID")
SUPPORTED_TYPES: Final = (
    "Bool, Int8…Int64, UInt8…UInt64, Float32, Float64, Decimal(P, S), String, Date, DateTime, DateTime64(N), UUID, "
    "Array(T), Map(String, T), Nullable(T), LowCardinality(String)"
)
PRECISION_MAX: Final = 76
DEPTH_MAX: Final = 8
TEXT_MAX: Final = 256

_DECIMAL_SIZES: Final = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d{1,9}|'[A-Za-z0-9_+/-]{1,64}'|[(),])")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parameters, one of `SCALARS`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """`precision` decimal digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"Decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class DateTime:
    """Whole seconds from 1970 to 2106. UTC is stored; the zone is that of displayed times, and of given ones without a zone."""

    zone: str | None = None

    def __str__(self) -> str:
        return "DateTime" if self.zone is None else f"DateTime({quote_literal(self.zone)})"


@dataclass(frozen=True, slots=True)
class DateTime64:
    """Seconds with `scale` decimal digits, from 1900 to 2299 (to 2262 with nine digits)."""

    scale: int
    zone: str | None = None

    def __str__(self) -> str:
        zone = "" if self.zone is None else f", {quote_literal(self.zone)}"
        return f"DateTime64({self.scale}{zone})"


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of values of one type."""

    of: "Type"

    def __str__(self) -> str:
        return f"Array({self.of})"


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by String keys."""

    of: "Type"

    def __str__(self) -> str:
        return f"Map(String, {self.of})"


@dataclass(frozen=True, slots=True)
class Nullable:
    """A value or null."""

    of: "Type"

    def __str__(self) -> str:
        return f"Nullable({self.of})"


@dataclass(frozen=True, slots=True)
class LowCardinality:
    """Dictionary-encoded strings: for columns with few distinct values."""

    of: "Type"

    def __str__(self) -> str:
        return f"LowCardinality({self.of})"


Type: TypeAlias = Scalar | Decimal | DateTime | DateTime64 | Array | Map | Nullable | LowCardinality

STRING: Final = Scalar("String")


def nullable(kind: Type) -> Type:
    """The same type with null allowed. Arrays and maps stay: ClickHouse has no null of them, an empty one is used instead."""
    if isinstance(kind, LowCardinality):
        return LowCardinality(nullable(kind.of))
    return kind if isinstance(kind, Nullable | Array | Map) else Nullable(kind)


def is_nullable(kind: Type) -> bool:
    """Whether a null can be stored."""
    return isinstance(kind, Nullable) or (isinstance(kind, LowCardinality) and isinstance(kind.of, Nullable))


def unwrap(kind: Type) -> Type:
    """The type without Nullable and LowCardinality."""
    while isinstance(kind, Nullable | LowCardinality):
        kind = kind.of
    return kind


def zone_of(kind: Type) -> str | None:
    """The time zone of a type, or of its elements."""
    while isinstance(kind, Array | Map | Nullable | LowCardinality):
        kind = kind.of
    return kind.zone if isinstance(kind, DateTime | DateTime64) else None


def is_sortable(kind: Type) -> bool:
    """Whether a table may be ordered by it: not nullable, and comparable."""
    return not is_nullable(kind) and not isinstance(kind, Map | Array)


def parse_type(text: str) -> Type:
    """The type for its text as ClickHouse writes it. Anything else is an `InvalidError` that lists what is supported."""
    tokens = _tokenize(text)
    kind, end = _parse(text, tokens, 0, 0)
    if end != len(tokens):
        raise _invalid_type(text)
    return kind


def _invalid_type(text: str, why: str = "") -> InvalidError:
    shown = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
    return InvalidError("type", shown, why or f"one of {SUPPORTED_TYPES}")


def _tokenize(text: str) -> list[str]:
    if len(text) > TEXT_MAX:
        raise _invalid_type(text, f"at most {TEXT_MAX} characters")
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _invalid_type(text)
        tokens.append(found[1])
        at = found.end()
    return tokens


def _parse(text: str, tokens: list[str], at: int, depth: int) -> tuple[Type, int]:
    if depth > DEPTH_MAX:
        raise _invalid_type(text, f"nested at most {DEPTH_MAX} deep")
    if at >= len(tokens):
        raise _invalid_type(text)
    name, at = tokens[at], at + 1
    if name in SCALARS:
        return Scalar(name), at
    if name == "JSON":
        raise _invalid_type(text, "String instead: an object or array is stored as its JSON text")
    if name in ("Array", "Map", "Nullable", "LowCardinality"):
        return _parse_nested(text, name, tokens, at, depth)
    arguments, at = _arguments(text, tokens, at)
    return _with_arguments(text, name, arguments), at


def _expect(text: str, tokens: list[str], at: int, *wanted: str) -> int:
    if tuple(tokens[at : at + len(wanted)]) != wanted:
        raise _invalid_type(text)
    return at + len(wanted)


def _parse_nested(text: str, name: str, tokens: list[str], at: int, depth: int) -> tuple[Type, int]:
    at = _expect(text, tokens, at, "(")
    if name == "Map":
        at = _expect(text, tokens, at, "String", ",")
    inner, at = _parse(text, tokens, at, depth + 1)
    at = _expect(text, tokens, at, ")")
    match name:
        case "Array":
            return Array(inner), at
        case "Map":
            return Map(inner), at
        case "Nullable" if not isinstance(inner, Nullable | Array | Map | LowCardinality):
            return Nullable(inner), at
        case "LowCardinality" if inner in (STRING, Nullable(STRING)):
            return LowCardinality(inner), at
    inner_type = "a scalar type" if name == "Nullable" else "String or Nullable(String)"
    raise _invalid_type(text, f"{name}(…) of {inner_type}")


def _arguments(text: str, tokens: list[str], at: int) -> tuple[list[str], int]:
    """The arguments in parentheses after a name; none if there are no parentheses."""
    if at >= len(tokens) or tokens[at] != "(":
        return [], at
    end = at + 1
    arguments = []
    while end < len(tokens) and tokens[end] not in "(),":
        arguments.append(tokens[end])
        end += 1
        if end < len(tokens) and tokens[end] == ",":
            end += 1
            continue
        return arguments, _expect(text, tokens, end, ")")
    raise _invalid_type(text)


def _with_arguments(text: str, name: str, arguments: list[str]) -> Type:
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    zone = arguments[-1][1:-1] if arguments and arguments[-1].startswith("'") else None
    match name, numbers, len(arguments) - len(numbers), zone:
        case "Decimal", [precision, scale], 0, _ if 1 <= precision <= PRECISION_MAX and scale <= precision:
            return Decimal(precision, scale)
        case "Decimal", _, _, _:
            raise _invalid_type(text, f"Decimal(P, S) with P from 1 to {PRECISION_MAX} and S from 0 to P")
        case _, [scale], 0, _ if name in _DECIMAL_SIZES and scale <= _DECIMAL_SIZES[name]:
            return Decimal(_DECIMAL_SIZES[name], scale)
        case "DateTime", [], 0, _:
            return DateTime()
        case "DateTime", [], 1, str(named):
            return DateTime(named)
        case "DateTime64", [scale], 0, _ if scale <= 9:
            return DateTime64(scale)
        case "DateTime64", [scale], 1, str(named) if scale <= 9:
            return DateTime64(scale, named)
        case "DateTime64", _, _, _:
            raise _invalid_type(text, "DateTime64(N) or DateTime64(N, 'Zone') with N from 0 to 9")
    raise _invalid_type(text)
