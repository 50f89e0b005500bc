"""What a change of type keeps."""

import pytest
from hypothesis import given, settings
from tests.support.clickhouse_types import TYPES

from holdfast.clickhouse.conversions import ConversionKind, conversion
from holdfast.clickhouse.types import Type, is_nullable, nullable, parse_type


@pytest.mark.parametrize(
    ("given_type", "wanted", "kind"),
    [
        ("Int32", "Int32", "identical"),
        ("Int32", "Int64", "widening"),
        ("UInt32", "Int64", "widening"),
        ("UInt64", "Int64", "lossy"),
        ("Int8", "UInt64", "lossy"),
        ("Int32", "Float64", "widening"),
        ("Int64", "Float64", "lossy"),
        ("Int64", "Decimal(38, 2)", "widening"),
        ("Int64", "Decimal(18, 0)", "lossy"),
        ("Decimal(10, 2)", "Decimal(12, 4)", "widening"),
        ("Decimal(10, 2)", "Decimal(10, 3)", "lossy"),
        ("Decimal(10, 2)", "Float64", "lossy"),
        ("Float32", "Float64", "widening"),
        ("Float64", "Int64", "lossy"),
        ("Bool", "UInt8", "widening"),
        ("Int64", "String", "widening"),
        ("String", "Int64", "lossy"),
        ("String", "LowCardinality(String)", "widening"),
        ("String", "Nullable(String)", "widening"),
        ("Nullable(String)", "String", "lossy"),
        ("Date", "DateTime64(3)", "widening"),
        ("DateTime64(3)", "DateTime64(6)", "widening"),
        ("DateTime64(6)", "DateTime64(3)", "lossy"),
        ("DateTime64(3)", "DateTime64(9)", "lossy"),
        ("DateTime64(3)", "DateTime", "lossy"),
        ("DateTime", "DateTime('UTC')", "widening"),
        ("Int64", "DateTime", "impossible"),
        ("UUID", "Int64", "impossible"),
        ("Enum8('a' = 1)", "Enum8('a' = 1, 'b' = 2)", "widening"),
        ("Enum8('a' = 1)", "Enum16('a' = 1)", "widening"),
        ("Enum8('a' = 1, 'b' = 2)", "Enum8('a' = 1)", "lossy"),
        ("Enum8('a' = 1)", "Enum8('a' = 2)", "lossy"),
        ("Enum8('a' = 1)", "LowCardinality(String)", "widening"),
        ("Enum8('a' = 1)", "Int8", "impossible"),
        ("String", "Enum8('a' = 1)", "lossy"),
        ("IPv4", "IPv6", "widening"),
        ("IPv6", "IPv4", "lossy"),
        ("IPv4", "UInt32", "impossible"),
        ("FixedString(2)", "FixedString(3)", "widening"),
        ("FixedString(3)", "FixedString(2)", "lossy"),
        ("Date", "Date32", "widening"),
        ("Date32", "Date", "lossy"),
        ("Date32", "DateTime64(3)", "widening"),
        ("Date32", "DateTime64(9)", "lossy"),
        ("Date32", "DateTime", "lossy"),
        ("JSON", "JSON(max_dynamic_paths=8)", "widening"),
        ("JSON", "String", "widening"),
        ("String", "JSON", "lossy"),
        ("JSON", "Map(String, String)", "impossible"),
        ("Tuple(a Int32, b String)", "Tuple(a Int64, b String)", "widening"),
        ("Tuple(a Int64, b String)", "Tuple(a Int32, b Int8)", "lossy"),
        ("Tuple(a Int32)", "Tuple(b Int32)", "impossible"),
        ("Tuple(a Int32)", "Tuple(a Int32, b Int32)", "impossible"),
        ("Tuple(a Int32)", "String", "impossible"),
        ("Map(UInt8, Int8)", "Map(UInt16, Int8)", "widening"),
        ("Map(UInt8, Int8)", "Map(UUID, Int8)", "impossible"),
        ("Array(Int32)", "Array(Int64)", "widening"),
        ("Array(Int32)", "String", "impossible"),
        ("String", "Array(String)", "impossible"),
        ("Map(String, Int64)", "Map(String, Int32)", "lossy"),
    ],
)
def test_each_pair_is_converted_as_the_table_has_it(given_type: str, wanted: str, kind: str) -> None:
    found = conversion(parse_type(given_type), parse_type(wanted))
    assert found.kind is ConversionKind(kind), found
    assert bool(found.why) is not found.exact


@settings(deadline=None)
@given(TYPES, TYPES)
def test_every_lossy_or_impossible_pair_has_a_reason(one: Type, other: Type) -> None:
    found = conversion(one, other)
    assert found.exact or found.why


@settings(deadline=None)
@given(TYPES)
def test_null_can_be_added_and_not_removed(kind: Type) -> None:
    assert conversion(kind, nullable(kind)).exact
    if not is_nullable(kind) and is_nullable(nullable(kind)):
        assert conversion(nullable(kind), kind).kind is ConversionKind.LOSSY


@settings(deadline=None)
@given(TYPES, TYPES, TYPES)
def test_widening_is_transitive(one: Type, two: Type, three: Type) -> None:
    if conversion(one, two).exact and conversion(two, three).exact:
        assert conversion(one, three).exact
