"""Changes in a real table: it has the rows of the source, whatever is written again."""

import itertools
import random  # noqa: TID251 (changes are the test's own)
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.change_events import SourceTable
from tests.support.change_revisions import COLUMNS, SINK, change_revision
from tests.support.format_examples import avro_bytes
from tests.support.schema_registry import framed, schema_registry
from tests.support.sink_destinations import ClickHouseDatabase, lose_parts
from tests.support.sink_values import fenced_range
from tests.support.source_records import records_table

from holdfast.pipeline.catalog.revisions import table_of
from holdfast.pipeline.mapping.content_hash import digest_of
from holdfast.pipeline.mapping.ddl import create_table
from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink
from holdfast.pipeline.sinks.contract import BlockedError, SinkTarget


def target_in(clickhouse: ClickHouseDatabase, **source: Any) -> SinkTarget:
    sink = {**SINK, "dsn": clickhouse.server.url, "database": clickhouse.database}
    made = change_revision(sink=sink, source=source)
    return SinkTarget(pipeline_id="p1", generation=1, revision=made, columns=made.mapping.columns)


def final_rows(clickhouse: ClickHouseDatabase) -> dict[int, str]:
    rows = clickhouse.ask(f"SELECT id, name FROM {clickhouse.database}.orders FINAL")
    return {int(row["id"]): row["name"] for row in rows}


@pytest.mark.parametrize(("version", "seed"), [("offset", 0), ("offset", 1), ("position", 2), ("ts", 3)])
def test_the_table_is_the_sources_whatever_is_written_again(
    version: str, seed: int, clickhouse: ClickHouseDatabase
) -> None:
    chance, source = random.Random(seed), SourceTable()
    for number in range(10):
        source.snapshot(number, f"s{number}")
    for _ in range(300):
        number, change = chance.randrange(20), chance.random()
        if change < 0.7:
            source.upsert(number, f"n{chance.randrange(1_000)}")
        else:
            # With other versions than offsets, a tombstone alone says nothing: only the log orders it.
            compacted = version == "offset" and change > 0.95
            source.delete(number, full=change < 0.8, tombstone=change < 0.9, delete=not compacted)
    target = target_in(clickhouse, debezium={"version": version})
    sink = ClickHouseSink(target)
    sink.prepare()
    table = records_table(
        *(value for _, value in source.log), keys=[key for key, _ in source.log], first=0, partition=0
    )
    cuts = sorted({0, len(source.log), *(chance.randrange(len(source.log)) for _ in range(3))})
    ranges = list(itertools.pairwise(cuts))
    for start, end in [*ranges, *chance.sample(ranges, 2)]:
        part = table.slice(start, end - start).combine_chunks()
        mapped, again = map_records(target.revision, 1, part), map_records(target.revision, 1, part)
        assert digest_of(mapped.rows, mapped.refused) == digest_of(again.rows, again.refused)
        assert not mapped.refused
        attempt = replace(fenced_range(start, end), may_be_written=start > 0 and chance.random() < 0.7)
        sink.write(attempt, pa.Table.from_batches([mapped.rows]), ())
    if seed:
        # A backfill of everything, as another generation: older versions do not win.
        other = ClickHouseSink(replace(target, generation=2))
        start, end = ranges[0]
        early = map_records(target.revision, 2, table.slice(start, end - start).combine_chunks())
        other.write(fenced_range(start, end), pa.Table.from_batches([early.rows]), ())
        other.close()
    sink.close()
    expected = {number: row["name"] for number, row in source.rows.items()}
    assert final_rows(clickhouse) == expected
    clickhouse.run(f"OPTIMIZE TABLE {clickhouse.database}.orders FINAL")
    assert final_rows(clickhouse) == expected


def test_a_token_without_its_rows_loses_no_change(clickhouse: ClickHouseDatabase) -> None:
    source = SourceTable()
    for name in ("a", "b"):  # of which one is left
        source.upsert(1, name)
    target = target_in(clickhouse)
    mapped = map_records(target.revision, 1, records_table(*(value for _, value in source.log), first=0, partition=0))
    sink = ClickHouseSink(target)
    sink.prepare()
    of, rows = fenced_range(0, 2), pa.Table.from_batches([mapped.rows])
    sink.write(of, rows, ())
    for _ in range(2):  # however often: there is no last token
        assert lose_parts(clickhouse)
        sink.write(replace(of, may_be_written=True), rows, ())
        assert final_rows(clickhouse) == {1: "b"}
    sink.close()


def test_rows_that_a_ttl_has_deleted_do_not_come_back(clickhouse: ClickHouseDatabase) -> None:
    source = SourceTable()
    for name in ("a", "b"):
        source.upsert(1, name)
    at = {"fieldPath": "$timestamp", "column": "at", "type": "DateTime"}  # of 2023
    sink_part = {**SINK, "dsn": clickhouse.server.url, "database": clickhouse.database, "ttl": "at + INTERVAL 1 DAY"}
    made = change_revision(sink=sink_part, mapping={"columns": [*COLUMNS, at]})
    target = SinkTarget(pipeline_id="p1", generation=1, revision=made, columns=made.mapping.columns)
    mapped = map_records(made, 1, records_table(*(value for _, value in source.log), first=0, partition=0))
    sink = ClickHouseSink(target)
    sink.prepare()
    sink.write(fenced_range(0, 2), pa.Table.from_batches([mapped.rows]), ())
    clickhouse.run(f"OPTIMIZE TABLE {clickhouse.database}.orders FINAL")
    clickhouse.run(f"SYSTEM STOP MERGES {clickhouse.database}.orders")  # which would delete them once more
    sink.write(replace(fenced_range(0, 2), may_be_written=True), pa.Table.from_batches([mapped.rows]), ())
    sink.close()
    assert final_rows(clickhouse) == {}


def test_avro_with_keys_of_its_own_schema(clickhouse: ClickHouseDatabase) -> None:
    key_schema = {"type": "record", "name": "Key", "namespace": "db.t", "fields": [{"name": "id", "type": "long"}]}
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
    states = [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": fields}], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
    ]
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "db.t",
        "fields": [*states, {"name": "op", "type": "string"}],
    }
    with schema_registry() as registry:
        keys, values = registry.register(key_schema), registry.register(envelope)

        def record(number: int, value: Any) -> tuple[bytes, bytes | None]:
            made = None if value is None else framed(values, avro_bytes(envelope, value))
            return framed(keys, avro_bytes(key_schema, {"id": number})), made

        ann, bob = {"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}
        log = [
            record(1, {"before": None, "after": ann, "op": "r"}),
            record(2, {"before": None, "after": bob, "op": "c"}),
            record(2, {"before": bob, "after": {"id": 2, "name": "rob"}, "op": "u"}),
            record(3, {"before": None, "after": {"id": 3, "name": "eve"}, "op": "c"}),
            record(1, None),
            record(3, {"before": None, "after": None, "op": "d"}),
        ]
        target = target_in(clickhouse, format="avro", schemaRegistry={"url": registry.url})
        table = records_table(*(value for _, value in log), keys=[key for key, _ in log], first=0, partition=0)
        mapped = map_records(target.revision, 1, table)
    assert not mapped.refused
    sink = ClickHouseSink(target)
    sink.prepare()
    sink.write(fenced_range(0, len(log)), pa.Table.from_batches([mapped.rows]), ())
    sink.close()
    assert final_rows(clickhouse) == {2: "rob"}


@pytest.mark.parametrize(
    ("engine", "order"),
    [
        ("MergeTree", "id"),
        ("ReplacingMergeTree", "id"),
        ("ReplacingMergeTree(_version)", "id"),
        ("ReplacingMergeTree(_version, _deleted)", "name"),
    ],
)
def test_an_existing_table_that_cannot_delete_blocks(engine: str, order: str, clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse)
    statement = create_table(table_of(target.revision))
    statement = statement.replace("ReplacingMergeTree(`_version`, `_deleted`)", engine).replace(
        "ORDER BY (`id`)", f"ORDER BY {order}"
    )
    clickhouse.run(statement)
    sink = ClickHouseSink(target)
    with pytest.raises(BlockedError, match="updates and deletes need"):
        sink.prepare()
    sink.close()


def test_a_table_that_fits_is_used(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse)
    clickhouse.run(create_table(table_of(target.revision)))
    sink = ClickHouseSink(target)
    sink.prepare()
    sink.close()
