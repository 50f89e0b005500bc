"""CSV and raw records, one by one and in batches: the outcome is the same."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.source_records import records_table

from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.mapping import transform
from holdfast.pipeline.mapping.transform import MappedBatch, map_records
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.definition import CsvOptions, KafkaConfig, ParquetConfig, Revision, SchemaRegistry

COLUMNS = (
    Column("id", "id", "Int32"),
    Column("name", "name", "String", True),
    Column("price", "price", "Float64", True),
    Column("at", "at", "DateTime64(3)", True),
    Column("good", "good", "Bool", True),
)
NAMES = ("id", "name", "price", "at", "good")


def csv(**options: Any) -> KafkaConfig:
    return KafkaConfig(topic="t", format="csv", csv=CsvOptions(**({"columns": NAMES} | options)))


def revision(source: KafkaConfig, columns: tuple[Column, ...] = COLUMNS) -> Revision:
    return Revision(version=1, source=source, sink=ParquetConfig(url="/x"), mapping=Mapping(columns))


def both_ways(source: KafkaConfig, *values: bytes | None, columns: tuple[Column, ...] = COLUMNS) -> MappedBatch:
    """The outcome, which is the same one by one."""
    chosen, table = revision(source, columns), records_table(*values)
    quick = map_records(chosen, 1, table)
    with (
        patch.object(transform, "read_csv_batch", lambda *_: None),
        patch.object(transform, "read_raw_batch", lambda *_: None),
    ):
        transform.prepared_revision.cache_clear()
        slow = map_records(chosen, 1, table)
    transform.prepared_revision.cache_clear()
    assert repr(quick.rows.to_pylist()) == repr(slow.rows.to_pylist())  # text: one NaN is like another
    assert quick.rows.schema.equals(slow.rows.schema)
    assert list(quick.refused) == list(slow.refused)
    return quick


def values(mapped: MappedBatch) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in NAMES) for row in mapped.rows.to_pylist()]


def test_what_is_no_number_is_the_same_both_ways() -> None:
    assert repr(values(both_ways(csv(), b"1,,NaN,,"))) == "[(1, None, nan, None, None)]"


def test_rows_become_columns_at_once() -> None:
    mapped = both_ways(csv(), b"1,Ann,1.5,,", b'2,"B, ""b""",,,', b"3,,,,\r\n", b'4,"",,,\n')
    assert [row[:3] for row in values(mapped)] == [(1, "Ann", 1.5), (2, 'B, "b"', None), (3, None, None), (4, "", None)]


def test_columns_that_need_a_conversion() -> None:
    mapped = both_ways(csv(), b"1,a,1,2026-11-15T08:30:00.125Z,true", b"2,a,2,2026-11-15T08:30:01Z,0")
    assert [row["good"] for row in mapped.rows.to_pylist()] == [True, False]
    assert [str(row["at"]) for row in mapped.rows.to_pylist()] == [
        "2026-11-15 08:30:00.125000+00:00",
        "2026-11-15 08:30:01+00:00",
    ]


def test_rows_that_are_none_are_rejected_and_the_others_stay() -> None:
    lines = [
        b"1,a,,,",
        b"2,a",
        b'3,"open,,,',
        b"4,\xff,,,",
        None,
        b"5,b,,,\n6,c,,,",
        b'7,"two\nlines",,,',
        b"x,a,,,",
        b"8,,,,",
    ]
    mapped = both_ways(csv(), *lines)
    assert [row[:2] for row in values(mapped)] == [(1, "a"), (7, "two\nlines"), (8, None)]
    assert [row.offset - 100 for row in mapped.refused] == [1, 2, 3, 4, 5, 7]
    reasons = [row.reason for row in mapped.refused]
    assert "Expected 5 columns, got 2" in reasons[0]
    assert all(reason.startswith("not CSV") for reason in (*reasons[:3], reasons[4]))
    assert reasons[5].startswith("id (Int32)")


def test_options() -> None:
    source = csv(delimiter=";", quote="'", nulls=("NULL",))
    mapped = both_ways(source, b"1;'a;b';1;2026-01-01;1", b"2;NULL;NULL;2026-01-01;1")
    assert [row[:3] for row in values(mapped)] == [(1, "a;b", 1.0), (2, None, None)]
    tabs = csv(delimiter="\t", quote="", columns=("id", "name"))
    assert value_decoder(tabs).decode([b'1\t"a']).values == [{"id": "1", "name": '"a'}]
    escaped = csv(escape="\\", columns=("id", "name"))
    assert value_decoder(escaped).decode([b"1,a\\,b"]).values == [{"id": "1", "name": "a,b"}]


def test_every_record_may_bring_its_names() -> None:
    source = csv(columns=(), header=True)
    lines = [b"id,name\n1,a", b"name,id\r\nb,2\r\n", b"id,id\n1,1", b"id,name\n", b"id,name"]
    mapped = both_ways(source, *lines)
    assert [row[:2] for row in values(mapped)] == [(1, "a"), (2, "b")]
    assert [row.offset - 100 for row in mapped.refused] == [2, 3, 4]


CELL = st.one_of(
    st.sampled_from(
        ["", "1", "-5", "+7", "007", " 8", "1.50", "1e3", "NaN", '"x"', '""', "99999999999", "2026-11-15", "true", "\r"]
    ),
    st.text(alphabet='ab1,"\n -.é', max_size=4),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(CELL, min_size=5, max_size=5).map(lambda cells: ",".join(cells).encode()), min_size=1, max_size=4)
)
def test_any_rows_have_one_outcome(lines: list[bytes]) -> None:
    both_ways(csv(), *lines)


BOM = b"\xef\xbb\xbf"


def test_a_byte_order_mark_is_no_part_of_a_row_wherever_its_record_is() -> None:
    bare, marked = b"1,Ann,,,", BOM + b'1,"Ann",,,'
    for records in ([marked], [bare, marked], [marked, bare, marked]):
        assert {row[:2] for row in values(both_ways(csv(), *records))} == {(1, "Ann")}
    named = csv(columns=(), header=True)
    assert value_decoder(named).decode([BOM + b"h\nx", b"h\nx", b"h\n" + BOM + b"x"]).values == [
        {"h": "x"},
        {"h": "x"},
        {"h": "\ufeffx"},
    ]
    assert (
        value_decoder(csv(columns=("a",))).decode([BOM + BOM + b"x", BOM + BOM + b"x"]).values == [{"a": "\ufeffx"}] * 2
    )


def test_raw_values_are_one_field() -> None:
    columns = (Column("value", "line", "String"),)
    raw = KafkaConfig(topic="t", format="raw")
    mapped = both_ways(raw, "é\n".encode(), b"", b"\xff", None, columns=columns)
    assert mapped.rows["line"].to_pylist() == ["é\n", ""]
    assert [row.reason.partition(":")[0] for row in mapped.refused] == ["not UTF-8", "the record has no value"]
    assert both_ways(raw, b"a", b"b", columns=columns).rows["line"].to_pylist() == ["a", "b"]
    numbers = both_ways(raw, b"12", b"-3", columns=(Column("value", "n", "Int64"),))
    assert numbers.rows["n"].to_pylist() == [12, -3]
    assert both_ways(KafkaConfig(topic="t", format="raw", raw="base64"), b"\xff", columns=columns).rows[
        "line"
    ].to_pylist() == ["/w=="]


@pytest.mark.parametrize("bad", [b'{"id": 3}', b"\1\0\0\0\1{}", b"\0\0", b'\0\0\0\0\1{"id"', None])
def test_json_behind_the_id_of_its_schema(bad: bytes | None) -> None:
    source = KafkaConfig(topic="t", schema_registry=SchemaRegistry(url="http://nobody.invalid"))  # it is not asked
    chosen = revision(source, (Column("id", "id", "Int64"),))
    good = [b'\0\0\0\0\1{"id": %d}' % number for number in range(3)]
    assert map_records(chosen, 1, records_table(*good)).rows["id"].to_pylist() == [0, 1, 2]
    mapped = map_records(chosen, 1, records_table(good[0], bad, good[2]))
    assert mapped.rows["id"].to_pylist() == [0, 2]
    assert [row.payload for row in mapped.refused] == [bad]
