"""Queries by output mode and form, what is refused, and what an edit does."""

from hashlib import sha512
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.stream_pipelines import (
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

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.spark_jobs import SparkJobs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine

BY_KIND = "SELECT kind, count(*) AS n FROM orders GROUP BY kind"
PYTHON = """
from pyspark.sql import functions as f

def shout(batches):
    for batch in batches:
        yield batch

def pipeline(spark, sources):
    orders = sources["orders"].where("id % 2 = 0").select("id", f.sha2(f.col("id").cast("string"), 512).alias("text"))
    return orders.mapInArrow(shout, orders.schema)
"""


def kinds(clickhouse: ClickHouseDatabase, modifier: str = "") -> dict[str, int]:
    rows = clickhouse.ask(f"SELECT kind, n FROM {clickhouse.database}.result {modifier} ORDER BY kind")
    return {row["kind"]: int(row["n"]) for row in rows}


def test_in_update_mode_the_last_row_of_a_key_counts_also_after_a_takeover(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    sink = stream_sink(clickhouse, engine="ReplacingMergeTree", orderBy=["kind"])
    query = {"sources": [source(topic, "orders")], "sql": BY_KIND, "outputMode": "update"}
    pipeline = stream_pipeline(world, sink, query)
    world.produce(topic, events(range(30)))
    dead = StreamSlot(world, jobs, pipeline, "dead")
    dead.run_until(dead.has_read(**{topic: 30}))
    assert kinds(clickhouse, "FINAL") == {"k0": 10, "k1": 10, "k2": 10}
    world.produce(topic, events(range(30, 33)))
    dead.fail_at("stream.inserted")
    successor = StreamSlot(world, jobs, pipeline, "successor")
    successor.run_until(successor.has_read(**{topic: 33}))
    assert kinds(clickhouse, "FINAL") == {"k0": 11, "k1": 11, "k2": 11}


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.long)])
def test_in_complete_mode_the_table_is_the_last_result_also_after_a_takeover(
    dies: bool, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    query = {"sources": [source(topic, "orders")], "sql": BY_KIND, "outputMode": "complete"}
    pipeline = stream_pipeline(world, stream_sink(clickhouse), query)
    world.produce(topic, events(range(30)))
    owner = StreamSlot(world, jobs, pipeline, "ann")
    owner.run_until(owner.has_read(**{topic: 30}))
    assert kinds(clickhouse) == {"k0": 10, "k1": 10, "k2": 10}
    world.produce(topic, events(range(30, 33)))
    if dies:
        owner.fail_at("stream.exchanging")
    successor = StreamSlot(world, jobs, pipeline, "bob") if dies else owner
    successor.run_until(successor.has_read(**{topic: 33}))
    assert kinds(clickhouse) == {"k0": 11, "k1": 11, "k2": 11}
    tables = clickhouse.ask(f"SELECT name FROM system.tables WHERE database = '{clickhouse.database}' ORDER BY name")
    assert [row["name"] for row in tables] == ["holdfast_fence", "result"]


def test_a_python_file_is_run_where_the_operator_allows_it_and_large_pieces_go_through_objects(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, events(range(1_200)))
    query = {"sources": [source(topic, "orders")], "python": PYTHON}
    pipeline = stream_pipeline(world, stream_sink(clickhouse, batchSize=400), query)
    with pytest.raises(PermanentError, match=r"worker\.python_queries"):
        StreamSlot(world, jobs, pipeline, "denied").run_until(lambda: False)
    slot = StreamSlot(world, jobs, pipeline, "ann", python_queries=True)
    slot.fail_at("stream.pieces-inserted")
    begun = slot.record.intent
    assert begun is not None
    assert [(piece.rows, bool(piece.key), bool(piece.body)) for piece in begun.pieces] == [
        (400, True, False),
        (200, False, True),
    ], "what is small is in the intent"
    slot.run_until(slot.has_read(**{topic: 1_200}))
    rows = clickhouse.ask(f"SELECT id, text, _batch, _piece, _row FROM {clickhouse.database}.result ORDER BY id")
    assert [(int(row["id"]), row["text"]) for row in rows] == [
        (number, sha512(str(number).encode()).hexdigest()) for number in range(0, 1_200, 2)
    ]
    assert len({(row["_batch"], row["_piece"], row["_row"]) for row in rows}) == 600
    objects = Path(urlsplit(world.cluster_address.objects).path)
    until(lambda: not list(objects.rglob("*.arrow")), what="pieces go when their batch is done")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"sql": "SELECT nothing FROM orders"}, "UNRESOLVED_COLUMN"),
        ({"sql": "SELECT 1 AS one"}, "reads none of its sources as a stream"),
        ({"sql": "SELECT kind, sum(rand()) AS r FROM orders GROUP BY kind"}, r"rand\(\)"),
        ({"sql": "SELECT kind, count(uuid()) AS r FROM orders GROUP BY kind"}, r"uuid\(\)"),
        ({"sql": "SELECT reflect('java.lang.System', 'getenv', kind) AS e FROM orders"}, "a pipeline may not"),
        (
            {"sql": "SELECT o.id AS id FROM orders o JOIN csv.`/etc/passwd` p ON o.kind = p._c0"},
            "is not one of its sources",
        ),
        ({"sql": "SELECT window(at, '1 minute') AS w, count(*) AS n FROM orders GROUP BY 1"}, "sink.orderBy 'id'"),
        ({"sql": "SELECT id AS _batch FROM orders"}, "_batch"),
        ({"sql": "SELECT id FROM orders", "outputMode": "update"}, "update needs a query that keeps state"),
        ({"sql": "SELECT id FROM orders", "outputMode": "complete"}, "query: "),
    ],
    ids=lambda given: given["sql"][:40] if isinstance(given, dict) else "",
)
def test_what_cannot_run_or_cannot_be_exact_is_refused(
    query: dict[str, Any], reason: str, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    pipeline = stream_pipeline(
        world, stream_sink(clickhouse, orderBy=["id"]), {"sources": [source(topic, "orders")], **query}
    )
    slot = StreamSlot(world, jobs, pipeline, "ann")
    with pytest.raises(PermanentError, match=reason):
        slot.run_until(lambda: False)


def test_tables_that_would_count_twice_are_refused(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    clickhouse.run(
        f"CREATE TABLE {clickhouse.database}.result (kind String, n Int64, _pipeline LowCardinality(String), _generation UInt32, "
        "_batch UInt64, _piece UInt32, _row UInt32, _version UInt64) ENGINE = SummingMergeTree ORDER BY kind "
        "SETTINGS non_replicated_deduplication_window = 10000"
    )
    query = {"sources": [source(topic, "orders")], "sql": BY_KIND, "outputMode": "update"}
    slot = StreamSlot(world, jobs, stream_pipeline(world, stream_sink(clickhouse, orderBy=["kind"]), query), "ann")
    slot.run_until(lambda: bool(slot.processor.progress().blocked))
    assert "SummingMergeTree: in output mode update rows would count twice" in slot.processor.progress().blocked


@pytest.mark.long
def test_an_edit_of_the_sink_restarts_the_query_where_it_was(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    query = {"sources": [source(topic, "orders")], "sql": WINDOWED.format(orders="orders")}
    sink = stream_sink(clickhouse)
    pipeline = stream_pipeline(world, sink, query)
    world.produce(topic, [*events(range(100)), event(9_000, second=200)])
    slot = StreamSlot(world, jobs, pipeline, "ann")
    slot.run_until(lambda: len(windows(clickhouse)) == 6)
    run(world.catalog.put_part(pipeline.id, "sink", {**sink, "insertTimeoutMs": 30_000}))
    world.produce(topic, [event(9_001, second=100_000)])
    slot.run_until(lambda: len(windows(clickhouse)) == 7)
    assert sum(n for n, _ in windows(clickhouse).values()) == 101


COUNTING = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

class Count(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        before = self.seen.get()[0] if self.seen.exists() else 0
        after = before + sum(1 for _ in rows)
        self.seen.update((after,))
        yield Row(kind=key[0], n=after)

    def close(self):
        pass

def pipeline(spark, sources):
    return sources["orders"].groupBy("kind").transformWithState(
        statefulProcessor=Count(), outputStructType="kind STRING, n BIGINT", outputMode="Update", timeMode="None")
"""


@pytest.mark.long
def test_state_of_a_programs_own_survives_a_takeover(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    sink = stream_sink(clickhouse, engine="ReplacingMergeTree", orderBy=["kind"])
    query = {"sources": [source(topic, "orders")], "python": COUNTING, "outputMode": "update"}
    pipeline = stream_pipeline(world, sink, query)
    world.produce(topic, events(range(30)))
    dead = StreamSlot(world, jobs, pipeline, "dead", python_queries=True)
    dead.run_until(dead.has_read(**{topic: 30}))
    world.produce(topic, events(range(30, 36)))
    dead.fail_at("stream.begun")
    successor = StreamSlot(world, jobs, pipeline, "successor", python_queries=True)
    successor.run_until(successor.has_read(**{topic: 36}))
    assert kinds(clickhouse, "FINAL") == {"k0": 12, "k1": 12, "k2": 12}
