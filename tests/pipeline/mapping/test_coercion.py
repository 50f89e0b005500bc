"""What becomes of a value in a column. The table in docs/pipelines.md, example by example."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from tests.support.clickhouse_types import TYPES
from tests.support.coercions import FITS
from tests.support.pipeline_values import JSON, mapping_of

from holdfast.clickhouse.types import Type, parse_type
from holdfast.pipeline.mapping.coercion import RejectedRecord, coerce, converter, make_coercion_plan
from holdfast.pipeline.mapping.text_scalars import ConversionError
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.records import SourceRecord, abbreviated

REFUSED: list[tuple[str, Any, str]] = [
    ("Bool", 2, "only true"),
    ("Bool", "yes", "only true"),
    ("Int8", 128, "holds -128 to 127"),
    ("UInt64", -1, "holds 0 to"),
    ("Int64", 1.5, "whole"),
    ("Int64", "1.0", "whole"),
    ("Int64", " 1", "whole"),
    ("Int64", "١", "whole"),
    ("Int64", "1" * 5000, "whole"),
    ("Int64", math.nan, "whole"),
    ("Int64", [1], "whole"),
    ("Float64", 10**400, "range"),
    ("Float64", "1e999", "range"),
    ("Float64", "nan", "numbers"),
    ("Float32", 1e39, "Float32"),
    ("Decimal(6, 2)", "1.234", "more than 2 digits behind"),
    ("Decimal(6, 2)", 12345, "more than 4 digits before"),
    ("Decimal(6, 2)", math.nan, "finite"),
    ("Decimal(6, 2)", True, "finite"),
    ("Decimal(6, 2)", "1e999", "more than 4 digits before"),
    ("String", "\ud800", "surrogate"),
    ("String", {"a": "\ud800"}, "JSON"),
    ("Date", "1969-12-31", "1970"),
    ("Date", "15.11.2025", "ISO 8601"),
    ("DateTime", "2107-01-01", "2106"),
    ("DateTime64(3)", "1899-12-31", "1900"),
    ("DateTime64(9)", "2262-04-12", "2262"),
    ("DateTime64(3)", True, "ISO 8601"),
    ("DateTime64(3)", "1e999", "ISO 8601"),
    ("DateTime64(3)", 10**30, "1900"),
    ("UUID", "61f0c404", "hexadecimal"),
    ("Array(Int64)", 1, "only an array"),
    ("Array(Int64)", [None], "an element: null"),
    ("Map(String, Int64)", [1], "only an object"),
    ("Int64", None, "no null"),
    ("Array(Int64)", None, "no null"),
    ("Enum8('new' = 1, 'paid' = 2)", "x", "^invalid Enum8 value 'x': must be one of 'new', 'paid'$"),
    ("Enum8('new' = 1, 'paid' = 2)", 3, "^invalid Enum8 value 3: must be one of 'new', 'paid'$"),
    ("Enum8('new' = 1)", True, "invalid Enum8 value true"),
    ("Enum8('new' = 1)", "NEW", "invalid Enum8 value 'NEW'"),
    ("Enum16('a' = 1)", ["a"], r"invalid Enum16 value \["),
    ("IPv4", "256.0.0.1", "^invalid IPv4 value '256.0.0.1': must be an address such as"),
    ("IPv4", "01.2.3.4", "invalid IPv4"),
    ("IPv4", "::1", "invalid IPv4"),
    ("IPv4", 16909060, "invalid IPv4 value 16909060"),
    ("IPv6", "fe80::1%eth0", "invalid IPv6"),
    ("IPv6", "2001:db8", "invalid IPv6"),
    ("IPv6", 1, "invalid IPv6"),
    ("FixedString(3)", "abcd", r"invalid FixedString\(3\) value: 4 bytes of UTF-8, at most 3 fit"),
    ("FixedString(3)", "日x", "4 bytes"),
    ("Date32", "1899-12-31", "1900-01-01 to 2299-12-31"),
    ("Date32", "2300-01-01", "1900-01-01 to 2299-12-31"),
    ("JSON", [1], "must be an object"),
    ("JSON", "{}", "must be an object"),
    ("JSON", {"a.b": 1, "a": {"b": 2}}, r"two values have the path a\.b"),
    ("JSON", {"a": [{"b.c": 1, "b": {"c": 1}}]}, "two values have the path"),
    ("JSON", {"a": 2**64}, "beyond 64 bits"),
    ("JSON", {"a": [[-(2**63) - 1]]}, "beyond 64 bits"),
    ("JSON", {"a": "\ud800"}, "JSON"),
    ("Tuple(a Int64)", [1], "only an object"),
    ("Tuple(a Int64)", {"a": 1, "b": 2}, "the field 'b' is not in the Tuple: it has a"),
    ("Tuple(a Int64)", {}, "a: null or absent"),
    ("Tuple(a Tuple(b Int8))", {"a": {"b": 300}}, "a: b: Int8 holds"),
    ("Tuple(Int64, String)", [1], "an array of 2"),
    ("Tuple(Int64, String)", {"1": 1, "2": "x"}, "an array of 2"),
    ("Map(UInt8, String)", {"256": "x"}, "a key: UInt8 holds"),
    ("Map(UInt8, String)", {"1": "x", "01": "y"}, "two keys are the same key"),
    ("Map(UUID, String)", {"x": "x"}, "a key: 32 hexadecimal"),
]


@pytest.mark.parametrize(("text", "value", "stored"), FITS)
def test_a_value_that_fits_is_stored_as_meant(text: str, value: Any, stored: Any) -> None:
    found = converter(parse_type(text))(value)
    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(("text", "value", "rule"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_by_a_rule(text: str, value: Any, rule: str) -> None:
    with pytest.raises(ConversionError, match=rule):
        converter(parse_type(text))(value)


@settings(deadline=None)
@given(TYPES, JSON)
def test_every_value_fits_or_is_refused(kind: Type, value: Any) -> None:
    try:
        converter(kind)(value)
    except ConversionError as unfit:
        said = unfit.rule
    else:
        said = "fits"
    assert said


def test_a_row_is_a_tuple_in_the_order_of_the_columns() -> None:
    plan = make_coercion_plan(mapping_of(b="Int64", a="String"))
    assert coerce(plan, SourceRecord(fields={"a": "x", "b": 1, "c": 2})) == (1, "x")


def test_a_refused_record_names_every_column_that_does_not_fit() -> None:
    plan = make_coercion_plan(mapping_of(a="Int8", b="String", c="UUID"))
    refused = coerce(plan, SourceRecord(fields={"a": 1000, "b": "x", "c": "y" * 1000}))
    assert isinstance(refused, RejectedRecord)
    assert [(each.column, each.type) for each in refused.refusals] == [("a", "Int8"), ("c", "UUID")]
    assert str(refused).startswith("a (Int8): 1000 does not fit: Int8 holds -128 to 127; c (UUID): ")
    assert len(str(refused)) < 500


def test_a_refusal_of_an_enum_names_the_value_and_what_is_allowed() -> None:
    names = ", ".join(f"'state-{n}' = {n}" for n in range(40))
    refused = coerce(make_coercion_plan(mapping_of(state=f"Enum8({names})")), SourceRecord(fields={"state": "x"}))
    assert "invalid Enum8 value 'x': must be one of 'state-0', 'state-1'" in str(refused)
    assert str(refused).endswith("'state-9' and 30 more")
    assert len(str(refused)) < 400


@pytest.mark.parametrize("value", [None, 1, "text", [{"a": 1}]])
def test_a_record_that_is_no_object_is_refused(value: Any) -> None:
    refused = coerce(make_coercion_plan(mapping_of(a="Int8?")), SourceRecord(fields=value))
    assert isinstance(refused, RejectedRecord)
    assert "JSON object" in str(refused)


@pytest.mark.parametrize(
    ("text", "zero"),
    [
        ("Int64", 0),
        ("String", ""),
        ("Bool", False),
        ("Array(Int8)", []),
        ("Decimal(3, 1)", 0),
        ("DateTime64(3)", 0),
        ("Float64", 0.0),
        ("Enum8('b' = 5, 'a' = -3)", "a"),
        ("IPv4", "0.0.0.0"),
        ("IPv6", "::"),
        ("FixedString(2)", ""),
        ("Date32", -25_567),
        ("JSON", "{}"),
        ("Tuple(a Int8, b Nullable(String), c Array(Int8))", {"a": 0, "b": None, "c": []}),
        ("Tuple(Enum8('x' = 1))", {"1": "x"}),
    ],
)
def test_a_null_is_the_zero_of_the_type_where_the_column_says_so(text: str, zero: Any) -> None:
    plan = make_coercion_plan(Mapping((Column("a", "a", text, when_null="default"),)))
    assert coerce(plan, SourceRecord(fields={})) == (zero,)
    assert coerce(plan, SourceRecord(fields={"a": None})) == (zero,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('say "hi"', '"say \\"hi\\""'),
        ("\ud800", '"?"'),
        pytest.param(10**5000, "a value without a text (int)", id="huge"),
        ("x" * 10_000, '"' + "x" * 199 + "…"),
        ({"a": 1}, '{"a":1}'),
        (None, "null"),
    ],
)
def test_a_refusal_shows_the_value_whatever_it_is(value: Any, text: str) -> None:
    assert abbreviated(value) == text
