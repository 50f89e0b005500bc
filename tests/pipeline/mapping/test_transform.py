"""Records to rows on an executor: every record is a row, refused, or dropped by the filter."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from holdfast.pipeline.mapping.drift import AddColumns, NoDrift, StopPipeline
from holdfast.pipeline.mapping.transform import NO_VALUE, map_records, survey
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.definition import DriftPolicy, FiltersConfig, KafkaConfig, ParquetConfig, Revision

COLUMNS = (Column("id", "id", "Int64"), Column("name", "name", "String", True))


def revision(*, filters: str = "", drift: str = "ignore", columns: tuple[Column, ...] = COLUMNS) -> Revision:
    return Revision(
        version=3,
        source=KafkaConfig(topic="t"),
        sink=ParquetConfig(url="/x"),
        mapping=Mapping(columns),
        filters=FiltersConfig(bool(filters), "holdfast", filters),
        drift=DriftPolicy(unknown_fields=drift),  # type: ignore[arg-type]
    )


def records(*values: bytes | None, headers: list[Any] | None = None) -> pa.Table:
    count = len(values)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "key": pa.array([b"k%d" % n for n in range(count)], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([5] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000 + n * 1_000 for n in range(count)], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array(headers if headers is not None else [None] * count, header),
        }
    )


def test_rows_carry_where_they_came_from() -> None:
    mapped = map_records(revision(), 2, records(b'{"id": 1, "name": "a"}', b'{"id": 2}'))
    assert mapped.rows.to_pylist() == [
        {"id": 1, "name": "a", "_generation": 2, "_topic": "t", "_partition": 5, "_offset": 100},
        {"id": 2, "name": None, "_generation": 2, "_topic": "t", "_partition": 5, "_offset": 101},
    ]
    assert mapped.newest_ms == 1_700_000_000_001
    assert not mapped.refused


def test_what_is_no_json_no_object_or_does_not_fit_is_refused_with_its_bytes() -> None:
    values = [b'{"id": 1}', b"\xff\x00", None, b'{"id": "x"}', b"[1]", b'{"id": 2}']
    mapped = map_records(revision(), 1, records(*values))
    assert mapped.rows["_offset"].to_pylist() == [100, 105]
    assert [(row.offset, row.payload, row.key) for row in mapped.refused] == [
        (101, b"\xff\x00", b"k1"),
        (102, None, b"k2"),
        (103, b'{"id": "x"}', b"k3"),
        (104, b"[1]", b"k4"),
    ]
    reasons = [row.reason for row in mapped.refused]
    assert reasons[0].startswith("not JSON")
    assert reasons[1] == NO_VALUE
    assert "id (Int64)" in reasons[2]


def test_a_filter_drops_and_its_faults_are_refused() -> None:
    mapped = map_records(revision(filters="id > 1"), 1, records(b'{"id": 1}', b'{"id": 2}', b'{"id": "x"}', b"{}"))
    assert mapped.rows["id"].to_pylist() == [2]
    assert mapped.filtered == 2
    assert [row.offset for row in mapped.refused] == [102]
    assert mapped.refused[0].reason.startswith("filter: ")


def test_headers_are_read_where_they_are_used() -> None:
    columns = (*COLUMNS, Column("$headers.trace", "trace", "String"))
    table = records(b'{"id": 1}', headers=[[{"key": "trace", "value": b"t1"}]])
    assert map_records(revision(columns=columns), 1, table).rows["trace"].to_pylist() == ["t1"]


def test_unmapped_fields_overflow() -> None:
    mapped = map_records(revision(drift="overflow"), 1, records(b'{"id": 1, "new": {"a": 1}}', b'{"id": 2}'))
    assert mapped.rows["_overflow"].to_pylist() == ['{"new":{"a":1}}', ""]
    nothing_new = map_records(revision(drift="overflow"), 1, records(b'{"id": 2}'))
    assert nothing_new.rows["_overflow"].to_pylist() == [""]


def test_records_with_unmapped_fields_are_rejected_and_the_others_keep_their_offsets() -> None:
    values = [b'{"id": 1}', b'{"id": 2, "new": 1}', b'{"id": 3}', b"x", b'{"id": 4}']
    mapped = map_records(revision(drift="dlq"), 1, records(*values))
    assert list(zip(mapped.rows["id"].to_pylist(), mapped.rows["_offset"].to_pylist(), strict=True)) == [
        (1, 100),
        (3, 102),
        (4, 104),
    ]
    assert [(row.offset, row.payload) for row in mapped.refused] == [(101, values[1]), (103, b"x")]


@pytest.mark.parametrize(("policy", "kind"), [("stop", StopPipeline), ("add-column", AddColumns)])
def test_policies_that_decide_first_are_asked_first(policy: str, kind: type) -> None:
    assert isinstance(survey(revision(drift=policy), records(b'{"id": 1, "new": 5}')), kind)
    assert isinstance(survey(revision(drift=policy), records(b'{"id": 1}', b"x")), NoDrift)
    dropped = revision(drift=policy, filters="id = 7")
    assert isinstance(survey(dropped, records(b'{"id": 1, "new": 5}')), NoDrift)


def test_the_same_records_are_always_the_same_rows() -> None:
    values = [msgspec.json.encode({"id": n, "name": "x" * (n % 5), "more": n}) for n in range(2_000)]
    first = map_records(revision(drift="overflow"), 1, records(*values))
    second = map_records(revision(drift="overflow"), 1, records(*values))
    assert first.rows.equals(second.rows)
