"""Changes of rows through filter, drift and mapping, and what a table makes of them."""

from typing import Any

import msgspec
import pytest
from tests.support.change_events import SourceTable, encoded, event
from tests.support.change_revisions import COLUMNS, SINK, change_revision, composed
from tests.support.source_records import records_table

from holdfast.client.topic_reader import KafkaRecord
from holdfast.pipeline.catalog.revisions import table_of
from holdfast.pipeline.mapping.ddl import create_table, keeps_last_insert
from holdfast.pipeline.mapping.drift import NoDrift, StopPipeline
from holdfast.pipeline.mapping.transform import map_records, survey
from holdfast.pipeline.model.definition import ClickHouseConfig, Revision
from holdfast.pipeline.service.previews import preview
from holdfast.pipeline.service.samples import inferred, sample

VERSION = {"fieldPath": "v", "column": "_version", "type": "UInt64"}


def mapped_rows(made: Revision, *log: tuple[bytes | None, bytes | None]) -> list[tuple[Any, ...]]:
    table = records_table(*(value for _, value in log), keys=[key for key, _ in log])
    mapped = map_records(made, 1, table)
    assert mapped.rows.num_rows + len(mapped.refused) + mapped.filtered == len(log)
    return [(row["id"], row["name"], row["_version"], row["_deleted"]) for row in mapped.rows.to_pylist()]


def test_upserts_and_deletes_are_rows_with_a_version() -> None:
    source = SourceTable()
    source.snapshot(1, "a")
    source.upsert(2, "b")
    source.upsert(1, "c")
    source.delete(2, full=False)
    source.delete(1)
    rows = mapped_rows(change_revision(), *source.log)
    assert rows == [(1, "a", 100, 0), (2, "b", 101, 0), (1, "c", 102, 0), (2, "", 103, 1), (1, "c", 105, 1)]


def test_a_row_that_the_filter_drops_is_deleted() -> None:
    source = SourceTable()
    source.upsert(1, "keep")
    source.upsert(1, "drop")
    source.delete(1)
    filtered = change_revision(filters={"enabled": True, "expression": "name = 'keep'"})
    assert mapped_rows(filtered, *source.log) == [(1, "keep", 100, 0), (1, "drop", 101, 1), (1, "drop", 102, 1)]
    failing = change_revision(filters={"enabled": True, "expression": "name > 1"})
    assert [row[3] for row in mapped_rows(failing, *source.log)] == [1]


def test_a_delete_needs_its_key_and_nothing_else() -> None:
    log = [
        (None, encoded(event("d", {"name": "x"}))),
        (None, encoded(event("d", {"id": None, "name": "x"}))),
        (None, encoded(event("d", {"id": 3}))),
        (None, encoded(event("c", None, {"id": 4}))),
    ]
    table = records_table(*(value for _, value in log))
    mapped = map_records(change_revision(), 1, table)
    assert mapped.rows["id"].to_pylist() == [3]
    assert [row.offset for row in mapped.refused] == [100, 101, 103]
    assert "a delete needs the key of its row" in mapped.refused[0].reason


def test_drift_is_that_of_rows_that_stay() -> None:
    key = encoded({"id": 1})
    gone = records_table(encoded(event("d", {"id": 1, "old": 5})), None, keys=[key, key])
    new = records_table(encoded(event("c", None, {"id": 1, "name": "", "new": 5})), keys=[key])
    stops = change_revision(drift={"unknownFields": "stop"})
    assert survey(stops, gone) == NoDrift()
    assert survey(stops, new) == StopPipeline(("new",), "fields that are not in the mapping")
    overflow = change_revision(drift={"unknownFields": "overflow"})
    assert map_records(overflow, 1, new).rows["_overflow"].to_pylist() == ['{"new":5}']
    assert map_records(overflow, 1, gone).rows["_overflow"].to_pylist() == [""]


def test_facts_of_the_event_can_be_columns() -> None:
    columns = [
        *COLUMNS,
        {"fieldPath": "$op", "column": "op", "type": "String", "nullable": True},
        {"fieldPath": "$source.lsn", "column": "lsn", "type": "Int64", "nullable": True},
    ]
    source = SourceTable()
    source.upsert(1, "a")
    source.delete(1, delete=False)
    table = records_table(*(value for _, value in source.log), keys=[key for key, _ in source.log])
    rows = map_records(change_revision(mapping={"columns": columns}), 1, table).rows.to_pylist()
    assert [(row["op"], row["lsn"], row["_deleted"]) for row in rows] == [("c", 1_010, 0), (None, None, 1)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sink": {"kind": "parquet", "url": "/x"}}, "rows in a parquet sink are never updated or deleted"),
        ({"sink": {"kind": "topic", "topic": "u"}}, "rows in a topic sink are never updated or deleted"),
        ({"sink": {**SINK, "engine": "MergeTree"}}, "a MergeTree keeps every version of a row"),
        ({"sink": {**SINK, "orderBy": []}}, "sink.orderBy: debezium needs the columns of the primary key"),
        ({"sink": {**SINK, "versionColumn": "id"}}, "sink.versionColumn: must be empty with debezium"),
        ({"sink": {**SINK, "deletedColumn": "id"}}, "sink.deletedColumn: must be empty with debezium"),
        ({"sink": {**SINK, "orderBy": ["id", "toString(name)"]}}, "needs the columns of the primary key"),
        ({"sql": {"sql": "select * from rows"}}, "sql: must be empty with debezium"),
        ({"mapping": {"columns": [*COLUMNS, VERSION]}}, "_version is a column of debezium itself"),
    ],
)  # fmt: skip
def test_sinks_that_cannot_delete_are_refused(given: dict[str, Any], says: str) -> None:
    problems = composed(**given)
    assert isinstance(problems, tuple)
    assert says in "; ".join(problems)


def test_the_table_has_a_version_and_a_deletion() -> None:
    made = change_revision()
    assert isinstance(made.sink, ClickHouseConfig)
    statement = create_table(table_of(made))
    assert "ENGINE = ReplacingMergeTree(`_version`, `_deleted`)\nORDER BY (`id`)" in statement
    assert "`_version` UInt64,\n    `_deleted` UInt8" in statement
    assert not keeps_last_insert(made.sink)  # so that backfills and replays are allowed


def test_the_mapping_is_inferred_from_rows_and_the_sorting_key_from_keys() -> None:
    source = SourceTable()
    source.upsert(1, "a")
    source.upsert(2, "b")
    source.delete(2, full=False)
    records = [KafkaRecord(0, number, 0, key, value, ()) for number, (key, value) in enumerate(source.log)]
    taken = sample(change_revision().source, 1, records)
    assert [record.op for record in taken.records] == ["c", "c", "d", "d"]
    found = inferred(taken)
    assert [(column.column, str(column.kind)) for column in found.mapping.columns] == [
        ("id", "Int64"),
        ("name", "String"),
    ]
    assert found.order_by == ("id",)
    shown = preview(change_revision(), records)
    assert [(row.row["id"], row.row["_deleted"]) for row in shown.rows] == [(1, 0), (2, 0), (2, 1)]


def test_a_stored_revision_without_an_envelope_is_as_it_was() -> None:
    stored = msgspec.json.encode(change_revision())
    assert msgspec.json.decode(stored, type=Revision) == change_revision()
