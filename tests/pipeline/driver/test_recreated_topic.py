"""A topic that was deleted and recreated under its name is another topic: its offsets mean other records."""

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.vocabulary import failpoints

pytestmark = pytest.mark.spark


def recreate(world: DriverCluster, topic: str) -> None:
    world.broker.admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in world.broker.admin.list_topics(timeout=10).topics, what="the topic is gone")
    world.broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    world.broker.await_leaders(topic, 1)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_recreated_topic_blocks_the_slot_until_the_pipeline_is_rewound(
    restarted: bool, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(100)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    work, claims = world.work(jobs, pipeline, "ann"), world.claim(registry, "ann", [0])
    drain(work, claims, {0: 100})
    recreate(world, topic)
    world.produce(topic, map(event, range(300, 500)))  # its end is beyond the checkpoint: offsets alone show nothing
    if restarted:
        work, claims = world.work(jobs, pipeline, "bob"), world.claim(registry, "bob", [0])
    until(lambda: work.turn(claims) and bool(work.blocked), what="the slot is blocked")
    assert f"topic '{topic}' was deleted and recreated" in work.blocked
    assert "rewind" in work.blocked
    assert totals(clickhouse) == (100, 100, sum(range(100)))
    assert world.checkpoint(registry, 0) == 100
    _, fresh = run(world.catalog.rewind(pipeline.id, {0: 0}))
    again = world.claim(world.registry(pipeline, 1, fresh.number), "cid", [0])
    drain(world.work(jobs, pipeline, "cid", generation=fresh.number), again, {0: 200})
    assert totals(clickhouse) == (300, 300, sum(range(100)) + sum(range(300, 500)))


def test_a_range_of_a_topic_that_was_recreated_is_not_written_from_the_new_one(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(100)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    with failpoints.installed(fail_at("pipeline.begun")), pytest.raises(FailpointError):
        drain(world.work(jobs, pipeline, "ann"), world.claim(registry, "ann", [0]), {0: 100})
    recreate(world, topic)
    world.produce(topic, map(event, range(300, 500)))
    work, claims = world.work(jobs, pipeline, "bob"), world.claim(registry, "bob", [0])
    until(lambda: work.turn(claims) and bool(work.blocked), what="the slot is blocked")
    assert f"topic '{topic}' was deleted and recreated" in work.blocked
    assert world.checkpoint(registry, 0) == 0
