"""A partition that fails blocks itself: the others of its slot go on, with SQL and with another Kafka, too."""

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals

from holdfast.pipeline.driver.sources import HoldfastSource
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.vocabulary import failpoints

pytestmark = pytest.mark.spark


def test_a_record_that_sql_fails_on_blocks_its_partition_alone(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(3)
    for number in (0, 1, 2):
        world.produce(topic, map(event, range(1 if number != 1 else 0, 50)), partition=number)
    text = "select id, element_at(array(7), cast(if(id = 0, 0, 1) as int)) as seven from rows"  # there is no element 0
    pipeline = world.pipeline(topic, sink_of(clickhouse), sql={"sql": text})
    registry = world.registry(pipeline, 3)
    work = world.work(jobs, pipeline, "ann")
    drain(work, world.claim(registry, "ann", [0, 1, 2]), {0: 49, 2: 49})
    assert "partition 1: " in work.blocked
    assert "INVALID_INDEX_OF_ZERO" in work.blocked
    assert [world.checkpoint(registry, number) for number in (0, 1, 2)] == [49, 0, 49]
    assert totals(clickhouse) == (98, 98, 2 * sum(range(1, 50)))


@pytest.mark.usefixtures("connector")
def test_records_that_another_kafka_has_deleted_block_their_partition_alone(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, map(event, range(50)), partition=number)
    source = {"topic": topic, "brokers": [world.broker.bootstrap]}
    pipeline = world.pipeline(topic, sink_of(clickhouse, batchSize=50), source=source)  # both are due at once
    registry = world.registry(pipeline, 2)
    claims = world.claim(registry, "ann", [0, 1])
    with failpoints.installed(fail_at("pipeline.begun")), pytest.raises(FailpointError):
        drain(world.work(jobs, pipeline, "ann"), claims, {0: 50, 1: 50})
    for done in world.broker.admin.delete_records([TopicPartition(topic, 1, 20)]).values():
        done.result(30)
    work = world.work(jobs, pipeline, "bob")
    drain(work, world.claim(registry, "bob", [0, 1]), {0: 50})
    assert "partition 1: " in work.blocked
    assert [world.checkpoint(registry, number) for number in (0, 1)] == [50, 0]
    assert totals(clickhouse) == (50, 50, sum(range(50)))


def test_a_partition_whose_offsets_cannot_be_read_is_waited_for_alone(
    world: DriverCluster, jobs: SparkJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, map(event, range(50)), partition=number)
    sink = {"kind": "parquet", "url": str(tmp_path), "batchFlushIntervalMs": 10}
    pipeline = world.pipeline(topic, sink)
    work, claims = world.work(jobs, pipeline, "ann"), world.claim(world.registry(pipeline, 2), "ann", [0, 1])
    read = HoldfastSource.bounds
    drain(work, claims, {0: 50, 1: 50})
    for number in (0, 1):
        world.produce(topic, map(event, range(50)), partition=number)
    with monkeypatch.context() as patched:
        patched.setattr(HoldfastSource, "bounds", lambda source: replace(read(source), unknown={1: "no leader"}))
        drain(work, claims, {0: 100})
        assert work.blocked == "no leader"
        assert list(work.owned) == [0]
    drain(work, claims, {0: 100, 1: 100})
    assert work.blocked == ""
