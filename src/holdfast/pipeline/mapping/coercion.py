"""Coercion of one record to one row: the values of its columns, or every reason why not.

A `CoercionPlan` is a mapping with its paths and types parsed. `arrow_columns` does the same for a batch, faster; a test holds both
equal. The one rule: a record is stored as a whole or rejected as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any, Final

from holdfast.clickhouse.types import (
    Array,
    Decimal,
    EnumOf,
    FixedString,
    Json,
    Map,
    Scalar,
    Tuple,
    Type,
    is_nullable,
    unwrap,
)
from holdfast.pipeline.mapping.scalars import DATE32_DAYS, Convert, scalar_converter
from holdfast.pipeline.mapping.text_scalars import ConversionError, text_of
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.field_paths import Path, find, parse_path
from holdfast.pipeline.model.records import SourceRecord, abbreviated

TYPE_CHARS_MAX: Final = 100
NOT_AN_OBJECT: Final = "a record is a JSON object"
_ZERO_TEXTS: Final = {"UUID": "00000000-0000-0000-0000-000000000000", "IPv4": "0.0.0.0", "IPv6": "::"}  # noqa: S104


@dataclass(frozen=True, slots=True)
class ValueRejection:
    """Why a value is rejected. `column` is empty if the whole record is."""

    column: str
    given: str
    type: str
    rule: str

    def __str__(self) -> str:
        into = f"{self.column} ({self.type})" if self.column else "the record"
        return f"{into}: {self.given} does not fit: {self.rule}"


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A rejected record, with the reason for each column it does not fit."""

    refusals: tuple[ValueRejection, ...]

    def __str__(self) -> str:
        return "; ".join(str(refusal) for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class ColumnTarget:
    """One column with its path and converter. `convert` takes any value and raises `ConversionError`."""

    column: Column
    path: Path
    kind: Type
    convert: Convert

    @property
    def name(self) -> str:
        """Its name in the table."""
        return self.column.column

    def refusal(self, value: Any, rule: str) -> ValueRejection:
        """The rejection of a value."""
        kind = str(self.kind)
        shown = kind if len(kind) <= TYPE_CHARS_MAX else kind[:TYPE_CHARS_MAX] + "…"
        return ValueRejection(self.name, abbreviated(value), shown, rule)


@dataclass(frozen=True, slots=True)
class CoercionPlan:
    """A mapping, ready to be applied. It does not pickle: send the mapping, and make the plan where it is used."""

    mapping: Mapping
    targets: tuple[ColumnTarget, ...]


def make_coercion_plan(mapping: Mapping) -> CoercionPlan:
    """Parse paths and types."""
    return CoercionPlan(mapping, tuple(_target(column) for column in mapping.columns))


def _target(column: Column) -> ColumnTarget:
    kind = column.kind
    convert = converter(kind)
    if column.when_null == "default" and not is_nullable(kind):
        convert = _or_zero(convert, zero_of(kind))
    return ColumnTarget(column, parse_path(column.field_path), kind, convert)


def coerce(plan: CoercionPlan, record: SourceRecord) -> tuple[Any, ...] | RejectedRecord:
    """The row of a record, or why it is rejected."""
    if not isinstance(record.fields, dict):
        return RejectedRecord((not_an_object(record.fields),))
    row: list[Any] = []
    refusals: list[ValueRejection] = []
    for target in plan.targets:
        value = find(target.path, record)
        try:
            row.append(target.convert(value))
        except ConversionError as unfit:
            refusals.append(target.refusal(value, unfit.rule))
    return RejectedRecord(tuple(refusals)) if refusals else tuple(row)


def not_an_object(value: Any) -> ValueRejection:
    """The rejection of a record that is no object."""
    return ValueRejection("", abbreviated(value), "", NOT_AN_OBJECT)


def converter(kind: Type) -> Convert:
    """The function that converts any value to this type, or raises `ConversionError`."""
    inner = unwrap(kind)
    match inner:
        case Array(of):
            present = _arrays(converter(of))
        case Map(of, key):
            present = _maps(converter(key), converter(of))
        case Tuple():
            present = _objects(inner) if inner.names else _sequences(inner)
        case _:
            present = scalar_converter(inner)
    return _or_null(present) if is_nullable(kind) else _or_refuse(present, kind)


def _or_null(present: Convert) -> Convert:
    return lambda value: None if value is None else present(value)


def _or_refuse(present: Convert, kind: Type) -> Convert:
    rule = f"null or absent, and {kind} has no null"

    def convert(value: Any) -> Any:
        if value is None:
            raise ConversionError(rule)
        return present(value)

    return convert


def _or_zero(present: Convert, zero: Callable[[], Any]) -> Convert:
    return lambda value: zero() if value is None else present(value)


def zero_of(kind: Type) -> Callable[[], Any]:
    """The default value of a type in ClickHouse."""
    match unwrap(kind):
        case Array() | Map():
            return list
        case Tuple() as kind:
            zeros = {name: _zero_or_null(element) for name, element in kind.fields}
            return lambda: {name: zero() for name, zero in zeros.items()}
        case EnumOf(_, values):
            return lambda: values[0][0]
        case FixedString():
            return str
        case Json():
            return lambda: "{}"
        case Decimal():
            return Number
        case Scalar("String"):
            return str
        case Scalar("Bool"):
            return bool
        case Scalar("UUID" | "IPv4" | "IPv6" as name):
            return lambda: _ZERO_TEXTS[name]
        case Scalar("Float32" | "Float64"):
            return float
        case Scalar("Date32"):
            return lambda: DATE32_DAYS[0]  # ClickHouse's zero of it is its first day
    return int


def _zero_or_null(kind: Type) -> Callable[[], Any]:
    return (lambda: None) if is_nullable(kind) else zero_of(kind)


def _arrays(element: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ConversionError("only an array is an Array")
        try:
            return [element(each) for each in value]
        except ConversionError as unfit:
            raise ConversionError(f"an element: {unfit.rule}") from None

    return convert


def _maps(of_key: Convert, element: Convert) -> Convert:
    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise ConversionError("only an object is a Map")
        try:
            keys = [of_key(text_of(key)) for key in value]
        except ConversionError as unfit:
            raise ConversionError(f"a key: {unfit.rule}") from None
        if len(set(keys)) < len(keys):
            raise ConversionError("two keys are the same key")
        try:
            return list(zip(keys, map(element, value.values()), strict=True))
        except ConversionError as unfit:
            raise ConversionError(f"a value: {unfit.rule}") from None

    return convert


def _objects(kind: Tuple) -> Convert:
    elements = {name: converter(element) for name, element in kind.fields}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConversionError("only an object is a Tuple with names")
        if not value.keys() <= elements.keys():
            unknown = next(key for key in value if key not in elements)
            raise ConversionError(f"the field {text_of(unknown)!r} is not in the Tuple: it has {', '.join(elements)}")
        return _converted(elements, value.get)

    return convert


def _sequences(kind: Tuple) -> Convert:
    elements = {name: converter(element) for name, element in kind.fields}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, list) or len(value) != len(elements):
            raise ConversionError(f"only an array of {len(elements)} is a Tuple of {len(elements)} without names")
        return _converted(elements, dict(zip(elements, value, strict=True)).get)

    return convert


def _converted(elements: dict[str, Convert], get: Callable[[str], Any]) -> dict[str, Any]:
    row = {}
    for name, element in elements.items():
        try:
            row[name] = element(get(name))
        except ConversionError as unfit:
            raise ConversionError(f"{name}: {unfit.rule}") from None
    return row
