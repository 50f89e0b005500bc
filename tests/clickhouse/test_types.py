"""Types: their text is read and written back, and nothing else is read."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clickhouse_types import TYPES

from holdfast.clickhouse.types import (
    STRING,
    Array,
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
    is_nullable,
    is_sortable,
    nullable,
    parse_type,
    unwrap,
    zones_of,
)
from holdfast.vocabulary.errors import InvalidError


@settings(deadline=None)
@given(TYPES)
def test_a_type_is_read_back_from_its_text(kind: Type) -> None:
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("DateTime64(3, 'UTC')", DateTime64(3, "UTC")),
        (" Array( Nullable ( Int32 ) ) ", Array(Nullable(Scalar("Int32")))),
        ("Decimal64(4)", Decimal(18, 4)),
        ("Decimal(10,2)", Decimal(10, 2)),
        ("Map(String, Array(UInt8))", Map(Array(Scalar("UInt8")))),
        ("LowCardinality(Nullable(String))", LowCardinality(Nullable(STRING))),
        ("Enum8('b' = 2, 'a\\'x' = -1)", EnumOf(8, (("a'x", -1), ("b", 2)))),
        ("Enum('a', 'b' = 300, 'c')", EnumOf(16, (("a", 1), ("b", 300), ("c", 301)))),
        ("Tuple(\n    a Int64,\n    `b c` JSON)", Tuple((Scalar("Int64"), Json()), ("a", "b c"))),
        ("Tuple(Decimal(3, 1), String)", Tuple((Decimal(3, 1), STRING))),
        ("Map(UInt64, Tuple(FixedString(2)))", Map(Tuple((FixedString(2),)), Scalar("UInt64"))),
        ("JSON(max_dynamic_paths=2)", Json(max_dynamic_paths=2)),
    ],
)
def test_what_clickhouse_writes_is_read(text: str, kind: Type) -> None:
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Int65",
        "int64",
        "Enum8('a' = 128)",
        "Enum8('a' = 1, 'a' = 2)",
        "Enum8('a' = 1, 'b' = 1)",
        "Enum8(a = 1)",
        "Enum8()",
        "Tuple()",
        "Tuple(a Int8, String)",
        "Tuple(a Int8, a Int8)",
        "Tuple(`` Int8)",
        "Nullable(Tuple(Int8))",
        "FixedString(0)",
        "FixedString('3')",
        "JSON(a Int8)",
        "JSON(a.b Int8)",
        "JSON(max_dynamic_paths)",
        "JSON(max_dynamic_types=255)",
        "Nullable(Array(String))",
        "Nullable(Nullable(String))",
        "LowCardinality(UUID)",
        "Map(Float64, String)",
        "Map(Array(String), String)",
        "Map(Nullable(String), String)",
        "LowCardinality(Int64)",
        "Decimal(5, 6)",
        "Decimal(77, 0)",
        "Decimal",
        "DateTime64",
        "DateTime64(10)",
        "DateTime('UTC', 3)",
        "DateTime64(3, 'UTC') DEFAULT now()",
        "String) ENGINE = Null --",
        "DateTime('UTC''')",
        "Array(String",
        "Array(String))",
        "Array(" * 9 + "String" + ")" * 9,
        "A" * 10_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_type(text)


def test_the_refusal_names_what_is_allowed() -> None:
    with pytest.raises(InvalidError, match=r"Array\(T\), Map\(K, T\)"):
        parse_type("Point")
    with pytest.raises(InvalidError, match="fails its batch"):
        parse_type("JSON(a Int8)")
    with pytest.raises(InvalidError, match="names and numbers from -128 to 127, each once"):
        parse_type("Enum8('a' = 200)")


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(InvalidError):
        parse_type(text)


def test_arrays_maps_and_tuples_have_no_null() -> None:
    assert nullable(Array(STRING)) == Array(STRING)
    assert nullable(Tuple((STRING,))) == Tuple((STRING,))
    assert nullable(Json()) == Nullable(Json())
    assert nullable(LowCardinality(STRING)) == LowCardinality(Nullable(STRING))
    assert is_nullable(nullable(LowCardinality(STRING)))
    assert unwrap(LowCardinality(Nullable(STRING))) == STRING


def test_a_table_is_not_ordered_by_what_may_be_null() -> None:
    assert is_sortable(Scalar("Int64"))
    assert is_sortable(LowCardinality(STRING))
    assert not is_sortable(Nullable(Scalar("Int64")))
    assert not is_sortable(Map(STRING))
    assert not is_sortable(Json())
    assert is_sortable(Tuple((STRING, Scalar("IPv6"))))
    assert not is_sortable(Tuple((STRING, Nullable(STRING))))


def test_the_time_zones_of_elements_are_found() -> None:
    kind = parse_type("Tuple(DateTime('UTC'), Map(String, Array(Nullable(DateTime64(3, 'Europe/Berlin')))), String)")
    assert list(zones_of(kind)) == ["UTC", "Europe/Berlin"]
