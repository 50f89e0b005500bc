"""From bytes of every format to a table: sampled, inferred, mapped, written, and written again."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.format_examples import FORMATS, NEWER_ORDER, avro_bytes, format_example, order
from tests.support.schema_registry import framed, schema_registry
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.sink_values import fenced_range
from tests.support.source_records import records_table

from holdfast.clickhouse.types import parse_type
from holdfast.client.topic_reader import KafkaRecord
from holdfast.pipeline.formats.decoders import declared_fields
from holdfast.pipeline.mapping.content_hash import digest_of
from holdfast.pipeline.mapping.drift import AddColumns, NoDrift, StopPipeline
from holdfast.pipeline.mapping.transform import map_records, survey
from holdfast.pipeline.model.column_mapping import Column, Mapping, make_column
from holdfast.pipeline.model.definition import DriftPolicy, KafkaConfig, ParquetConfig, Revision
from holdfast.pipeline.service.samples import inferred, sample
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink
from holdfast.pipeline.sinks.contract import SinkTarget
from holdfast.vocabulary.errors import UnavailableError

TYPES = {"id": "Int64", "at": "DateTime64(3)", "total": "Decimal(18, 2)", "name": "Nullable(String)"}


def inferred_mapping(source: KafkaConfig, payloads: list[bytes]) -> Mapping:
    records = [KafkaRecord(0, number, 0, None, payload, ()) for number, payload in enumerate(payloads)]
    return inferred(sample(source, 1, records)).mapping


def revision(source: KafkaConfig, mapping: Mapping, sink: Any, drift: Any = "ignore") -> Revision:
    return Revision(version=1, source=source, sink=sink, mapping=mapping, drift=DriftPolicy(unknown_fields=drift))


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_orders_are_the_same_rows_in_every_format(name: str, clickhouse: ClickHouseDatabase) -> None:
    with format_example(name) as example:
        source, payloads = example.source("orders"), [example.encode(number) for number in range(40)]
        mapping = inferred_mapping(source, payloads)
        kinds = {column.column: str(column.kind) for column in mapping.columns}
        if name == "csv":  # its numbers are texts
            kinds["id"] = "Int64"
        assert kinds == TYPES
        columns = tuple(replace_type(column, TYPES[column.column]) for column in mapping.columns)
        made = revision(source, Mapping(columns), clickhouse.config())
        target = SinkTarget(pipeline_id="p1", generation=1, revision=made, columns=columns)
        sink, table = ClickHouseSink(target), records_table(*payloads, b"\xff", first=0, partition=0)
        sink.prepare()
        mapped = map_records(made, 1, table)
        again = map_records(made, 1, table)
    assert digest_of(mapped.rows, mapped.refused) == digest_of(again.rows, again.refused)
    for attempt in (fenced_range(0, 41), replace(fenced_range(0, 41), may_be_written=True)):
        sink.write(attempt, pa.Table.from_batches([mapped.rows]), mapped.refused)
    sink.close()
    rows = clickhouse.ask(
        f"SELECT id, toString(at) AS at, toString(total) AS total, name FROM {clickhouse.database}.orders ORDER BY id"
    )
    assert len(rows) == 40
    for number, row in enumerate(rows):
        expected = order(number)
        assert int(row["id"]) == number
        assert row["at"] == expected["at"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        assert float(row["total"]) == float(expected["total"])
        assert row["name"] == expected["name"]
    refused = clickhouse.ask(f"SELECT _offset, reason, hex(payload) AS payload FROM {clickhouse.database}.orders_dlq")
    assert [(int(row["_offset"]), row["payload"]) for row in refused] == [(40, "FF")]


def replace_type(column: Column, kind: str) -> Column:
    return make_column(column.field_path, column.column, parse_type(kind))


def test_a_field_of_a_newer_schema_is_drift() -> None:
    with format_example("avro") as example:
        source = example.source("orders")
        mapping = inferred_mapping(source, [example.encode(number) for number in range(40)])
        newer = example.registry.register(NEWER_ORDER)
        value = avro_bytes(NEWER_ORDER, {**order(1), "coupon": "TEN"})
        table = records_table(example.encode(0), framed(newer, value))
        unset = records_table(framed(newer, avro_bytes(NEWER_ORDER, {**order(1), "coupon": None})))

        def made(policy: str) -> Revision:
            return revision(source, mapping, ParquetConfig(url="/x"), policy)

        added = survey(made("add-column"), table)
        assert isinstance(added, AddColumns)
        assert [(column.column, str(column.kind)) for column in added.columns] == [("coupon", "Nullable(String)")]
        assert survey(made("stop"), table) == StopPipeline(("coupon",), "fields that are not in the mapping")
        assert survey(made("stop"), unset) == NoDrift()
        assert map_records(made("overflow"), 1, table).rows["_overflow"].to_pylist() == ["", '{"coupon":"TEN"}']
        diverted = map_records(made("dlq"), 1, table)
        assert (diverted.rows.num_rows, [row.offset for row in diverted.refused]) == (1, [101])
        assert map_records(made("ignore"), 1, table).rows.num_rows == 2
        grown = revision(source, added.mapping, ParquetConfig(url="/x"))
        assert map_records(grown, 1, table).rows["coupon"].to_pylist() == [None, "TEN"]


def test_a_registry_that_is_away_fails_the_range_and_rejects_nothing() -> None:
    with format_example("avro") as example:
        source, payload = example.source("orders"), example.encode(1)
        mapping = inferred_mapping(example.source("orders"), [payload])
        other = revision(
            KafkaConfig(topic="t", format="avro", schema_registry=example.registry.config),
            mapping,
            ParquetConfig(url="/x"),
        )
        example.registry.status = 503
        newer = records_table(framed(example.registry.register(NEWER_ORDER), b""))
        with pytest.raises(UnavailableError, match="status 503"):
            map_records(other, 1, newer)
        with pytest.raises(UnavailableError, match="status 503"):
            survey(other, newer)
        with pytest.raises(UnavailableError, match="status 503"):
            sample(source, 1, [KafkaRecord(0, 0, 0, None, framed(9, b""), ())])


def test_a_schema_says_what_a_sample_does_not_show() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": ["null", "int"]}],
    }
    kinds = {
        "id": "long", "seen": ["null", "string"], "price": money, "none": ["null", {"type": "int", "logicalType": "date"}],
        "inner": ["null", inner], "tags": ["null", {"type": "array", "items": "string"}],
        "at": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
    }  # fmt: skip
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    value = {
        "id": 1,
        "seen": "a",
        "price": Decimal("1.5"),
        "none": None,
        "inner": {"x": 1, "y": 2},
        "tags": ["t"],
        "at": 5,
    }
    with schema_registry() as registry:
        number = registry.register(schema)
        payload = framed(number, avro_bytes(schema, value))
        source = KafkaConfig(topic="t", format="avro", schema_registry=registry.config)
        taken = sample(source, 1, [KafkaRecord(0, 0, 0, None, payload, ()), KafkaRecord(0, 1, 0, None, b"\1", ())])
        found = inferred(taken, declared_fields(source, [payload, b"\1", None]))
    assert {column.column: str(column.kind) for column in found.mapping.columns} == {
        "id": "Int64",
        "seen": "Nullable(String)",
        "price": "Decimal(20, 4)",
        "none": "Nullable(Date)",
        "inner_x": "Nullable(Int64)",
        "inner_y": "Nullable(Int64)",
        "tags": "Array(String)",
        "at": "Nullable(DateTime64(6))",
    }
    evidence = {each.column: each.why for each in found.evidence}
    assert evidence["seen"].endswith("the schema says that it may be null")
    assert found.order_by == ("id",)


@pytest.mark.slow
def test_a_definition_says_which_fields_may_be_absent() -> None:
    with format_example("protobuf") as example:
        source, payload = example.source("t"), example.encode(1)
        assert {path for path, field in declared_fields(source, [payload]).items() if field.nullable} == {"at", "name"}
    assert declared_fields(KafkaConfig(topic="t"), [b"{}"]) == {}


def test_the_schema_of_change_events_is_that_of_their_rows() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
    states = [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": fields}], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
    ]
    schema = {"type": "record", "name": "E", "fields": [*states, {"name": "op", "type": "string"}]}
    source = KafkaConfig(topic="t", format="avro", schema=msgspec.json.encode(schema).decode(), envelope="debezium")
    declared = declared_fields(source, [])
    assert {path: field.nullable for path, field in declared.items()} == {"id": False, "name": True}
