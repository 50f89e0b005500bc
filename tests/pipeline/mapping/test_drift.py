"""Drift: fields that are not in the mapping."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pipeline_values import OBJECTS

from holdfast.pipeline.mapping.ddl import TableSpec, add_columns
from holdfast.pipeline.mapping.drift import (
    POLICIES,
    AddColumns,
    DivertToDlq,
    KnownFields,
    NoDrift,
    Overflow,
    StopPipeline,
    decide,
)
from holdfast.pipeline.model.column_mapping import Column, Mapping, mapping_errors
from holdfast.vocabulary.errors import InvalidError

MAPPING = Mapping(
    (
        Column("id", "id", "Int64"),
        Column("user.name", "user_name", "String"),
        Column("lines[].sku", "skus", "Array(String)", when_null="default"),
        Column("meta", "meta", "String", True),
    ),
    version=3,
    ignored=("debug",),
)
KNOWN = {"id": 1, "user": {"name": "a"}, "lines": [{"sku": "x", "n": 1}], "meta": {"any": 1}, "debug": {"deep": 2}}
NEW = {**KNOWN, "user": {"name": "a", "age": 5}, "coupon": "x"}


@pytest.mark.parametrize("policy", POLICIES)
def test_known_fields_are_no_drift(policy: str) -> None:
    assert decide(policy, MAPPING, [KNOWN, {}, 7, {"id": None, "new": None}]) == NoDrift()


def test_ignored_fields_are_no_drift() -> None:
    assert decide("ignore", MAPPING, [NEW]) == NoDrift()


def test_columns_are_added_nullable_and_the_mapping_is_the_next_version() -> None:
    found = decide("add_column", MAPPING, [KNOWN, NEW, {**NEW, "list": [1]}])
    assert isinstance(found, AddColumns)
    assert [(column.field_path, column.column, str(column.kind)) for column in found.columns] == [
        ("coupon", "coupon", "Nullable(String)"),
        ("user.age", "user_age", "Nullable(Int64)"),
        ("list", "list", "Array(Int64)"),
    ]
    assert found.mapping.version == 4
    assert found.mapping.columns == (*MAPPING.columns, *found.columns)
    assert decide("add_column", found.mapping, [NEW]) == NoDrift()
    table = TableSpec(database="d", name="t", mapping=MAPPING, order_by=("id",))
    assert add_columns(replace(table, mapping=found.mapping), [column.column for column in found.columns]) == (
        "ALTER TABLE `d`.`t` ADD COLUMN IF NOT EXISTS `coupon` Nullable(String), "
        "ADD COLUMN IF NOT EXISTS `user_age` Nullable(Int64), ADD COLUMN IF NOT EXISTS `list` Array(Int64)"
    )


def test_a_new_column_takes_no_name_that_is_taken() -> None:
    found = decide("add_column", MAPPING, [{"user_name": "x"}])
    assert isinstance(found, AddColumns)
    assert found.columns[0].column == "user_name_2"


def test_what_is_unknown_overflows_in_its_own_shape() -> None:
    assert decide("overflow", MAPPING, [KNOWN, NEW]) == Overflow({1: '{"coupon":"x","user":{"age":5}}'})


def test_records_with_unknown_fields_are_diverted_with_the_reason() -> None:
    found = decide("dlq", MAPPING, [KNOWN, NEW])
    assert isinstance(found, DivertToDlq)
    ((row, refused),) = found.refused
    assert row == 1
    assert 'the record: {"coupon":"x"} does not fit: not in the mapping' in str(refused)


def test_stop_names_the_fields() -> None:
    found = decide("stop", MAPPING, [NEW])
    assert isinstance(found, StopPipeline)
    assert found.fields == ("coupon", "user")


def test_a_producer_gone_wrong_does_not_make_a_thousand_columns() -> None:
    found = decide("add_column", MAPPING, [{f"k{n}": 1 for n in range(101)}])
    assert isinstance(found, StopPipeline)
    assert "101 new fields" in found.reason


def test_a_key_no_path_can_have_stops() -> None:
    assert isinstance(decide("add_column", MAPPING, [{"": 1}]), StopPipeline)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidError, match="add_column"):
        decide("add_columns", MAPPING, [])


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(OBJECTS, max_size=5))
def test_after_the_columns_are_added_nothing_is_unknown(values: list[Any]) -> None:
    found = decide("add_column", MAPPING, values)
    assert isinstance(found, AddColumns | NoDrift | StopPipeline)
    if isinstance(found, AddColumns):
        assert not list(mapping_errors(found.mapping))
        known = KnownFields(found.mapping)
        for value in values:
            assert not known.unknown(value)


def test_a_field_that_is_mapped_whole_and_in_part_is_known_whole() -> None:
    for paths in (("user", "user.name"), ("user.name", "user")):
        mapping = Mapping(tuple(Column(path, f"c{n}", "String") for n, path in enumerate(paths)))
        assert decide("stop", mapping, [{"user": {"name": "a", "age": 5}}]) == NoDrift()
