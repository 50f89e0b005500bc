"""A slot's work into ClickHouse: whatever stops it wherever, count, sum and distinct offsets are exact."""

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import RangeIntent
from holdfast.vocabulary import failpoints

pytestmark = pytest.mark.spark


ALSO_LONG = [pytest.param(step, marks=pytest.mark.long) for step in ("planned", "committed")]


@pytest.mark.parametrize("step", ["begun", "job-done", "checkpointed", *ALSO_LONG])
def test_a_driver_that_dies_at_a_step_is_succeeded_without_loss_or_repetition(
    step: str, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, map(event, range(500)), partition=number)
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 2)
    dead = world.work(jobs, pipeline, "ann")
    claims = world.claim(registry, "ann", [0, 1])
    with failpoints.installed(fail_at(f"pipeline.{step}")), pytest.raises(FailpointError):
        drain(dead, claims, {0: 500, 1: 500})
    successor = world.work(jobs, pipeline, "bob")
    drain(successor, world.claim(registry, "bob", [0, 1]), {0: 500, 1: 500})
    assert totals(clickhouse) == (1_000, 1_000, 2 * sum(range(500)))
    # The dead one was only paused, and goes on where it was.
    dead.turn(claims)
    assert dead.owned == {}
    assert totals(clickhouse) == (1_000, 1_000, 2 * sum(range(500)))


def test_an_executor_that_fails_at_a_step_is_retried(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    poison = [b"{", b'{"id": "x"}', b"\xff", None]
    world.produce(topic, [*map(event, range(900)), *poison])
    pipeline = world.pipeline(topic, sink_of(clickhouse, batchSize=200))
    registry = world.registry(pipeline, 1)
    claims = world.claim(registry, "ann", [0])
    work = world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 904})
    assert totals(clickhouse) == (900, 900, sum(range(900)))
    dead_letters = clickhouse.ask(
        f"SELECT _offset, reason, hex(payload) AS payload, isNull(payload) AS none, recipe FROM {clickhouse.database}.orders_dlq "
        "ORDER BY _offset"
    )
    assert [int(row["_offset"]) for row in dead_letters] == [900, 901, 902, 903]
    assert [bytes.fromhex(row["payload"] or "") for row in dead_letters[:3]] == poison[:3]
    assert dead_letters[3]["none"] == 1
    assert work.counters.dlq_rows == 4


def test_a_range_is_finished_under_the_revision_it_was_begun_with(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(600)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    claims = world.claim(registry, "ann", [0])
    with failpoints.installed(fail_at("pipeline.begun")), pytest.raises(FailpointError):
        drain(world.work(jobs, pipeline, "ann"), claims, {0: 600})
    state = run(registry.partition(0))
    assert state is not None
    assert state.intent is not None
    intent = msgspec.json.decode(state.intent, type=RangeIntent)
    assert (intent.start, intent.end, intent.revision) == (0, 400, pipeline.revision)
    filters = {"enabled": True, "language": "holdfast", "expression": "id >= 500"}
    sink = sink_of(clickhouse, batchSize=50)
    run(world.catalog.put_parts(pipeline.id, {"filters": filters, "sink": sink}))
    work = world.work(jobs, pipeline, "bob")
    drain(work, world.claim(registry, "bob", [0]), {0: 600})
    assert totals(clickhouse) == (500, 500, sum(range(400)) + sum(range(500, 600)))
    assert work.counters.filtered == 100


def test_an_owner_that_lost_its_claim_writes_nothing_more(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(100)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    ann, bob = world.work(jobs, pipeline, "ann"), world.work(jobs, pipeline, "bob")
    old = world.claim(registry, "ann", [0])
    drain(ann, old, {0: 100})
    new = world.claim(registry, "bob", [0])
    drain(bob, new, {0: 100})
    world.produce(topic, map(event, range(100, 200)))
    until(lambda: ann.turn(old) and 0 not in ann.owned, what="ann has noticed")
    assert totals(clickhouse)[0] == 100
    drain(bob, new, {0: 200})
    assert totals(clickhouse) == (200, 200, sum(range(200)))


def test_a_missing_table_blocks_until_it_is_created(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(50)))
    pipeline = world.pipeline(topic, sink_of(clickhouse, createTableIfMissing=False))
    claims = world.claim(world.registry(pipeline, 1), "ann", [0])
    work = world.work(jobs, pipeline, "ann")
    for _ in range(3):
        work.turn(claims)
    assert "does not exist" in work.progress().blocked
    clickhouse.run(
        f"CREATE TABLE {clickhouse.database}.orders (id Int64, name Nullable(String), amount Nullable(Float64), "
        "_pipeline LowCardinality(String), _generation UInt32, _topic LowCardinality(String), _partition UInt32, _offset UInt64) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
    )
    drain(work, claims, {0: 50})
    work.turn(claims)
    assert work.progress().blocked == ""
    assert totals(clickhouse) == (50, 50, sum(range(50)))


def test_a_server_that_is_down_is_waited_for(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(300)))
    pipeline = world.pipeline(topic, sink_of(clickhouse, batchSize=100))
    claims = world.claim(world.registry(pipeline, 1), "ann", [0])
    work = world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 300})
    clickhouse.server.kill()
    world.produce(topic, map(event, range(300, 500)))
    for _ in range(10):
        work.turn(claims)
        if work.blocked:
            break
    assert "does not answer" in work.blocked
    clickhouse.server.start()
    drain(work, claims, {0: 500})
    assert totals(clickhouse) == (500, 500, sum(range(500)))


def test_new_fields_become_columns_before_their_records_are_written(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(20)))
    pipeline = world.pipeline(topic, sink_of(clickhouse), drift={"unknownFields": "add-column"})
    claims = world.claim(world.registry(pipeline, 1), "ann", [0])
    work = world.work(jobs, pipeline, "ann")
    drain(work, claims, {0: 20})
    world.produce(topic, [b'{"id": %d, "city": "c%d"}' % (n, n) for n in range(20, 30)])
    drain(work, claims, {0: 30})
    found = clickhouse.ask(f"SELECT id, city FROM {clickhouse.database}.orders WHERE city IS NOT NULL ORDER BY id")
    assert [(int(row["id"]), row["city"]) for row in found] == [(n, f"c{n}") for n in range(20, 30)]
    assert totals(clickhouse) == (30, 30, sum(range(30)))
    assert [column.column for column in run(world.catalog.revision(pipeline.id, 2)).mapping.columns][-1] == "city"


def test_a_stop_names_the_fields_and_begins_nothing(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, [b'{"id": 1, "city": "x"}'])
    pipeline = world.pipeline(topic, sink_of(clickhouse), drift={"unknownFields": "stop"})
    registry = world.registry(pipeline, 1)
    claims = world.claim(registry, "ann", [0])
    work = world.work(jobs, pipeline, "ann")
    with pytest.raises(PermanentError, match="city"):
        drain(work, claims, {0: 1})
    state = run(registry.partition(0))
    assert state is not None
    assert state.intent is None
    run(world.catalog.put_part(pipeline.id, "drift", {"unknownFields": "ignore"}))
    drain(world.work(jobs, pipeline, "ann"), claims, {0: 1})
    assert totals(clickhouse) == (1, 1, 1)


def test_a_backfill_runs_beside_the_live_generation_and_finishes(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    world.produce(topic, map(event, range(300)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    drain(world.work(jobs, pipeline, "ann"), world.claim(world.registry(pipeline, 2), "ann", [0]), {0: 300})
    run(world.catalog.backfill(pipeline.id, {0: 100}, {0: 250}))
    number = run(world.catalog.get(pipeline.id)).generations[-1].number
    claims = world.claim(world.registry(pipeline, 2, number), "ann", [0, 1])
    work = world.work(jobs, pipeline, "ann", generation=number)
    drain(work, claims, {0: 250})
    assert work.finished(claims)
    assert totals(clickhouse) == (450, 450, sum(range(300)) + sum(range(100, 250)))


def test_latest_means_what_it_meant_to_the_first_owner(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(10)))
    pipeline = world.pipeline(topic, sink_of(clickhouse), source={"topic": topic, "start": "latest"})
    registry = world.registry(pipeline, 1)
    first = world.work(jobs, pipeline, "ann")
    first.turn(world.claim(registry, "ann", [0]))
    assert first.owned[0].position == 10
    world.produce(topic, map(event, range(10, 30)))  # while nobody is there
    drain(world.work(jobs, pipeline, "bob"), world.claim(registry, "bob", [0]), {0: 30})
    assert totals(clickhouse) == (20, 20, sum(range(10, 30)))


def test_partitions_join_and_leave_between_batches(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(3)
    for number in range(3):
        world.produce(topic, map(event, range(100)), partition=number)
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 3)
    ann, bob = world.work(jobs, pipeline, "ann"), world.work(jobs, pipeline, "bob")
    claims = world.claim(registry, "ann", [0, 1])
    drain(ann, claims, {0: 100, 1: 100})
    claims |= world.claim(registry, "ann", [2])
    drain(ann, claims, {2: 100})
    moved = world.claim(registry, "bob", [1])
    ann.drop_unclaimed({0: claims[0], 2: claims[2]})
    assert set(ann.owned) == {0, 2}
    world.produce(topic, map(event, range(100, 150)), partition=1)
    drain(bob, moved, {1: 150})
    assert totals(clickhouse) == (350, 350, 3 * sum(range(100)) + sum(range(100, 150)))


def test_checkpoints_are_mirrored_as_a_groups_offsets(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(70)))
    pipeline = world.pipeline(topic, sink_of(clickhouse), source={"topic": topic, "groupId": f"lag-{topic}"})
    work = world.work(jobs, pipeline, "ann")
    drain(work, world.claim(world.registry(pipeline, 1), "ann", [0]), {0: 70})
    work.close()
    reader = Consumer({"bootstrap.servers": world.broker.bootstrap, "group.id": f"lag-{topic}"})
    until(lambda: reader.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == 70, what="the offset is there")
    reader.close()
