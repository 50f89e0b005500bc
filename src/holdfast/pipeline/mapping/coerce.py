"""One record to one row: the values of its columns, or every reason why not.

`Plan` is a mapping made ready: parse once, use for every batch. The columns of a whole batch are in `columns`, which does the same
faster; a test holds both equal. The one rule: a record is taken whole or refused whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any, Final

from holdfast.pipeline.mapping.nouns import Column, Mapping
from holdfast.pipeline.mapping.paths import Path, find, parse_path
from holdfast.pipeline.mapping.scalars import Convert, Unfit, quoted, scalar_converter, text_of
from holdfast.pipeline.records import Record
from holdfast.pipeline.types import Array, Decimal, Map, Scalar, Type, bare, takes_null

GIVEN_MAX: Final = 200
NOT_AN_OBJECT: Final = "a record is a JSON object"
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value is not stored. `column` is empty when the whole record is at fault."""

    column: str
    given: str
    type: str
    rule: str

    def __str__(self) -> str:
        into = f"{self.column} ({self.type})" if self.column else "the record"
        return f"{into}: {self.given} does not fit: {self.rule}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that is not stored, with the refusal of every column it does not fit."""

    refusals: tuple[Refusal, ...]

    def __str__(self) -> str:
        return "; ".join(str(refusal) for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class Target:
    """One column, ready to take values. `convert` takes anything and raises `Unfit`."""

    column: Column
    path: Path
    kind: Type
    convert: Convert

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return self.column.column

    def refusal(self, value: Any, rule: str) -> Refusal:
        """This value does not fit here."""
        return Refusal(self.name, shown(value), str(self.kind), rule)


@dataclass(frozen=True, slots=True)
class Plan:
    """A mapping, ready to be applied. It stays in its process: send the mapping, and make the plan where it is used."""

    mapping: Mapping
    targets: tuple[Target, ...]


def make_plan(mapping: Mapping) -> Plan:
    """Read paths and types once."""
    return Plan(mapping, tuple(_target(column) for column in mapping.columns))


def _target(column: Column) -> Target:
    kind = column.kind
    convert = converter(kind)
    if column.when_null == "default" and not takes_null(kind):
        convert = _or_zero(convert, zero_of(kind))
    return Target(column, parse_path(column.field_path), kind, convert)


def coerce(plan: Plan, record: Record) -> tuple[Any, ...] | Refused:
    """The row of a record, or why it has none."""
    if not isinstance(record.fields, dict):
        return Refused((not_an_object(record.fields),))
    row: list[Any] = []
    refusals: list[Refusal] = []
    for target in plan.targets:
        value = find(target.path, record)
        try:
            row.append(target.convert(value))
        except Unfit as unfit:
            refusals.append(target.refusal(value, unfit.rule))
    return Refused(tuple(refusals)) if refusals else tuple(row)


def not_an_object(value: Any) -> Refusal:
    """The refusal of a record that has no fields."""
    return Refusal("", shown(value), "", NOT_AN_OBJECT)


def shown(value: Any) -> str:
    """A value as JSON, cut where it gets long."""
    try:
        text = quoted(value[: GIVEN_MAX + 1]) if isinstance(value, str) else text_of(value)
    except Unfit:
        return f"a value without a text ({type(value).__name__})"
    return text if len(text) <= GIVEN_MAX else text[:GIVEN_MAX] + "…"


def converter(kind: Type) -> Convert:
    """The function that turns any value into one of this type or raises `Unfit`."""
    inner = bare(kind)
    match inner:
        case Array(of):
            present = _arrays(converter(of))
        case Map(of):
            present = _maps(converter(of))
        case _:
            present = scalar_converter(inner)
    return _or_null(present) if takes_null(kind) else _or_refuse(present, kind)


def _or_null(present: Convert) -> Convert:
    return lambda value: None if value is None else present(value)


def _or_refuse(present: Convert, kind: Type) -> Convert:
    rule = f"null or absent, and {kind} has no null"

    def convert(value: Any) -> Any:
        if value is None:
            raise Unfit(rule)
        return present(value)

    return convert


def _or_zero(present: Convert, zero: Callable[[], Any]) -> Convert:
    return lambda value: zero() if value is None else present(value)


def zero_of(kind: Type) -> Callable[[], Any]:
    """What ClickHouse stores where nothing is given."""
    match bare(kind):
        case Array() | Map():
            return list
        case Decimal():
            return Number
        case Scalar("String"):
            return str
        case Scalar("Bool"):
            return bool
        case Scalar("UUID"):
            return lambda: _NO_UUID
        case Scalar("Float32" | "Float64"):
            return float
    return int


def _arrays(element: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Unfit("only an array is an Array")
        try:
            return [element(each) for each in value]
        except Unfit as unfit:
            raise Unfit(f"an element: {unfit.rule}") from None

    return convert


def _maps(element: Convert) -> Convert:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise Unfit("only an object is a Map")
        try:
            return [(text_of(key), element(each)) for key, each in value.items()]
        except Unfit as unfit:
            raise Unfit(f"a value: {unfit.rule}") from None

    return convert
