"""Coercion of one record to one row: the values of its columns, or every reason why not.

A `CoercionPlan` is a mapping with its paths and types parsed. `arrow_columns` does the same for a batch, faster; a test holds both
equal. The one rule: a record is stored as a whole or rejected as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any, Final

from holdfast.clickhouse.types import Array, Decimal, Map, Scalar, Type, is_nullable, unwrap
from holdfast.pipeline.mapping.scalars import ConversionError, Convert, scalar_converter, text_of
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.field_paths import Path, find, parse_path
from holdfast.pipeline.model.records import SourceRecord, abbreviated

NOT_AN_OBJECT: Final = "a record is a JSON object"
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


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
        return ValueRejection(self.name, abbreviated(value), str(self.kind), rule)


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
        case Map(of):
            present = _maps(converter(of))
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
            raise ConversionError("only an array is an Array")
        try:
            return [element(each) for each in value]
        except ConversionError as unfit:
            raise ConversionError(f"an element: {unfit.rule}") from None

    return convert


def _maps(element: Convert) -> Convert:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise ConversionError("only an object is a Map")
        try:
            return [(text_of(key), element(each)) for key, each in value.items()]
        except ConversionError as unfit:
            raise ConversionError(f"a value: {unfit.rule}") from None

    return convert
