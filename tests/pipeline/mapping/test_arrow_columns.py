"""Columns of a batch: the same as record by record, in Arrow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clickhouse_types import TYPES
from tests.support.coercions import FITS
from tests.support.examples import examples
from tests.support.pipeline_values import JSON, arrow_rows, mapping_of, records_of

from holdfast.clickhouse.types import Type, parse_type
from holdfast.pipeline.filters.evaluation import make_filter, select
from holdfast.pipeline.mapping.coercion import RejectedRecord, coerce, converter, make_coercion_plan
from holdfast.pipeline.mapping.drift import Overflow, decide
from holdfast.pipeline.model.column_mapping import Column, Mapping, make_column
from holdfast.pipeline.model.records import SourceRecords

pa = pytest.importorskip("pyarrow")
from holdfast.pipeline.mapping.arrow import arrow_type, quick  # noqa: E402
from holdfast.pipeline.mapping.arrow_columns import coerce_all, with_provenance  # noqa: E402

ALIKE = [
    st.text(), st.integers(), st.integers(0, 10**13), st.booleans(), st.floats(), st.datetimes().map(lambda when: when.isoformat()),
    st.datetimes().map(lambda when: when.isoformat() + "Z"), st.dates().map(str), st.uuids().map(str),
    st.integers(10**11, 10**14), st.integers(10**14, 10**17), st.lists(st.integers()), st.lists(st.text()), JSON,
    st.ip_addresses().map(str), st.ip_addresses(v=4).map(str), st.sampled_from(["a", "b", "c"]), st.text(max_size=3),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9) | st.none()),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    st.lists(st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["a", "b", "192.0.2.1"]))),
]  # fmt: skip
VALUES = st.sampled_from(ALIKE).flatmap(lambda one: st.lists(one | st.none() if one is not JSON else one, max_size=6))


def same_as_alone(mapping: Mapping, records: SourceRecords) -> None:
    plan = make_coercion_plan(mapping)
    alone = [coerce(plan, records.at(row)) for row in range(len(records))]
    together = coerce_all(plan, records)
    assert list(together.refused) == [
        (row, found) for row, found in enumerate(alone) if isinstance(found, RejectedRecord)
    ]
    assert list(together.taken) == [row for row, found in enumerate(alone) if not isinstance(found, RejectedRecord)]
    stored = [found for found in alone if not isinstance(found, RejectedRecord)]
    for number, target in enumerate(plan.targets):
        column = together.batch.column(number)
        assert column.type == arrow_type(target.kind)
        assert column.equals(pa.array([row[number] for row in stored], arrow_type(target.kind))) or has_nan(column)


def has_nan(column: Any) -> bool:
    return "nan" in str(column.to_pylist()).lower()


@pytest.mark.slow
@examples(3)
@given(TYPES, VALUES)
def test_a_column_is_what_its_values_are_alone(kind: Type, values: list[Any]) -> None:
    same_as_alone(Mapping((make_column("a", "a", kind),)), records_of(*({"a": value} for value in values)))


@examples(3)
@given(
    st.sampled_from(
        [
            "DateTime",
            "DateTime64(0)",
            "DateTime64(3)",
            "DateTime64(6)",
            "DateTime64(9)",
            "Date",
            "DateTime64(2)",
            "UUID",
        ]
    ),
    VALUES,
)
def test_times_by_arrow_are_times_by_hand(text: str, values: list[Any]) -> None:
    same_as_alone(mapping_of(a=text), records_of(*({"a": value} for value in values)))


@examples(3)
@given(
    st.sampled_from(
        [
            "IPv4",
            "IPv6",
            "Enum8('a' = 1, 'b' = 2)",
            "Nullable(Enum16('a' = 1, 'b' = 2))",
            "FixedString(2)",
            "Nullable(Date32)",
            "JSON",
            "Tuple(a Nullable(Int64), b Nullable(Int64))",
            "Tuple(a Int64, b UInt8)",
            "Tuple(Int8, String)",
            "Map(String, Nullable(Int8))",
            "Array(Map(String, Enum8('a' = 1, 'b' = 2)))",
            "Array(Tuple(a Nullable(String), b Nullable(IPv6)))",
            "Array(Nullable(FixedString(9)))",
        ]
    ),
    VALUES,
)
def test_every_form_by_arrow_is_as_by_hand(text: str, values: list[Any]) -> None:
    same_as_alone(mapping_of(a=text), records_of(*({"a": value} for value in values)))


@pytest.mark.parametrize(
    "kind", ["Tuple(a Int64, b IPv6)", "Array(Tuple(a Int64, b IPv6))", "Map(String, Tuple(a Int64, b IPv6))"]
)
def test_nested_columns_are_converted_as_a_whole(kind: str) -> None:
    value: Any = {"a": 1, "b": "2001:DB8::1"}
    value = [value, value] if kind.startswith("Array") else {"x": value} if kind.startswith("Map") else value
    column = quick(parse_type(kind), [value, value])
    assert column is not None
    assert column.equals(pa.array([converter(parse_type(kind))(value)] * 2, arrow_type(parse_type(kind))))


@pytest.mark.parametrize(("text", "value", "stored"), FITS)
def test_what_fits_alone_fits_in_a_column(text: str, value: Any, stored: Any) -> None:
    same_as_alone(mapping_of(a=text), records_of({"a": value}, {"a": value}))


@pytest.mark.parametrize(
    "times",
    [
        ["2025-11-15T10:00:00Z", "2025-11-15T10:00:00+02:00"],
        ["2025-11-15T10:00:00Z", "2025-11-15T10:00:00"],
        ["2025-11-15T10", "2025-11-15 10:11"],
        ["2025-11-15T10+02", "2025-11-15T10:00-0130"],
        ["2025-11-15T10:00:00.123456789Z"],
        ["2300-01-01T00:00:00Z"],
        ["0001-01-01", "9999-12-31"],
        [None, "2025-11-15"],
    ],
)
@pytest.mark.parametrize("text", ["DateTime64(3)?", "DateTime64(9)?", "DateTime?"])
def test_every_spelling_of_a_time_is_read_alike(text: str, times: list[str | None]) -> None:
    same_as_alone(mapping_of(a=text), records_of(*({"a": time} for time in times)))


def test_a_refused_record_is_in_no_column_and_in_the_list() -> None:
    records = records_of({"a": 1, "b": "x"}, {"a": "no", "b": "y"}, 5, {"a": 3, "b": None})
    found = coerce_all(make_coercion_plan(mapping_of(a="Int64", b="String")), records)
    assert arrow_rows(found.batch) == [(1, "x")]
    assert found.taken == [0]
    assert [(row, [refusal.column for refusal in refused.refusals]) for row, refused in found.refused] == [
        (1, ["a"]),
        (2, [""]),
        (3, ["b"]),
    ]


def test_provenance_is_that_of_the_rows_that_were_taken() -> None:
    records = records_of({"a": 1}, {"a": None}, {"a": 3})
    batch = with_provenance(coerce_all(make_coercion_plan(mapping_of(a="Int64")), records), records, generation=2)
    assert batch.schema.names == ["a", "_generation", "_topic", "_partition", "_offset"]
    assert arrow_rows(batch) == [(1, 2, "t", 3, 100), (3, 2, "t", 3, 102)]


def test_what_overflows_stands_beside_its_row() -> None:
    records = records_of({"a": 1, "x": 5}, {"a": None, "x": 6}, {"a": 3})
    decision = decide("overflow", mapping_of(a="Int64"), records.fields)
    assert isinstance(decision, Overflow)
    coerced = coerce_all(make_coercion_plan(mapping_of(a="Int64")), records)
    batch = with_provenance(coerced, records, generation=1, overflow=decision.texts)
    assert batch.schema.names == ["a", "_overflow", "_generation", "_topic", "_partition", "_offset"]
    assert batch.column(1).to_pylist() == ['{"x":5}', ""]


def test_what_a_filter_kept_is_mapped_with_its_own_offsets() -> None:
    records = records_of({"a": 1}, {"a": 2}, {"a": 3})
    kept = records.take(select(make_filter("a != 2"), records).kept)
    batch = with_provenance(coerce_all(make_coercion_plan(mapping_of(a="Int64")), kept), kept, generation=1)
    assert arrow_rows(batch) == [(1, 1, "t", 3, 100), (3, 1, "t", 3, 102)]


@pytest.mark.slow
@examples(3)
@given(
    st.integers(1, 45),
    st.integers(0, 10),
    st.lists(st.from_regex(r"[+-]?[0-9]{0,6}\.?[0-9]{0,12}(e[0-9])?", fullmatch=True), max_size=4),
)
def test_decimals_by_arrow_are_decimals_by_hand(precision: int, scale: int, texts: list[str]) -> None:
    kind = f"Decimal({precision}, {min(scale, precision)})"
    same_as_alone(mapping_of(a=kind), records_of(*({"a": text} for text in texts)))


def test_columns_may_come_from_anywhere_in_a_record() -> None:
    records = SourceRecords(
        fields=[{"u": {"n": "a", "t": [1]}, "l": [{"s": "x"}, {}]}, {"u": {"n": "b", "t": []}}],
        keys=["k", None],
        headers=[{"h": "1"}, {}],
        offsets=[7, 8],
        timestamps=[1_700_000_000_000, 0],
    )
    paths = {"u.n": "String", "u.t": "Array(Int8)", "l[].s": "Array(Nullable(String))", "l[0].s": "String", "$key": "String",
             "$headers.h": "Int8", "$headers": "Map(String, String)", "$offset": "UInt64",
             "$timestamp": "DateTime64(3)", "$topic": "String"}  # fmt: skip
    columns = tuple(Column(path, f"c{n}", text, when_null="default") for n, (path, text) in enumerate(paths.items()))
    same_as_alone(Mapping(columns), records)
    found = coerce_all(make_coercion_plan(Mapping(columns)), records).batch
    assert found.column(2).to_pylist() == [["x", None], []]
    assert found.column(5).to_pylist() == [1, 0]


def test_text_that_is_not_unicode_is_refused_among_text_that_is() -> None:
    records = records_of({"a": "x"}, {"a": "\ud800"}, {"a": "y\0"})
    same_as_alone(mapping_of(a="String"), records)
    same_as_alone(mapping_of(a="Array(String)"), records_of({"a": ["x"]}, {"a": ["\ud800"]}))
    assert coerce_all(make_coercion_plan(mapping_of(a="String")), records).taken == [0, 2]


def test_no_records_make_an_empty_batch() -> None:
    found = coerce_all(
        make_coercion_plan(mapping_of(a="Int64", b="DateTime64(3)", c="Map(String, Int8)")), records_of()
    )
    assert found.batch.num_rows == 0
    assert found.batch.schema.names == ["a", "b", "c"]
