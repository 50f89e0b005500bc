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
    LowCardinality,
    Map,
    Nullable,
    Scalar,
    Type,
    is_nullable,
    is_sortable,
    nullable,
    parse_type,
    unwrap,
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
        "Enum8('a' = 1)",
        "Nullable(Array(String))",
        "Nullable(Nullable(String))",
        "LowCardinality(UUID)",
        "Map(Int64, String)",
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
    with pytest.raises(InvalidError, match=r"Array\(T\), Map\(String, T\)"):
        parse_type("Tuple(Int8)")
    with pytest.raises(InvalidError, match="its JSON text"):
        parse_type("JSON")


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(InvalidError):
        parse_type(text)


def test_arrays_and_maps_have_no_null() -> None:
    assert nullable(Array(STRING)) == Array(STRING)
    assert nullable(LowCardinality(STRING)) == LowCardinality(Nullable(STRING))
    assert is_nullable(nullable(LowCardinality(STRING)))
    assert unwrap(LowCardinality(Nullable(STRING))) == STRING


def test_a_table_is_not_ordered_by_what_may_be_null() -> None:
    assert is_sortable(Scalar("Int64"))
    assert is_sortable(LowCardinality(STRING))
    assert not is_sortable(Nullable(Scalar("Int64")))
    assert not is_sortable(Map(STRING))
