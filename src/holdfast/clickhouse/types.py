"""The ClickHouse types a pipeline writes, parsed from their text. The types themselves are in `type_values`.

The one rule: `parse_type(str(kind)) == kind` for every type; any other text is an error that lists the supported ones.
Which type converts into which is in `conversions`.
"""

from typing import Final

from holdfast.clickhouse.quoting import invalid_name_reason
from holdfast.clickhouse.type_tokens import is_number, tokens_of, unquote
from holdfast.clickhouse.type_values import (
    FLOATS,
    INTEGERS,
    NO_NULL,
    SCALARS,
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
    is_map_key,
    is_nullable,
    is_sortable,
    nullable,
    read_as,
    unwrap,
    zones_of,
)
from holdfast.vocabulary.errors import InvalidError

__all__ = [
    "FLOATS",
    "INTEGERS",
    "NO_NULL",
    "SCALARS",
    "STRING",
    "Array",
    "DateTime",
    "DateTime64",
    "Decimal",
    "EnumOf",
    "FixedString",
    "Json",
    "LowCardinality",
    "Map",
    "Nullable",
    "Scalar",
    "Tuple",
    "Type",
    "is_map_key",
    "is_nullable",
    "is_sortable",
    "nullable",
    "parse_type",
    "read_as",
    "unwrap",
    "zones_of",
]

SUPPORTED_TYPES: Final = (
    "Bool, Int8…Int64, UInt8…UInt64, Float32, Float64, Decimal(P, S), String, FixedString(N), Enum8, Enum16, Date, Date32, "
    "DateTime, DateTime64(N), UUID, IPv4, IPv6, JSON, Array(T), Map(K, T), Tuple(T, …), Nullable(T), LowCardinality(T)"
)
DEPTH_MAX: Final = 8
TEXT_MAX: Final = 16_384
SHOWN_MAX: Final = 256
FIXED_STRING_MAX: Final = 65_535
TUPLE_MAX: Final = 200
_JSON_LIMITS: Final = {"max_dynamic_paths": 100_000, "max_dynamic_types": 254}
_DECIMAL_SIZES: Final = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
PRECISION_MAX: Final = 76
ENUM_NUMBERS: Final = {8: (-128, 127), 16: (-32_768, 32_767)}
_ONLY_JSON_LIMITS: Final = (
    "JSON with max_dynamic_paths and max_dynamic_types only: a value unfit for a typed path fails its batch"
)


def parse_type(text: str) -> Type:
    """The type for its text as ClickHouse writes it. Anything else is an `InvalidError` that lists what is supported."""
    if len(text) > TEXT_MAX:
        raise _invalid_type(text, f"at most {TEXT_MAX} characters")
    tokens = tokens_of(text)
    if tokens is None:
        raise _invalid_type(text)
    parser = _Parser(text, tokens)
    kind = parser.parse(0)
    if parser.next() is not None:
        raise _invalid_type(text)
    return kind


def _invalid_type(text: str, why: str = "") -> InvalidError:
    shown = text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
    return InvalidError("type", shown, why or f"one of {SUPPORTED_TYPES}")


class _Parser:
    """Reads one type from its tokens."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text, self._tokens, self._at = text, tokens, 0

    def next(self) -> str | None:
        """The next token, left where it is; None: there is none."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def parse(self, depth: int) -> Type:
        if depth > DEPTH_MAX:
            raise self._invalid(f"nested at most {DEPTH_MAX} deep")
        name = self._take()
        if name in SCALARS:
            return Scalar(name)
        match name:
            case "Array":
                return Array(self._only(depth))
            case "Nullable":
                return self._nullable(self._only(depth))
            case "LowCardinality":
                return self._low_cardinality(self._only(depth))
            case "Map":
                return self._map(depth)
            case "Tuple":
                return self._tuple(depth)
            case "Enum" | "Enum8" | "Enum16":
                return self._enum(name)
            case "JSON":
                return self._json()
        return _with_arguments(self._text, name, self._arguments())

    def _invalid(self, why: str = "") -> InvalidError:
        return _invalid_type(self._text, why)

    def _take(self, *wanted: str) -> str:
        token = self.next()
        if token is None or (wanted and token not in wanted):
            raise self._invalid()
        self._at += 1
        return token

    def _only(self, depth: int) -> Type:
        self._take("(")
        inner = self.parse(depth + 1)
        self._take(")")
        return inner

    def _nullable(self, inner: Type) -> Type:
        if isinstance(inner, (Nullable, LowCardinality, *NO_NULL)):
            raise self._invalid("Nullable(…) of a type that is no Array, Map, Tuple, LowCardinality or Nullable")
        return Nullable(inner)

    def _low_cardinality(self, inner: Type) -> Type:
        kept = inner.of if isinstance(inner, Nullable) else inner
        if kept != STRING and not isinstance(kept, FixedString):
            raise self._invalid("LowCardinality(…) of String, FixedString(N), or one of them Nullable")
        return LowCardinality(inner)

    def _map(self, depth: int) -> Type:
        self._take("(")
        key = self.parse(depth + 1)
        if not is_map_key(key):
            raise self._invalid(
                "Map(K, …) with a K that a JSON key has the text of: String, a whole number, UUID, Date, Enum"
            )
        self._take(",")
        inner = self.parse(depth + 1)
        self._take(")")
        return Map(inner, key)

    def _tuple(self, depth: int) -> Type:
        self._take("(")
        names: list[str] = []
        kinds: list[Type] = []
        while True:
            if self._is_named():
                token = self._take()
                names.append(unquote(token) if token.startswith("`") else token)
            kinds.append(self.parse(depth + 1))
            if self._take(",", ")") == ")":
                break
        complete = not names or len(names) == len(set(names)) == len(kinds)
        if not complete or len(kinds) > TUPLE_MAX or any(map(invalid_name_reason, names)):
            raise self._invalid(f"Tuple(…) of at most {TUPLE_MAX} types, all of them with a name of its own, or none")
        return Tuple(tuple(kinds), tuple(names))

    def _is_named(self) -> bool:
        after = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ")"
        return (self.next() or "(")[0] not in "(),='" and after not in ("(", ")", ",", "=")

    def _enum(self, name: str) -> Type:
        self._take("(")
        values: list[tuple[str, int]] = []
        while True:
            token = self._take()
            if not token.startswith("'"):
                raise self._invalid("Enum8('name' = 1, …)")
            number = values[-1][1] + 1 if values else 1
            if self.next() == "=":
                self._take("=")
                number = self._number()
            values.append((unquote(token), number))
            if self._take(",", ")") == ")":
                break
        fits8 = all(ENUM_NUMBERS[8][0] <= number <= ENUM_NUMBERS[8][1] for _, number in values)
        bits = {"Enum8": 8, "Enum16": 16}.get(name, 8 if fits8 else 16)
        least, most = ENUM_NUMBERS[bits]
        unique = len({text for text, _ in values}) == len({number for _, number in values}) == len(values)
        if not unique or not all(least <= number <= most for _, number in values):
            raise self._invalid(f"Enum{bits} of names and numbers from {least} to {most}, each once")
        return EnumOf(bits, tuple(sorted(values, key=lambda value: value[1])))

    def _number(self) -> int:
        token = self._take()
        if not is_number(token):
            raise self._invalid()
        return int(token)

    def _json(self) -> Type:
        limits: dict[str, int] = {}
        if self.next() == "(":
            while self._take("(", ",", ")") != ")":
                name = self._take()
                if name not in _JSON_LIMITS or self.next() != "=":
                    raise self._invalid(_ONLY_JSON_LIMITS)
                self._take("=")
                limits[name] = self._number()
                if not 0 <= limits[name] <= _JSON_LIMITS[name]:
                    raise self._invalid(f"{name} from 0 to {_JSON_LIMITS[name]}")
        return Json(**limits)

    def _arguments(self) -> list[str]:
        """The arguments in parentheses after a name; none if there are no parentheses."""
        if self.next() != "(":
            return []
        self._take("(")
        arguments = []
        while True:
            argument = self._take()
            if argument in ("(", ")", ",", "=") or argument.startswith("`"):
                raise self._invalid()
            arguments.append(argument)
            if self._take(",", ")") == ")":
                return arguments


def _with_arguments(text: str, name: str, arguments: list[str]) -> Type:
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    zone = unquote(arguments[-1]) if arguments and arguments[-1].startswith("'") else None
    match name, numbers, len(arguments) - len(numbers), zone:
        case "Decimal", [precision, scale], 0, _ if 1 <= precision <= PRECISION_MAX and scale <= precision:
            return Decimal(precision, scale)
        case "Decimal", _, _, _:
            raise _invalid_type(text, f"Decimal(P, S) with P from 1 to {PRECISION_MAX} and S from 0 to P")
        case _, [scale], 0, _ if name in _DECIMAL_SIZES and scale <= _DECIMAL_SIZES[name]:
            return Decimal(_DECIMAL_SIZES[name], scale)
        case "FixedString", [length], 0, _ if 1 <= length <= FIXED_STRING_MAX:
            return FixedString(length)
        case "FixedString", _, _, _:
            raise _invalid_type(text, f"FixedString(N) with N from 1 to {FIXED_STRING_MAX}")
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
