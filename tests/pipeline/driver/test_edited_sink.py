"""A sink that is edited while its pipeline runs: it is another destination, which nobody has fenced yet."""

import pytest
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.model.range_identity import partition_key
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.vocabulary import failpoints

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine


@pytest.fixture
def elsewhere(clickhouse: ClickHouseDatabase) -> ClickHouseDatabase:
    """Another database, into which other pipelines write already."""
    other = ClickHouseDatabase(clickhouse.server, f"{clickhouse.database}_other")
    other.run(f"CREATE DATABASE {other.database} ENGINE = Atomic")
    other.run(statements.create_fence(other.database))
    other.run(
        f"CREATE TABLE {other.database}.orders (id Int64, name Nullable(String), amount Nullable(Float64), "
        "_pipeline LowCardinality(String), _generation UInt32, _topic LowCardinality(String), _partition UInt32, "
        "_offset UInt64) ENGINE = MergeTree ORDER BY id"
    )
    return other


def remember_tokens(place: ClickHouseDatabase) -> None:
    window = "non_replicated_deduplication_window = 100"
    place.run(f"ALTER TABLE {place.database}.orders MODIFY SETTING {window}")


def move(world: DriverCluster, pipeline: Pipeline, other: ClickHouseDatabase) -> None:
    run(world.catalog.put_parts(pipeline.id, {"sink": sink_of(other)}))


def fence_of(pipeline: Pipeline, topic: str, place: ClickHouseDatabase) -> int:
    key = partition_key(pipeline.id, 1, topic, 0)
    return int(place.server.query(statements.read_fence(place.database, key)))


def test_it_is_prepared_before_anything_is_written_there(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase, elsewhere: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(100)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    claims = world.claim(world.registry(pipeline, 1), "ann", [0])
    work = world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 100})
    move(world, pipeline, elsewhere)
    world.produce(topic, map(event, range(100, 200)))
    until(lambda: work.turn(claims) and "deduplication" in work.blocked, what=lambda: f"blocked: {work.blocked}")
    assert totals(elsewhere) == (0, 0, 0)
    remember_tokens(elsewhere)
    drain(work, claims, {0: 200})
    assert totals(clickhouse) == (100, 100, sum(range(100)))
    assert totals(elsewhere) == (100, 100, sum(range(100, 200)))
    assert fence_of(pipeline, topic, elsewhere) >= claims[0] * statements.TRIES


def test_it_is_fenced_after_a_range_was_finished_where_it_was_begun(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase, elsewhere: ClickHouseDatabase
) -> None:
    remember_tokens(elsewhere)
    topic = world.topic(1)
    world.produce(topic, map(event, range(500)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    claims = world.claim(registry, "ann", [0])
    with failpoints.installed(fail_at("pipeline.begun")), pytest.raises(FailpointError):
        drain(world.work(jobs, pipeline, "ann"), claims, {0: 500})
    move(world, pipeline, elsewhere)
    claims = world.claim(registry, "bob", [0])
    drain(world.work(jobs, pipeline, "bob"), claims, {0: 500})
    assert totals(clickhouse) == (400, 400, sum(range(400)))
    assert totals(elsewhere) == (100, 100, sum(range(400, 500)))
    assert fence_of(pipeline, topic, elsewhere) >= claims[0] * statements.TRIES
