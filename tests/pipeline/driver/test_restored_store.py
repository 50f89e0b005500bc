"""A store that was restored from a backup, under pipelines that went on after it."""

import pytest
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals

from holdfast.client.loop_thread import run
from holdfast.contracts.store import Put
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import Pipeline, registry_namespace
from holdfast.registry.keys import partition_key

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine


def stored(world: DriverCluster, pipeline: Pipeline) -> bytes:
    """The record of partition 0, as a backup has it."""
    found = run(world.store.get(partition_key(registry_namespace(pipeline.id, 1), 0)))
    assert found is not None
    return found.value


def restore(world: DriverCluster, pipeline: Pipeline, record: bytes) -> None:
    run(world.store.commit(apply=[Put(partition_key(registry_namespace(pipeline.id, 1), 0), record)]))


def test_ranges_that_a_restored_store_does_not_know_are_not_written_again(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    world.produce(topic, map(event, range(100)))
    ann, claims = world.work(jobs, pipeline, "ann"), world.claim(registry, "ann", [0])
    drain(ann, claims, {0: 100})
    backup = stored(world, pipeline)
    world.produce(topic, map(event, range(100, 200)))
    drain(ann, claims, {0: 200})
    restore(world, pipeline, backup)  # nobody has claimed the partition since: its next epoch is beyond the sink's
    world.produce(topic, map(event, range(200, 250)))
    bob = world.work(jobs, pipeline, "bob")
    bob.turn(world.claim(registry, "bob", [0]))
    assert "has ranges up to offset 200 of partition 0, the store knows those up to 100" in bob.blocked
    assert "rewind the pipeline" in bob.blocked
    assert totals(clickhouse) == (200, 200, sum(range(200)))
