"""What bounds a slot's work into ClickHouse: where it starts in time, how often it may insert, and what retention has removed."""

from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.spark_jobs import SparkJobs

pytestmark = pytest.mark.spark

NOON_MS = 1_700_000_000_000


def produce_at(world: DriverCluster, topic: str, instants_ms: range) -> None:
    """Records whose number is their place, each with its own time."""
    producer = Producer({"bootstrap.servers": world.broker.bootstrap, "linger.ms": 20})
    for number, instant_ms in enumerate(instants_ms):
        producer.produce(topic, value=event(number), partition=0, timestamp=instant_ms)
    assert producer.flush(30) == 0


def remove_before(world: DriverCluster, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap})

    def removed() -> bool:
        """It is refused until the broker has seen that the pipeline is done with what lies below."""
        (result,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        try:
            return bool(result.result(30).low_watermark == offset)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE:
                raise
            return False

    until(removed, what="the records are removed")


def test_a_start_in_time_is_the_first_record_that_is_not_older_and_stays_so_for_the_next_owner(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    produce_at(world, topic, range(NOON_MS, NOON_MS + 100_000, 1_000))
    start = datetime.fromtimestamp((NOON_MS + 59_500) / 1_000, UTC).isoformat()
    pipeline = world.pipeline(topic, sink_of(clickhouse), source={"topic": topic, "start": start})
    registry = world.registry(pipeline, 1)
    first = world.work(jobs, pipeline, "ann")
    first.turn(world.claim(registry, "ann", [0]))
    # On a slow machine the range behind the start is due, and written.
    assert first.owned[0].position - first.counters.rows == 60
    produce_at(world, topic, range(NOON_MS + 59_600, NOON_MS + 59_700, 10))  # late ones are new, whatever their time
    drain(world.work(jobs, pipeline, "bob"), world.claim(registry, "bob", [0]), {0: 110})
    assert totals(clickhouse) == (50, 50, sum(range(60, 100)) + sum(range(10)))


def test_inserts_are_no_more_than_the_rate_allows_and_the_rest_waits(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, map(event, range(400)), partition=number)
    once_in_minutes = sink_of(clickhouse, batchSize=100, insertRatePerSecond=0.005)
    pipeline = world.pipeline(topic, once_in_minutes)
    claims = world.claim(world.registry(pipeline, 2), "ann", [0, 1])
    work = world.work(jobs, pipeline, "ann")
    for _ in range(30):
        again_ms = work.turn(claims)
    assert not work.blocked
    assert again_ms <= world.clock.boot_ms() + 1_000  # it goes on looking: other settings may come
    assert totals(clickhouse)[0] == work.counters.rows == 100
    run(world.catalog.put_part(pipeline.id, "sink", {**once_in_minutes, "insertRatePerSecond": 0}))
    drain(work, claims, {0: 400, 1: 400})
    assert totals(clickhouse) == (800, 800, 2 * sum(range(400)))


def test_offsets_deleted_before_they_were_read_block_with_their_numbers_until_a_rewind(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(100)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    work, claims = world.work(jobs, pipeline, "ann"), world.claim(registry, "ann", [0])
    drain(work, claims, {0: 100})
    world.produce(topic, map(event, range(100, 300)))
    remove_before(world, topic, 250)

    def blocked() -> str:
        work.turn(claims)
        return work.blocked

    until(lambda: "100" in blocked() and "249" in work.blocked, what="it says what is gone")
    assert world.checkpoint(registry, 0) == 100
    assert totals(clickhouse) == (100, 100, sum(range(100)))
    run(world.catalog.rewind(pipeline.id, {0: 250}))
    number = run(world.catalog.get(pipeline.id)).generations[-1].number
    again = world.work(jobs, pipeline, "ann", generation=number)
    drain(again, world.claim(world.registry(pipeline, 1, number), "ann", [0]), {0: 300})
    assert totals(clickhouse) == (150, 150, sum(range(100)) + sum(range(250, 300)))
