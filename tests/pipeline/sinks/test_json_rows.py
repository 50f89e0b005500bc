"""Rows as JSON: by columns, and always what each row is by itself."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from holdfast.pipeline.sinks.json_rows import json_rows, key_texts

pa = pytest.importorskip("pyarrow")

TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2299, 12, 31), timezones=st.just(UTC))
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float64(), st.floats()),
    "single": (pa.float32(), st.floats(width=32)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=5)),
    'na"me': (pa.string(), st.sampled_from(["a", 'b"', "\\", "\n", "\x7f", "日"])),
    "us": (pa.timestamp("us", "UTC"), TIMES),
    "ms": (pa.timestamp("ms", "UTC"), TIMES.map(lambda at: at.replace(microsecond=at.microsecond // 1_000 * 1_000))),
    "s": (pa.timestamp("s", "UTC"), TIMES.map(lambda at: at.replace(microsecond=0))),
    "day": (pa.date32(), st.dates(date(1970, 1, 1), date(2149, 6, 6))),
    "decimal": (pa.decimal128(18, 4), st.decimals(-(10**9), 10**9, places=4)),
    "list": (pa.list_(pa.string()), st.lists(st.text(max_size=2), max_size=2)),
}
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}), min_size=1, max_size=4
)


def table_of(given_rows: list[dict[str, Any]]) -> Any:
    return pa.table({name: pa.array([row[name] for row in given_rows], kind) for name, (kind, _) in COLUMNS.items()})


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else format(value, "f") if isinstance(value, Decimal) else value


@examples(2)
@given(rows)
def test_columns_become_what_each_row_is_by_itself(given_rows: list[dict[str, Any]]) -> None:
    made = table_of(given_rows)
    expected = [msgspec.json.encode({name: plain(each) for name, each in row.items()}) for row in made.to_pylist()]
    assert json_rows(made).to_pylist() == expected


@examples()
@given(rows)
def test_keys_are_texts_without_quotes(given_rows: list[dict[str, Any]]) -> None:
    made = table_of(given_rows)
    for name in COLUMNS:
        values = map(plain, made.column(name).to_pylist())
        expected = [
            None if each is None else each.encode() if isinstance(each, str) else msgspec.json.encode(each)
            for each in values
        ]
        assert key_texts(made.column(name)).to_pylist() == expected


def test_no_rows_and_no_columns() -> None:
    assert json_rows(table_of([])).to_pylist() == []
    assert json_rows(pa.table({})).to_pylist() == []


def test_a_map_is_an_object_and_an_array_an_array_also_when_they_are_empty() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    rows = pa.table(
        {
            "map": pa.array([[("a", 1)], [], None], kind),
            "list": pa.array([[1], [], None], pa.list_(pa.int64())),
            "maps": pa.array([[[]], [[("b", 2)], []], None], pa.list_(kind)),
            "map of maps": pa.array([[("c", [])], [], None], pa.map_(pa.string(), kind)),
        }
    )
    assert [json.loads(value) for value in json_rows(rows).to_pylist()] == [
        {"map": {"a": 1}, "list": [1], "maps": [{}], "map of maps": {"c": {}}},
        {"map": {}, "list": [], "maps": [{"b": 2}, {}], "map of maps": {}},
        {"map": None, "list": None, "maps": None, "map of maps": None},
    ]
