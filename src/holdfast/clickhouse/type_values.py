"""The ClickHouse types a pipeline writes, as values, and their text. `types` parses it.

The one rule: a type is what its text says; two types are equal if their texts are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.clickhouse.quoting import quote_identifier, quote_literal
from holdfast.clickhouse.type_tokens import is_plain_name

INTEGERS: Final = {
    **{f"Int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
FLOATS: Final = ("Float32", "Float64")
SCALARS: Final = ("Bool", *INTEGERS, *FLOATS, "String", "Date", "Date32", "UUID", "IPv4", "IPv6")


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
class FixedString:
    """Exactly `length` bytes; ClickHouse fills a shorter text with zero bytes."""

    length: int

    def __str__(self) -> str:
        return f"FixedString({self.length})"


@dataclass(frozen=True, slots=True)
class EnumOf:
    """One of some texts, each with a number of 8 or 16 bits, in the order of the numbers."""

    bits: int
    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        values = ", ".join(f"{quote_literal(text)} = {number}" for text, number in self.values)
        return f"{self.name}({values})"

    @property
    def name(self) -> str:
        """Without the values."""
        return f"Enum{self.bits}"


@dataclass(frozen=True, slots=True)
class Json:
    """An object whose paths are columns of their own. The limits are ClickHouse's; None: its defaults."""

    max_dynamic_paths: int | None = None
    max_dynamic_types: int | None = None

    def __str__(self) -> str:
        limits = {"max_dynamic_paths": self.max_dynamic_paths, "max_dynamic_types": self.max_dynamic_types}
        given = ", ".join(f"{name}={value}" for name, value in limits.items() if value is not None)
        return f"JSON({given})" if given else "JSON"


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of values of one type."""

    of: "Type"

    def __str__(self) -> str:
        return f"Array({self.of})"


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by keys."""

    of: "Type"
    key: "Type" = Scalar("String")

    def __str__(self) -> str:
        return f"Map({self.key}, {self.of})"


@dataclass(frozen=True, slots=True)
class Tuple:
    """A fixed number of values, each of its own type. With names they are those of an object; without, of an array."""

    elements: "tuple[Type, ...]"
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.names:
            return f"Tuple({', '.join(map(str, self.elements))})"
        named = (f"{_name(name)} {kind}" for name, kind in zip(self.names, self.elements, strict=True))
        return f"Tuple({', '.join(named)})"

    @property
    def fields(self) -> "tuple[tuple[str, Type], ...]":
        """Names and types; without names, the positions from 1 on."""
        names = self.names or tuple(str(at) for at in range(1, len(self.elements) + 1))
        return tuple(zip(names, self.elements, strict=True))


@dataclass(frozen=True, slots=True)
class Nullable:
    """A value or null."""

    of: "Type"

    def __str__(self) -> str:
        return f"Nullable({self.of})"


@dataclass(frozen=True, slots=True)
class LowCardinality:
    """Dictionary-encoded texts: for columns with few distinct values."""

    of: "Type"

    def __str__(self) -> str:
        return f"LowCardinality({self.of})"


Type: TypeAlias = (
    Scalar
    | Decimal
    | DateTime
    | DateTime64
    | FixedString
    | EnumOf
    | Json
    | Array
    | Map
    | Tuple
    | Nullable
    | LowCardinality
)

STRING: Final = Scalar("String")
NO_NULL: Final = (Array, Map, Tuple)
"""ClickHouse has no null of these: an absent one is empty, or of the defaults of its elements."""


def _name(name: str) -> str:
    return name if is_plain_name(name) else quote_identifier(name)


def nullable(kind: Type) -> Type:
    """The same type with null allowed. Arrays, maps and tuples stay: they have none, an empty one is used instead."""
    if isinstance(kind, LowCardinality):
        return LowCardinality(nullable(kind.of))
    return kind if isinstance(kind, (Nullable, *NO_NULL)) else Nullable(kind)


def is_nullable(kind: Type) -> bool:
    """Whether a null can be stored."""
    return isinstance(kind, Nullable) or (isinstance(kind, LowCardinality) and isinstance(kind.of, Nullable))


def unwrap(kind: Type) -> Type:
    """The type without Nullable and LowCardinality."""
    while isinstance(kind, Nullable | LowCardinality):
        kind = kind.of
    return kind


def zones_of(kind: Type) -> Iterator[str]:
    """The time zones of a type and of its elements."""
    match kind:
        case Array(of) | Nullable(of) | LowCardinality(of):
            yield from zones_of(of)
        case Map(of, key):
            yield from zones_of(key)
            yield from zones_of(of)
        case Tuple(elements):
            for element in elements:
                yield from zones_of(element)
        case DateTime(str(zone)) | DateTime64(_, str(zone)):
            yield zone


def is_sortable(kind: Type) -> bool:
    """Whether a table may be ordered by it: not nullable, and comparable."""
    if isinstance(kind, Tuple):
        return all(map(is_sortable, kind.elements))
    return not is_nullable(kind) and not isinstance(kind, Map | Array | Json)


def is_map_key(kind: Type) -> bool:
    """Whether keys of a map may be of this type: one that the text of a JSON key can be read as."""
    if isinstance(kind, LowCardinality):
        return kind.of == STRING
    integers_and_texts = (*INTEGERS, "String", "UUID", "Date", "Date32", "IPv4", "IPv6")
    return isinstance(kind, EnumOf | FixedString) or (isinstance(kind, Scalar) and kind.name in integers_and_texts)


def read_as(kind: Type) -> Type:
    """The type as which Arrow texts of this one are read, and then converted by the server.

    The server takes 16 bytes of text for the 16 bytes of an IPv6 address: `::ffff:192.0.2.1` would be another address.
    """
    match kind:
        case Scalar("IPv6") | Json():
            return STRING
        case Nullable(of):
            return Nullable(read_as(of))
        case Array(of):
            return Array(read_as(of))
        case Map(of, key):
            return Map(read_as(of), read_as(key))
        case Tuple(elements, names):
            return Tuple(tuple(map(read_as, elements)), names)
    return kind
