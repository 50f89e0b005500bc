"""A slot's work over Avro with a registry: what executors decode, what waits for the registry, what is rejected."""

import msgspec
import pytest
from tests.support.driver_cluster import DriverCluster, drain
from tests.support.format_examples import NEWER_ORDER, avro_bytes, format_example, order
from tests.support.schema_registry import framed
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.pipeline.driver.spark_jobs import SparkJobs

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
