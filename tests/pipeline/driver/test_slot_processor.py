"""A slot's work over real parts: a broker, Spark, and Parquet files, whose rows are counted."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka.cimpl import NewPartitions
from tests.support.driver_cluster import DriverCluster, drain, event

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.registry.growth import ensure_partitions

pytestmark = pytest.mark.spark


def offsets(folder: Path) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    for file in sorted(folder.glob("generation=*/**/*.parquet")):
        table = pq.ParquetFile(file).read()
        rows += zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True)
    return sorted(rows)


def test_every_record_is_written_once(world: DriverCluster, jobs: SparkJobs, tmp_path: Path) -> None:
    topic = world.topic(2)
    world.produce(topic, map(event, range(1_000)), partition=0)
    world.produce(topic, map(event, range(500)), partition=1)
    sink = {"kind": "parquet", "url": str(tmp_path), "batchSize": 300, "batchFlushIntervalMs": 100}
    pipeline = world.pipeline(topic, sink)
    registry = world.registry(pipeline, 2)
    claims = world.claim(registry, "ann", [0, 1])
    work = world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 1_000, 1: 500})
    assert offsets(tmp_path) == [(0, n) for n in range(1_000)] + [(1, n) for n in range(500)]
    assert work.counters.rows == 1_500
    assert (world.checkpoint(registry, 0), world.checkpoint(registry, 1)) == (1_000, 500)
    work.close()


def test_a_partition_that_is_added_is_read_from_its_beginning_although_the_pipeline_began_at_latest(
    world: DriverCluster, jobs: SparkJobs, tmp_path: Path
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(10)))
    sink = {"kind": "parquet", "url": str(tmp_path), "batchFlushIntervalMs": 100}
    pipeline = world.pipeline(topic, sink, source={"topic": topic, "start": "latest"})
    registry = world.registry(pipeline, 1)
    work, claims = world.work(jobs, pipeline, "ann"), world.claim(registry, "ann", [0])
    drain(work, claims, {0: 10})
    assert work.progress().source_partitions == 1
    world.broker.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    world.produce(topic, map(event, range(20)), partition=1)  # before anybody of the pipeline knows of it
    world.produce(topic, map(event, range(5)), partition=0)
    drain(work, claims, {0: 15})
    assert work.progress().source_partitions == 2
    namespace = registry.settings.namespace
    run(ensure_partitions(world.store, namespace, 2, clock=world.clock, random=world.random))
    drain(work, {**claims, **world.claim(registry, "ann", [1])}, {0: 15, 1: 20})
    assert offsets(tmp_path) == [(0, number) for number in range(10, 15)] + [(1, number) for number in range(20)]
    work.close()
