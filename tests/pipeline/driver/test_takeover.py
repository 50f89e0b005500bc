"""Takeovers that find more in the sink than the store knows."""

import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.sink_destinations import ClickHouseDatabase, sink_of

from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.range_identity import partition_key
from holdfast.pipeline.sinks.clickhouse import statements

pytestmark = pytest.mark.spark


def test_an_epoch_that_only_the_sink_knows_blocks_its_partition_with_what_to_do(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    claims = world.claim(world.registry(pipeline, 1), "ann", [0])
    clickhouse.run(statements.create_fence(clickhouse.database))
    key = partition_key(pipeline.id, 1, topic, 0)
    clickhouse.run(statements.write_fence(clickhouse.database, key, (claims[0] + 5) * statements.TRIES))
    work = world.work(jobs, pipeline, "ann")
    work.turn(claims)
    assert f"seen epoch {claims[0] + 5} of partition 0, the store knows epochs up to {claims[0]}" in work.blocked
    assert "rewind the pipeline" in work.blocked
