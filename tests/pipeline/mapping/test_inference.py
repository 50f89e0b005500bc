"""From a sample to a mapping."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pipeline_values import JSON, OBJECTS

from holdfast.pipeline.mapping.coercion import RejectedRecord, coerce, make_coercion_plan
from holdfast.pipeline.mapping.ddl import TableSpec, create_table
from holdfast.pipeline.mapping.inference import infer, table_name
from holdfast.pipeline.model.column_mapping import mapping_errors, mapping_json, read_mapping
from holdfast.pipeline.model.records import SourceRecord, abbreviated
from holdfast.vocabulary.errors import InvalidError


def kinds(*values: Any) -> dict[str, str]:
    return {column.field_path: str(column.kind) for column in infer(values).mapping.columns}


def kind_of(*values: Any) -> str:
    return kinds(*({"a": value} for value in values))["a"]


ORDER = {
    "orderId": 812,
    "createdAt": "2025-11-15T08:30:00.123Z",
    "customer": {"id": "c-1", "address": {"city": "Kyiv", "zip": None}},
    "total": "129.90",
    "items": [{"sku": "x", "n": 2}],
    "tags": ["new", "gift"],
    "paid": True,
}


def test_an_order_becomes_a_table_worth_having() -> None:
    found = infer([ORDER, {**ORDER, "coupon": "WINTER"}], topic="shop.orders-v1")
    assert {column.column: str(column.kind) for column in found.mapping.columns} == {
        "orderId": "Int64",
        "createdAt": "DateTime64(3)",
        "customer_id": "String",
        "customer_address_city": "String",
        "customer_address_zip": "Nullable(String)",
        "total": "Decimal(18, 2)",
        "items": "String",
        "tags": "Array(String)",
        "paid": "Bool",
        "coupon": "Nullable(String)",
    }
    assert found.order_by == ("createdAt", "orderId", "customer_id")
    assert found.table == "shop_orders_v1"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -2], "Int64"),
        ([1, 2**63], "UInt64"),
        ([-1, 2**63], "Decimal(38, 0)"),
        ([10**40], "String"),
        ([-(10**5000)], "String"),
        ([1, 2.5], "Float64"),
        ([2**60, 2.5], "String"),
        ([True, False], "Bool"),
        ([True, 1], "String"),
        ([1, "x"], "String"),
        (["2025-11-15", "2025-11-16"], "Date"),
        (["2025-11-15", "2025-11-15T10:00:00Z"], "DateTime64(3)"),
        (["2025-11-15T10:00:00.123456+02:00"], "DateTime64(6)"),
        (["2025-11-15 10:00:00.1234567"], "DateTime64(9)"),
        (["2290-11-15 10:00:00.1234567"], "String"),
        (["1850-01-01T00:00:00Z"], "String"),
        (["1960-01-01"], "Date32"),
        (["2025-11-15", "2299-12-31"], "Date32"),
        (["1899-12-31"], "String"),
        (["1960-01-01", "2025-11-15T10:00:00Z"], "DateTime64(3)"),
        (["192.0.2.1"], "String"),
        (["192.0.2.1"] * 25, "IPv4"),
        (["192.0.2.1", "2001:db8::1"] * 25, "IPv6"),
        (["192.0.2.1", "01.2.3.4"] * 25, "LowCardinality(String)"),
        (["::1", "fe80::1%eth0"] * 25, "LowCardinality(String)"),
        (["1.50", "12.25"], "Decimal(18, 2)"),
        (["1.5", "1.25"], "String"),
        (["12345678901234567.25"], "Decimal(38, 2)"),
        (["00123", "00124"], "String"),
        (["61f0c404-5cb3-11e7-907b-a6006ad3dba0"], "UUID"),
        ([None], "Nullable(String)"),
        ([1, None], "Nullable(Int64)"),
        ([[1, 2], []], "Array(Int64)"),
        ([[1, None]], "Array(Nullable(Int64))"),
        ([[]], "Array(String)"),
        ([["2025-11-15T10:00:00Z"]], "Array(DateTime64(3))"),
        ([[1, "a"]], "Array(String)"),
        ([[[1], [2]]], "Array(Array(Int64))"),
        ([[{"a": 1}]], "String"),
        ([[{"a": 1, "b": "x"}]] * 20, "Array(Tuple(a Int64, b String))"),
        ([[{"a": 1, "b": None}, {"a": 1, "b": 0.5}]] * 10, "Array(Tuple(a Int64, b Nullable(Float64)))"),
        ([[{"a": 1, "b": "x"}]] * 20 + [[{"a": 1}]], "String"),
        ([[{"a": 1}]] * 20 + [[None]], "String"),
        ([[{"a": {"b": [1]}}]] * 20, "Array(Tuple(a Tuple(b Array(Int64))))"),
        ([[{"a": None}]] * 20, "String"),
        ([[1], "x"], "String"),
        ([{}], "String"),
        ([{"x": 1}, "x"], "String"),
    ],
)
def test_the_type_of_what_was_seen(values: list[Any], kind: str) -> None:
    assert kind_of(*values) == kind


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("created_at", 1_700_000_000_000, "DateTime64(3)"),
        ("eventTime", 1_700_000_000_000, "DateTime64(3)"),
        ("ts", 1_700_000_000, "DateTime64(0)"),
        ("amount", 1_700_000_000_000, "Int64"),
        ("format", 1_700_000_000_000, "Int64"),
        ("ts", 5, "Int64"),
        ("app_version", "1.2", "String"),
    ],
)
def test_a_name_is_a_hint_and_never_enough(name: str, value: Any, kind: str) -> None:
    assert kinds({name: value})[name] == kind


@pytest.mark.parametrize(
    ("usual", "odd", "kind"),
    [
        (lambda n: f"{n}.50", "n/a", "Decimal(18, 2)"),
        (lambda n: n, "unknown", "Int64"),
        (lambda n: n, "", "Int64"),
        (lambda n: f"2026-11-15T08:30:{n % 60:02d}Z", "yesterday", "DateTime64(3)"),
        (lambda n: f"00000000-0000-4000-8000-{n:012d}", "-", "UUID"),
        (lambda n: n, 1.5, "Float64"),  # fits without rejecting anything
        (lambda n: f"name {n}", 7, "String"),
    ],
)
def test_one_odd_value_in_a_hundred_does_not_make_text_of_a_column(usual: Any, odd: Any, kind: str) -> None:
    values = [usual(n) for n in range(99)]
    found = infer([{"x": value} for value in [*values[:40], odd, *values[40:]]], topic="t")
    assert found.evidence[0].type == kind
    rejects = kind not in ("Float64", "String")
    assert ("1 of 100 values does not fit and will be rejected" in found.evidence[0].why) == rejects
    assert (abbreviated(odd) in found.evidence[0].why) >= rejects
    often = infer([{"x": value} for value in [*values, odd, odd, odd, odd]], topic="t")
    assert often.evidence[0].type in ("String", "Float64"), "four in a hundred are no accident"
    few = infer([{"x": value} for value in [*values[:20], odd]], topic="t")
    assert few.evidence[0].type in ("String", "Float64"), "too few to tell"


def test_few_distinct_texts_are_low_cardinality() -> None:
    assert kind_of(*(["new", "paid"] * 20)) == "LowCardinality(String)"
    assert kind_of(*(["new", None] * 20)) == "LowCardinality(Nullable(String))"
    assert kind_of(*(f"name {n}" for n in range(40))) == "String"
    assert kind_of("new", "paid") == "String"


def test_an_absent_array_is_an_empty_one() -> None:
    column = infer([{"a": [1]}, {"b": 1}]).mapping.columns[0]
    assert (column.type, column.nullable, column.when_null) == ("Array(Int64)", False, "default")


def test_keys_that_are_data_become_a_map() -> None:
    assert kinds(*({"n": {f"user-{n}": n}} for n in range(40))) == {"n": "Map(String, Int64)"}
    assert kinds(*({"n": {f"user-{n}": "x"}} for n in range(40))) == {"n": "Map(String, String)"}
    assert kinds(*({"n": {f"user-{n}": n % 2 == 0}} for n in range(40))) == {"n": "Map(String, Bool)"}
    assert kinds(*({"n": {f"user-{n}": "x" if n else 1}} for n in range(40))) == {"n": "String"}
    assert kinds(
        *({"n": {f"user-{n}": n, "z": None}} for n in range(4)), *({"n": {f"user-{n}": n}} for n in range(40))
    ) == {"n": "String"}
    assert kinds(*({"n": [{f"user-{n}": n}]} for n in range(40))) == {"n": "Array(Map(String, Int64))"}


def test_an_address_is_told_by_its_name_or_by_many_of_them() -> None:
    assert kinds({"client_ip": "192.0.2.1"}) == {"client_ip": "IPv4"}
    assert kinds({"peerAddress": "2001:db8::1"}) == {"peerAddress": "IPv6"}
    assert kinds(*[{"version": "1.2.3.4"}] * 30) == {"version": "LowCardinality(String)"}
    assert kinds({"build": "1.2.3.4"}) == {"build": "String"}
    assert kinds(*({"n": {f"user-{n}": {"x": n}}} for n in range(40))) == {"n": "String"}


def test_dots_and_dollars_in_keys_are_escaped_in_paths_and_not_in_names() -> None:
    found = infer([{"a.b": 1, "a": {"b": 2}, "$id": 3, "": 4, "1st": 5, "_offset": 6, "größe": 7, "%": 8}])
    assert [(column.field_path, column.column) for column in found.mapping.columns] == [
        (r"a\.b", "a_b"),
        ("a.b", "a_b_2"),
        (r"\$id", "_id"),
        ("1st", "_1st"),
        ("_offset", "_offset_2"),
        ("größe", "größe"),
        ("%", "field"),
    ]
    assert found.left_out == ('the record: the key "" cannot be part of a path',)


def test_the_evidence_says_what_was_seen() -> None:
    found = infer([{"a": 1, "b": 1}, {"a": None, "b": 2}, {"b": 3}, {"b": 4}, 7])
    evidence = found.evidence[0]
    assert (evidence.column, evidence.type, evidence.seen, evidence.nulls, evidence.absent) == (
        "a",
        "Nullable(Int64)",
        1,
        1,
        2,
    )
    assert evidence.why == "whole numbers; null in 1 and absent from 2 of 4 records"
    assert (found.evidence[1].distinct, found.evidence[1].examples) == (4, ("1", "2", "3"))
    assert (found.records, found.not_objects) == (5, 1)


def test_a_table_without_time_or_id_is_ordered_by_where_its_rows_came_from() -> None:
    assert infer([{"x": 1.5}]).order_by == ("_topic", "_partition", "_offset")


def test_the_key_never_has_a_nullable() -> None:
    assert infer([{"ts": "2025-11-15T10:00:00Z", "id": 1}, {"id": 2}]).order_by == ("id",)


@pytest.mark.parametrize("values", [[], [1, "x"], [{}]])
def test_a_sample_without_a_field_is_refused(values: list[Any]) -> None:
    with pytest.raises(InvalidError):
        infer(values)


@pytest.mark.parametrize(
    ("topic", "table"),
    [("orders", "orders"), ("a.b-c", "a_b_c"), ("", "events"), ("日本", "events"), ("1x", "t_1x"), ("_" * 9, "events")],
)
def test_the_table_is_named_after_the_topic(topic: str, table: str) -> None:
    assert table_name(topic) == table


@pytest.mark.slow
@given(st.lists(OBJECTS | st.dictionaries(st.text(max_size=4), JSON, max_size=3), max_size=8))
def test_every_record_of_the_sample_fits_the_proposal_and_a_table_can_be_made(values: list[Any]) -> None:
    try:
        found = infer(values, topic="t")
    except InvalidError:
        assert not any(values) or all(key == "" for value in values for key in value)
        return
    assert not list(mapping_errors(found.mapping))
    assert read_mapping(mapping_json(found.mapping)) == found.mapping
    assert infer(values, topic="t") == found or "nan" in str(values).lower()
    create_table(TableSpec(database="d", name=found.table, mapping=found.mapping, order_by=found.order_by))
    plan = make_coercion_plan(found.mapping)
    for value in values:
        row = coerce(plan, SourceRecord(fields=value))
        assert not isinstance(row, RejectedRecord) or "\\ud" in ascii(value), row


def test_a_record_nested_without_end_is_bounded() -> None:
    deep: dict[str, Any] = {"a": 1}
    for _ in range(200):
        deep = {"a": deep}
    assert kinds(deep) == {".".join("a" * 8): "String"}


def test_a_thousand_columns_are_enough() -> None:
    found = infer([{f"k{n}": 1 for n in range(1500)}])
    assert len(found.mapping.columns) == 1000
    assert len(found.left_out) == 500
