"""A slot's work over real parts: a broker, Spark, and Parquet files, whose rows are counted."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.driver_cluster import DriverCluster, drain, event

from holdfast.pipeline.driver.spark_jobs import SparkJobs

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
