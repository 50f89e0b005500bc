"""Streaming queries into ClickHouse: exact against a batch run over the same topic, whatever stops their owner wherever."""

from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.stream_pipelines import (
    SCHEMA,
    WINDOWED,
    StreamSlot,
    event,
    events,
    source,
    stream_pipeline,
    stream_sink,
    windows,
)
from tests.support.waiting import until

from holdfast.cli.pipeline.file import read_pipeline_file
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.vocabulary import failpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine

ROOT = Path(__file__).parents[4]
CLOSING = [event(9_000, second=100_000), event(9_001, second=100_001)]
"""Records that move the watermark beyond everything before."""


def batch_windows(
    spark: "SparkSession", world: DriverCluster, topic: str
) -> dict[tuple[str, str], tuple[int, Decimal]]:
    """The query as a batch over the whole topic, without the records that only close its windows."""
    from pyspark.sql import functions as f

    frame = spark.read.format("holdfast").option("bootstrap", world.broker.bootstrap).option("topics", topic).load()
    rows = frame.select(f.from_json(frame["value"].cast("string"), SCHEMA).alias("v")).select("v.*").where("id < 9000")
    rows.createOrReplaceTempView("orders_batch")
    found = spark.sql(WINDOWED.format(orders="orders_batch")).collect()
    return {(f"{row.minute:%Y-%m-%d %H:%M:%S}.000000", row.kind): (row.n, row.total) for row in found}


AT_START = ("claimed", "copied", "taken-over")
IN_BATCH = ("planned", "staged", "begun", "inserting", "inserted", "pieces-inserted", "done")


def example(topic: str, clickhouse: ClickHouseDatabase) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sink and query of examples/order_counts.yaml, with this topic and table."""
    file = read_pipeline_file(str(ROOT / "examples/order_counts.yaml"))
    query, sink = file.parts["query"], stream_sink(clickhouse, orderBy=file.parts["sink"]["orderBy"])
    return sink, {**query, "sources": [{**query["sources"][0], "topic": topic}], "rowsPerBatchMax": 250}


def windowed(topic: str) -> dict[str, Any]:
    return {"sources": [source(topic, "orders")], "sql": WINDOWED.format(orders="orders")}


@pytest.mark.parametrize(
    "steps",
    [
        ("begun", "inserted"),  # before and after rows are visible; test_protocol.py dies at each step, without Spark
        pytest.param((*IN_BATCH, *AT_START), marks=pytest.mark.long, id="all"),
    ],
    ids=str,
)
def test_owners_that_die_at_every_step_are_succeeded_without_loss_or_repetition(
    steps: tuple[str, ...], world: DriverCluster, jobs: SparkJobs, spark: "SparkSession", clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = stream_pipeline(world, *example(topic, clickhouse))
    dead = []
    for number, step in enumerate(steps):
        world.produce(topic, events(range(number * 150, number * 150 + 150)))
        owner = StreamSlot(world, jobs, pipeline, f"owner{number}")
        owner.fail_at(f"stream.{step}")
        dead.append(owner)
    world.produce(topic, CLOSING)
    expected = batch_windows(spark, world, topic)
    successor = StreamSlot(world, jobs, pipeline, "successor")
    successor.run_until(lambda: len(windows(clickhouse)) == len(expected))
    assert windows(clickhouse) == expected
    progress = successor.processor.progress().stream
    assert progress is not None
    assert (progress.engine, progress.epoch) == ("structured-streaming", successor.claims[0])
    successor.run_until(lambda: not successor.record.retain)  # Spark has committed the last batch
    folders = Path(urlsplit(world.cluster_address.objects).path).rglob(f"streams/{pipeline.id}/1/e*")
    assert [each.name for each in folders] == [f"e{successor.claims[0]}"], "those of the dead are removed"
    before = successor.record
    for owner in dead:  # they were only paused, and go on where they were
        owner.processor.turn(owner.claims)
    assert successor.record.epoch == before.epoch
    assert windows(clickhouse) == expected


@pytest.mark.long
@pytest.mark.parametrize("step", ["begun", "staged"])
def test_a_sleeper_that_wakes_in_its_batch_after_others_took_over_adds_nothing(
    step: str, world: DriverCluster, jobs: SparkJobs, spark: "SparkSession", clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = stream_pipeline(world, stream_sink(clickhouse), windowed(topic))
    world.produce(topic, [*events(range(200)), event(200, second=400)])
    sleeper = StreamSlot(world, jobs, pipeline, "sleeper")
    asleep, woken = Event(), Event()

    def handler(reached: str) -> None:
        if reached == f"stream.{step}" and not asleep.is_set():
            asleep.set()
            assert woken.wait(100)

    with failpoints.installed(handler):
        sleeper.run_until(asleep.is_set)
        successor = StreamSlot(world, jobs, pipeline, "successor")
        world.produce(topic, CLOSING)
        expected = batch_windows(spark, world, topic)
        successor.run_until(lambda: len(windows(clickhouse)) == len(expected))
        woken.set()
        until(lambda: not sleeper.is_active)
    sleeper.processor.turn(sleeper.claims)
    assert windows(clickhouse) == expected


@pytest.mark.long
def test_a_stream_stream_join_equals_the_batch_also_when_its_owner_dies(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    left, right = world.topic(1), world.topic(1)
    sql = """
        SELECT o.id AS id, o.amount AS ordered, p.amount AS paid FROM orders o JOIN payments p
        ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 20 SECONDS
    """
    sources = [source(left, "orders"), source(right, "payments")]
    pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["id"]), {"sources": sources, "sql": sql})
    world.produce(left, events(range(200)))
    dead = StreamSlot(world, jobs, pipeline, "dead")
    dead.run_until(dead.has_read(**{left: 200}))
    # Of every third order the payment comes too late to be one; payments of orders that come later wait.
    world.produce(right, [event(number, second=number + (30 if number % 3 == 0 else 5)) for number in range(400)])
    dead.fail_at("stream.inserted")
    world.produce(left, events(range(200, 400)))
    successor = StreamSlot(world, jobs, pipeline, "successor")
    successor.run_until(successor.has_read(**{left: 400, right: 400}))
    expected = [number for number in range(400) if number % 3]
    rows = clickhouse.ask(f"SELECT id, ordered = paid AS equal FROM {clickhouse.database}.result ORDER BY id")
    assert [(int(row["id"]), row["equal"]) for row in rows] == [(number, 1) for number in expected]
