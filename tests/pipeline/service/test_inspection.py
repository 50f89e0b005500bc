"""Samples, inference, previews, validation and listings, against a real broker and a real ClickHouse."""

import asyncio
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.apache_kafka import ApacheKafka
from tests.support.pipeline_service import PipelineServiceHarness
from tests.support.server_process import create_topic, produce

from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.service.inspection import INFERRED
from holdfast.pipeline.service.responses import Validation
from holdfast.pipeline.service.settings import ServiceSettings
from holdfast.testing.server_process import free_port
from holdfast.vocabulary.errors import InvalidError, UnavailableError

pytestmark = pytest.mark.xdist_group("clickhouse")

ORDERS = tuple(f'{{"id": {number}, "amount": "{number}.50", "at": "2026-11-15T08:30:00Z"}}' for number in range(30))


def outcomes(validation: Validation) -> list[str]:
    return [f"{check.name}: {check.outcome}" for check in validation.checks]


def detail(validation: Validation, name: str) -> str:
    return next(check.detail for check in validation.checks if check.name == name)


async def test_a_sample_is_from_all_partitions_and_hides_nothing(world: PipelineServiceHarness) -> None:
    await world.topic(*ORDERS)
    await world.send("no json", '{"id": 99}', partition=1)
    pipeline = await world.pipeline()
    last = await world.service.inspection.sample(pipeline.id, limit=10)
    assert {(each.partition, each.offset) for each in last.records} == {(0, n) for n in range(22, 30)} | {
        (1, 0),
        (1, 1),
    }
    assert (last.partitions, last.not_json) == (2, 1)
    bad = next(each for each in last.records if each.error)
    assert (bad.text, bad.value) == ("no json", None)
    assert bad.error.startswith("not JSON: ")
    first = await world.service.inspection.sample(pipeline.id, limit=4, where="first")
    assert {(each.partition, each.offset) for each in first.records} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    with pytest.raises(InvalidError, match="invalid limit 1001: must be between 1 and 1000"):
        await world.service.inspection.sample(pipeline.id, limit=1_001)


async def test_an_external_kafka_is_sampled_the_same_way(world: PipelineServiceHarness) -> None:
    await world.topic(*ORDERS)
    pipeline = await world.service.catalog.create("external")
    sample = await world.service.inspection.sample(
        pipeline.id, limit=5, unsaved={"source": {"topic": world.name, "brokers": [world.node.kafka]}}
    )
    assert [each.value["id"] for each in sample.records] == [25, 26, 27, 28, 29]


async def test_a_mapping_is_inferred_from_the_topic(world: PipelineServiceHarness) -> None:
    await world.topic(*ORDERS, "no json")
    pipeline = await world.pipeline()
    found = await world.service.inspection.infer(pipeline.id, limit=100)
    assert {column.column: column.type for column in found.mapping.columns} == {
        "id": "Int64",
        "amount": "Decimal(18, 2)",
        "at": "DateTime64(3)",
    }
    assert (found.order_by, found.table, found.records, found.not_objects) == (("at", "id"), world.name, 30, 1)
    empty = await world.service.catalog.create("nothing")
    with pytest.raises(InvalidError, match="missing source"):
        await world.service.inspection.infer(empty.id)


async def test_a_preview_shows_rows_refusals_the_ddl_and_the_table_and_writes_nothing(
    world: PipelineServiceHarness,
) -> None:
    await world.topic('{"id": 1, "amount": "1.5"}', '{"id": "x", "amount": 2}', '{"id": 3}', "bad", '{"id": 5}')
    pipeline = await world.pipeline(filters={"enabled": True, "expression": "id != 3"})
    shown = await world.service.inspection.preview(pipeline.id)
    assert shown.sampled == 5
    assert [(each.offset, each.row["id"], each.row["amount"]) for each in shown.rows] == [
        (0, 1, Decimal("1.50")),
        (4, 5, None),
    ]
    assert shown.filtered == 1
    reasons = {each.offset: each.reason for each in shown.refused}
    assert set(reasons) == {1, 3}
    assert reasons[1].startswith("filter: ")
    assert reasons[3].startswith("not JSON: ")
    assert shown.ddl.startswith(f"CREATE TABLE IF NOT EXISTS `default`.`{world.name}`")
    assert shown.table is not None
    assert not shown.table.exists
    assert await world.ask(f"EXISTS TABLE default.{world.name}") == "0"


async def test_an_edit_is_previewed_before_it_is_saved(world: PipelineServiceHarness) -> None:
    await world.topic(*ORDERS[:2])
    made = await world.service.catalog.create("unsaved")
    shown = await world.service.inspection.preview(made.id, unsaved={"source": {"topic": world.name}})
    assert [each.row["id"] for each in shown.rows] == [0, 1]
    assert shown.notes == (INFERRED,)
    assert (await world.service.catalog.parts(made.id)) == {}
    drifting = await world.pipeline(drift={"unknownFields": "add-column"})
    noted = await world.service.inspection.preview(drifting.id)
    assert noted.notes == ("drift: columns would be added: at Nullable(DateTime64(3))",)
    with pytest.raises(NotReadyError, match="invalid order_by 'nobody'"):
        await world.service.inspection.preview(drifting.id, unsaved={"sink": {"table": "x", "orderBy": ["nobody"]}})


async def test_a_filter_is_tried_on_a_sample_or_on_what_is_typed(world: PipelineServiceHarness) -> None:
    await world.topic(*ORDERS[:4])
    pipeline = await world.pipeline()
    trial = await world.service.inspection.try_filter(pipeline.id, "id >= 2")
    assert (trial.kept, trial.dropped, trial.errors) == (2, 2, 0)
    await world.send("no json", '{"id": 9}', partition=1)
    first = await world.service.inspection.try_filter(pipeline.id, "partition = 1")
    assert (first.kept, first.dropped, first.errors) == (1, 4, 1)
    sample = await world.service.inspection.sample(pipeline.id)
    verdicts = {(sample.records[each.row].partition, each.verdict) for each in first.rows}
    assert verdicts == {(0, "dropped"), (1, "error"), (1, "kept")}
    typed = await world.service.inspection.try_filter(pipeline.id, "id >= 2", values=[{"id": 7}, {"id": "x"}])
    assert (typed.kept, typed.errors) == (1, 1)


async def test_a_table_is_made_once_and_an_existing_one_is_only_compared(world: PipelineServiceHarness) -> None:
    await world.topic()
    pipeline = await world.pipeline()
    made = await world.service.inspection.create_table(pipeline.id)
    assert (made.exists, made.missing, made.differs, made.blockers) == (True, (), (), ())
    await world.service.catalog.put_part(
        pipeline.id, "mapping", {"columns": [*_columns(), {"fieldPath": "x", "column": "x", "type": "String"}]}
    )
    again = await world.service.inspection.create_table(pipeline.id)
    assert again.missing == ("x",)
    assert again.statements == (f"ALTER TABLE `default`.`{world.name}` ADD COLUMN IF NOT EXISTS `x` String",)
    assert (await world.service.inspection.diff(pipeline.id)) == again


def _columns() -> list[dict[str, object]]:
    from tests.support.pipeline_service import MAPPING

    return list(MAPPING["columns"])


async def test_a_source_is_validated_step_by_step(world: PipelineServiceHarness) -> None:
    await world.topic(*ORDERS)
    pipeline = await world.pipeline()
    found = await world.service.inspection.validate(pipeline.id, "kafka")
    assert found.ok
    assert detail(found, "topic") == f"{world.name} has 2 partitions"
    assert detail(found, "offsets") == "30 offsets in 2 partitions"
    missing = await world.service.inspection.validate(pipeline.id, "kafka", unsaved={"source": {"topic": "nowhere"}})
    assert outcomes(missing) == ["topic: failed", "offsets: skipped"]
    assert detail(missing, "topic") == "invalid source.topic 'nowhere': must be a topic of this cluster"
    timed = {"source": {"topic": world.name, "start": "2020-01-01"}}
    assert detail(await world.service.inspection.validate(pipeline.id, "kafka", unsaved=timed), "start") == "0: 0, 1: 0"
    with pytest.raises(InvalidError, match="one of kafka, sink, clickhouse, clickhouse-table"):
        await world.service.inspection.validate(pipeline.id, "oracle")


async def test_an_unreachable_broker_is_reported(world: PipelineServiceHarness) -> None:
    await world.topic()
    pipeline = await world.pipeline()
    service = world.another(ServiceSettings(source_timeout_ms=1_000))
    gone = {"source": {"topic": "t", "brokers": [f"127.0.0.1:{free_port()}"]}}
    found = await service.inspection.validate(pipeline.id, "kafka", unsaved=gone)
    assert outcomes(found) == ["topic: failed", "offsets: skipped"]
    assert "is unavailable" in detail(found, "topic")


async def test_a_clickhouse_is_validated_step_by_step(world: PipelineServiceHarness) -> None:
    pipeline = await world.pipeline()
    found = await world.service.inspection.validate(pipeline.id, "clickhouse")
    assert found.ok, found
    assert detail(found, "connection").endswith(f"at 127.0.0.1:{world.clickhouse.port}")
    assert detail(found, "database") == "default"
    wrong = f"http://{world.clickhouse.user}:wrong@127.0.0.1:{world.clickhouse.port}"
    for dsn, words in (
        (wrong, "Authentication failed"),
        (f"http://127.0.0.1:{free_port()}", "does not answer"),
        (f"{world.clickhouse.url}/nowhere", "a database that exists; databases are not created"),
    ):
        bad = await world.service.inspection.validate(
            pipeline.id, "clickhouse", unsaved={"sink": {"dsn": dsn, "table": "t"}}
        )
        assert not bad.ok
        failed = next(check for check in bad.checks if check.outcome == "failed")
        assert words in failed.detail
        assert world.clickhouse.password not in failed.detail


async def test_a_table_is_validated_against_the_mapping(world: PipelineServiceHarness) -> None:
    await world.topic()
    pipeline = await world.pipeline()
    missing = await world.service.inspection.validate(pipeline.id, "clickhouse-table")
    assert missing.ok
    assert "it is created when the pipeline starts" in detail(missing, "table")
    never = {"sink": {"table": world.name, "createTableIfMissing": False}}
    refused = await world.service.inspection.validate(pipeline.id, "clickhouse-table", unsaved=never)
    assert (refused.ok, detail(refused, "table")) == (
        False,
        f"{world.name} does not exist, and createTableIfMissing is off",
    )
    await world.ask(
        f"CREATE TABLE default.{world.name} (id Date, _pipeline LowCardinality(String), _generation UInt32, "
        "_topic LowCardinality(String), _partition UInt32, _offset UInt64) ENGINE = MergeTree ORDER BY id"
    )
    bad = await world.service.inspection.validate(pipeline.id, "clickhouse-table")
    words = [check.detail for check in bad.checks if check.outcome == "failed"]
    assert any("non_replicated_deduplication_window is 0" in each for each in words)
    assert "amount is missing" in words
    assert any(each.startswith("id is Date, the mapping says Int64") for each in words)
    await world.ask(f"DROP TABLE default.{world.name}")
    await world.service.inspection.create_table(pipeline.id)
    good = await world.service.inspection.validate(pipeline.id, "clickhouse-table")
    assert good.ok
    assert detail(good, "columns") == "all 7 fit"
    assert detail(good, "dedup window") == "10000 inserts"


async def test_databases_tables_and_columns_are_listed(world: PipelineServiceHarness) -> None:
    await world.topic()
    pipeline = await world.pipeline()
    await world.service.inspection.create_table(pipeline.id)
    assert "default" in await world.service.inspection.databases(pipeline.id)
    assert world.name in await world.service.inspection.tables(pipeline.id)
    schema = await world.service.inspection.schema(pipeline.id)
    assert [column.name for column in schema.columns][:2] == ["id", "amount"]
    assert (schema.engine, schema.order_by, schema.dedup_window) == ("MergeTree", ("id",), 10_000)
    with pytest.raises(InvalidError, match="must be a table that exists"):
        await world.service.inspection.schema(pipeline.id, table="nowhere")


async def test_a_server_that_hangs_does_not_block_other_calls(world: PipelineServiceHarness) -> None:
    pipeline = await world.pipeline()
    await asyncio.to_thread(world.clickhouse.freeze)
    try:
        service = world.another(ServiceSettings(clickhouse_timeout_ms=100_000))
        hanging = asyncio.ensure_future(service.inspection.databases(pipeline.id))
        for _ in range(20):
            assert (await world.service.status(pipeline.id)).state == "stopped"
            await world.clock.sleep_ms(10)
        assert not hanging.done(), "the event loop stood still"
        with pytest.raises(UnavailableError):
            await world.another(ServiceSettings(clickhouse_timeout_ms=100)).inspection.databases(pipeline.id)
    finally:
        await asyncio.to_thread(world.clickhouse.thaw)
    assert "default" in await hanging


@pytest.mark.long
async def test_an_apache_kafka_is_inspected(world: PipelineServiceHarness, tmp_path: Path) -> None:
    broker = ApacheKafka(tmp_path)
    try:
        await asyncio.to_thread(broker.prepare)
    except UnavailableError as missing:
        pytest.skip(str(missing))
    try:
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(create_topic, broker.bootstrap, "orders", 3)
        await asyncio.to_thread(lambda: produce(broker.bootstrap, "orders", *ORDERS, partition=1))
        made = await world.service.catalog.create("apache")
        unsaved = {"source": {"topic": "orders", "brokers": [broker.bootstrap], "start": "2020-01-01"}}
        sample = await world.service.inspection.sample(made.id, limit=5, unsaved=unsaved)
        assert [(each.partition, each.offset) for each in sample.records] == [(1, offset) for offset in range(25, 30)]
        found = await world.service.inspection.validate(made.id, "kafka", unsaved=unsaved)
        assert (found.ok, detail(found, "start")) == (True, "0: 0, 1: 0, 2: 0")
    finally:
        await asyncio.to_thread(broker.stop)


async def test_every_kind_of_sink_is_validated(world: PipelineServiceHarness, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    await world.topic('{"id": 1}')
    pipeline = await world.pipeline()
    assert (await world.service.inspection.validate(pipeline.id, "sink")).ok
    iceberg = {
        "kind": "iceberg",
        "table": "a.b",
        "catalogUri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": str(tmp_path),
    }
    file = tmp_path / "file"
    file.write_text("")
    for sink, check, words in (
        ({"kind": "parquet", "url": str(tmp_path / "p")}, "location", "can be written to"),
        ({"kind": "parquet", "url": str(file / "p")}, "location", "no directory"),
        ({"kind": "delta", "url": str(tmp_path / "d")}, "table", "does not exist: it is created"),
        ({"kind": "delta", "url": str(tmp_path / "d"), "partitionBy": ["x"]}, "table", "partition_by"),
        (iceberg, "table", "does not exist: it is created"),
        ({**iceberg, "catalogUri": "sqlite:////nowhere/c.db"}, "table", "unable to open database"),
        ({"kind": "topic", "topic": "nowhere"}, "topic", "nowhere does not exist"),
        ({"kind": "topic", "topic": f"{world.name}-out"}, "topic", "does not exist"),
    ):
        found = await world.service.inspection.validate(pipeline.id, "sink", unsaved={"sink": sink})
        assert words in detail(found, check), sink
        assert found.ok == (words in ("can be written to", "does not exist: it is created")), sink
    assert not (tmp_path / "d").exists()


async def test_an_existing_lake_table_is_compared(world: PipelineServiceHarness, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    pipeline = await world.pipeline()
    deltalake.write_deltalake(str(tmp_path / "d"), pa.table({"id": ["text"]}))
    unsaved = {"sink": {"kind": "delta", "url": str(tmp_path / "d")}}
    found = await world.service.inspection.validate(pipeline.id, "sink", unsaved=unsaved)
    assert (found.ok, "columns have another type: id" in detail(found, "table")) == (False, True)
