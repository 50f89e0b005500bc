"""Mappings: their JSON and their problems."""

import json
from typing import Any

import pytest

from holdfast.clickhouse.types import parse_type
from holdfast.pipeline.model.column_mapping import Column, Mapping, mapping_errors, mapping_json, read_mapping
from holdfast.pipeline.model.errors import InvalidValuesError
from holdfast.vocabulary.errors import InvalidError


def column(**changes: Any) -> dict[str, Any]:
    return {"fieldPath": "user.id", "column": "user_id", "type": "Int64", "nullable": False, **changes}


def test_the_json_is_click_sinks() -> None:
    given = {"columns": [column(), column(fieldPath="tags", column="tags", type="Array(String)")]}
    mapping = read_mapping(json.dumps(given))
    assert mapping.columns[0] == Column("user.id", "user_id", "Int64")
    assert mapping_json(mapping) == {**given, "version": 1}


def test_what_is_optional_is_kept() -> None:
    given = {"columns": [column(whenNull="default")], "version": 4, "ignored": ["debug"]}
    assert mapping_json(read_mapping(json.dumps(given).encode())) == given


def test_nullable_is_a_field_of_its_own() -> None:
    for given in (column(type="Nullable(Int64)", nullable=True), column(type="Nullable(Int64)"), column(nullable=True)):
        read = read_mapping({"columns": [given]}).columns[0]
        assert (read.type, read.nullable) == ("Int64", True)
        assert read.kind == parse_type("Nullable(Int64)")
    low = read_mapping({"columns": [column(type="LowCardinality(Nullable(String))")]}).columns[0]
    assert (low.type, low.nullable) == ("LowCardinality(String)", True)
    assert low.kind == parse_type("LowCardinality(Nullable(String))")


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ([column(fieldPath="a..b")], "columns[0].fieldPath"),
        ([column(column="")], "columns[0].column"),
        ([column(column="a\nb")], "columns[0].column"),
        ([column(column="_offset")], "columns[0].column"),
        ([column(column="_part")], "columns[0].column"),
        ([column(type="Int65")], "columns[0].type"),
        ([column(type="Array(Int8)", nullable=True)], "columns[0].nullable"),
        ([column(), column(fieldPath="other")], "columns[1].column"),
        ([], "columns"),
    ],
)
def test_each_problem_says_where_it_is(given: list[dict[str, Any]], where: str) -> None:
    with pytest.raises(InvalidError) as refused:
        read_mapping({"columns": given})
    assert refused.value.what == f"mapping.{where}"


def test_all_problems_are_listed() -> None:
    mapping = Mapping((Column("a..", "", "Int1"), Column("b", "b", "?")), version=0, ignored=("[",))
    assert [error.what.removeprefix("mapping.") for error in mapping_errors(mapping)] == [
        "version", "columns[0].fieldPath", "columns[0].column", "columns[0].type", "columns[1].type", "ignored[0]",
    ]  # fmt: skip


def test_mistakes_of_shape_and_of_value_are_reported_together_each_once() -> None:
    given = {
        "columns": [
            column(type="Int65"),
            {"fieldPath": "a", "column": "a"},
            column(column="b", nullabel=True, nullable="yes"),
            7,
        ],
        "versoin": 2,
    }
    with pytest.raises(InvalidValuesError) as refused:
        read_mapping(given)
    assert sorted(error.what.removeprefix("mapping.") for error in refused.value.errors) == [
        "columns[0].type", "columns[1].type", "columns[2].nullabel", "columns[2].nullable", "columns[3]", "versoin",
    ]  # fmt: skip
    assert "invalid mapping.columns[3] 'a number': must be an object" in str(refused.value)
    assert "unknown field mapping.versoin: must be one of columns, version, ignored" in str(refused.value)
    assert "missing mapping.columns[1].type" in str(refused.value)


@pytest.mark.parametrize(
    "given", ["", "[]", "{}", "nonsense", '{"columns": 1}', '{"columns": [{"column": "a"}]}',
              '{"columns": [{"fieldPath":"a","column":"a","type":"Int8","nullabel":true}]}', "[" * 100_000]
)  # fmt: skip
def test_another_shape_is_refused(given: str) -> None:
    with pytest.raises(InvalidError):
        read_mapping(given)


def test_the_same_field_may_go_into_two_columns() -> None:
    read_mapping({"columns": [column(), column(column="again", type="String")]})
