"""What a change of type keeps."""

import pytest
from hypothesis import given, settings
from tests.clickhouse.test_types import TYPES

from holdfast.clickhouse.conversions import ConversionKind, conversion, is_comparable
from holdfast.clickhouse.types import Type, is_nullable, nullable, parse_type


@pytest.mark.parametrize(
    ("given_type", "wanted", "keeps"),
    [
        ("Int32", "Int32", "same"),
        ("Int32", "Int64", "widens"),
        ("UInt32", "Int64", "widens"),
        ("UInt64", "Int64", "loses"),
        ("Int8", "UInt64", "loses"),
        ("Int32", "Float64", "widens"),
        ("Int64", "Float64", "loses"),
        ("Int64", "Decimal(38, 2)", "widens"),
        ("Int64", "Decimal(18, 0)", "loses"),
        ("Decimal(10, 2)", "Decimal(12, 4)", "widens"),
        ("Decimal(10, 2)", "Decimal(10, 3)", "loses"),
        ("Decimal(10, 2)", "Float64", "loses"),
        ("Float32", "Float64", "widens"),
        ("Float64", "Int64", "loses"),
        ("Bool", "UInt8", "widens"),
        ("Int64", "String", "widens"),
        ("String", "Int64", "loses"),
        ("String", "LowCardinality(String)", "widens"),
        ("String", "Nullable(String)", "widens"),
        ("Nullable(String)", "String", "loses"),
        ("Date", "DateTime64(3)", "widens"),
        ("DateTime64(3)", "DateTime64(6)", "widens"),
        ("DateTime64(6)", "DateTime64(3)", "loses"),
        ("DateTime64(3)", "DateTime64(9)", "loses"),
        ("DateTime64(3)", "DateTime", "loses"),
        ("DateTime", "DateTime('UTC')", "widens"),
        ("Int64", "DateTime", "impossible"),
        ("UUID", "Int64", "impossible"),
        ("Array(Int32)", "Array(Int64)", "widens"),
        ("Array(Int32)", "String", "impossible"),
        ("String", "Array(String)", "impossible"),
        ("Map(String, Int64)", "Map(String, Int32)", "loses"),
    ],
)
def test_each_pair_keeps_what_the_table_says(given_type: str, wanted: str, keeps: str) -> None:
    found = conversion(parse_type(given_type), parse_type(wanted))
    assert found.keeps is ConversionKind(keeps), found
    assert bool(found.why) is not found.exact


@settings(deadline=None)
@given(TYPES, TYPES)
def test_every_pair_has_an_answer_and_a_reason(one: Type, other: Type) -> None:
    found = conversion(one, other)
    assert found.exact or found.why
    assert is_comparable(one, other) is is_comparable(other, one)


@settings(deadline=None)
@given(TYPES)
def test_null_is_room_that_can_be_added_and_not_taken_away(kind: Type) -> None:
    assert conversion(kind, nullable(kind)).exact
    if not is_nullable(kind) and is_nullable(nullable(kind)):
        assert conversion(nullable(kind), kind).keeps is ConversionKind.LOSSY


@settings(deadline=None)
@given(TYPES, TYPES, TYPES)
def test_what_widens_twice_widens(one: Type, two: Type, three: Type) -> None:
    if conversion(one, two).exact and conversion(two, three).exact:
        assert conversion(one, three).exact


@pytest.mark.parametrize(
    ("one", "other", "can"),
    [
        ("Int8", "Decimal(9, 2)", True),
        ("Date", "DateTime64(9)", True),
        ("String", "LowCardinality(String)", True),
        ("String", "Int8", False),
        ("Map(String, Int8)", "Map(String, Int8)", False),
        ("Array(Int8)", "Array(Float64)", True),
    ],
)
def test_comparable_means_of_one_family(one: str, other: str, can: bool) -> None:
    assert is_comparable(parse_type(one), parse_type(other)) is can
