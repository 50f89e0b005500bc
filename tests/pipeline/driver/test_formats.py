"""A slot's work over formats: what executors decode, what waits for a registry, what is rejected, updated and deleted."""

import msgspec
import pytest
from tests.support.change_events import SourceTable
from tests.support.driver_cluster import DriverCluster, drain
from tests.support.failpoints import FailpointError, fail_at
from tests.support.format_examples import NEWER_ORDER, avro_bytes, format_example, order
from tests.support.schema_registry import framed
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.vocabulary import failpoints

pytestmark = pytest.mark.spark


def test_a_range_waits_for_the_registry_and_only_unknown_ids_are_rejected(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    with format_example("avro") as example:
        topic = world.topic(1)
        newer = example.registry.register(NEWER_ORDER)
        values = [example.encode(number) for number in range(50)]
        values += [
            framed(newer, avro_bytes(NEWER_ORDER, {**order(50), "coupon": "TEN"})),
            framed(99, b"\2"),
            b"\1\0\0\0\1\2",
            b"\0",
        ]
        world.produce(topic, values)
        source = msgspec.to_builtins(example.source(topic))
        pipeline = world.pipeline(topic, sink_of(clickhouse), source=source, drift={"unknownFields": "add-column"})
        registry = world.registry(pipeline, 1)
        claims, work = world.claim(registry, "ann", [0]), world.work(jobs, pipeline, "ann")
        example.registry.status = 503
        until(lambda: work.turn(claims) and "schema registry" in str(work.blocked), what="the range waits")
        assert work.counters.dlq_rows == 0
        example.registry.status = 200
        drain(work, claims, {0: len(values)})
        assert totals(clickhouse) == (51, 51, sum(range(51)))
        rejected = clickhouse.ask(f"SELECT reason FROM {clickhouse.database}.orders_dlq ORDER BY _offset")
        assert [row["reason"].partition(":")[0] for row in rejected] == [
            "unknown schema id 99",
            "wrong magic byte 1",
            "truncated",
        ]
        coupons = clickhouse.ask(f"SELECT coupon FROM {clickhouse.database}.orders WHERE coupon IS NOT NULL")
        assert coupons == [{"coupon": "TEN"}]


def test_a_table_has_the_rows_of_its_source_after_a_driver_died(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic, source = world.topic(1), SourceTable()
    for number in range(30):
        source.snapshot(number, "first")
    for number in range(0, 30, 2):
        source.upsert(number, "second")
    for number in range(0, 30, 5):
        source.delete(number, full=number % 2 == 0, delete=number != 10)
    world.produce_keyed(topic, source.log)
    sink = sink_of(clickhouse, batchSize=20, engine="ReplacingMergeTree", orderBy=["id"])
    columns = [
        {"fieldPath": name, "column": name, "type": kind} for name, kind in (("id", "Int64"), ("name", "String"))
    ]
    pipeline = world.pipeline(
        topic, sink, source={"topic": topic, "envelope": "debezium"}, mapping={"columns": columns}
    )
    registry = world.registry(pipeline, 1)
    dead, claims = world.work(jobs, pipeline, "ann"), world.claim(registry, "ann", [0])
    end = len(source.log)
    with failpoints.installed(fail_at("pipeline.job-done")), pytest.raises(FailpointError):
        drain(dead, claims, {0: end})
    work = world.work(jobs, pipeline, "bob")
    drain(work, world.claim(registry, "bob", [0]), {0: end})
    rows = clickhouse.ask(f"SELECT id, name FROM {clickhouse.database}.orders FINAL")
    assert {int(row["id"]): row["name"] for row in rows} == {n: row["name"] for n, row in source.rows.items()}
    assert work.counters.dlq_rows == 0
