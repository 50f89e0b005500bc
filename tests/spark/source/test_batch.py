"""`spark.read.format("holdfast")` on a real session, found without being registered."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.support.broker import Broker
from tests.support.spark_topics import (
    Sent,
    await_published,
    delete_before,
    noise,
    numbered,
    options,
    publish_quickly,
    published_address_of,
    send,
)

from holdfast.spark.source.read_metrics import ReadMetrics

FOREVER = {"retention.ms": "-1"}  # for records with timestamps of another year
QUICK = {"segment.ms": "100", **FOREVER}


def read(spark: SparkSession, broker: Broker, topic: str, **more: object) -> DataFrame:
    return spark.read.format("holdfast").options(**options(broker, topic, more)).load()


def values(frame: DataFrame) -> list[str]:
    return sorted((bytes(row.value).decode() for row in frame.select("value").collect()), key=int)


def test_every_column_of_every_record_is_read(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("columns", 2, FOREVER)
    sent = [
        Sent(b"1", 0, b"k", 1_700_000_000_123, [("a", b"x"), ("b", None)]),
        Sent(None, 1, b"gone", 1_700_000_000_000),
        Sent(b"", 0, None, 1_700_000_000_001),
    ]
    send(broker, topic, sent)
    rows = read(spark, broker, topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.key, row.value, row.topic, row.partition, row.offset, row.timestampType) for row in rows] == [
        (b"k", b"1", topic, 0, 0, 0),
        (None, b"", topic, 0, 1, 0),
        (b"gone", None, topic, 1, 0, 0),
    ]
    assert [row.headers for row in rows] == [[("a", b"x"), ("b", None)], None, None]
    instants = read(spark, broker, topic).select(f.unix_millis("timestamp").alias("at")).collect()
    assert {row["at"] for row in instants} == {each.timestamp_ms for each in sent}


def test_published_and_tail_are_one_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("one", 4, QUICK)
    send(broker, topic, numbered(4_000, 4))
    await_published(broker, topic)
    quiet = broker.create_topic("two", 4)
    send(broker, quiet, numbered(400, 4))
    metrics = ReadMetrics(tmp_path / "metrics")
    frame = read(spark, broker, f"{topic},{quiet}", **metrics.options)
    counts = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {topic: 4_000, quiet: 400}
    read_so_far = metrics.read()
    assert read_so_far.rows == 4_400
    assert read_so_far.bytes_objects > 0
    assert read_so_far.bytes_agents > 0


def test_without_brokers_only_published_records_are_read(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("past", config=QUICK)
    send(broker, topic, numbered(100))
    await_published(broker, topic)
    cluster_address = published_address_of(broker)
    given = {"store": cluster_address.store, "objects": cluster_address.objects, "topicsPattern": f"{topic[:-1]}."}
    frame = spark.read.format("holdfast").options(**given).load()
    assert values(frame) == [str(number) for number in range(100)]


def test_starts_and_ends_are_offsets_or_times(spark: SparkSession, broker: Broker) -> None:
    topic, base = broker.create_topic("ends", config=FOREVER), 1_700_000_000_000
    send(broker, topic, [Sent(b"%d" % at, timestamp_ms=base + at * 1_000) for at in range(50)])
    some = read(spark, broker, topic, startingOffsets=json.dumps({topic: {"0": 10}}),
                endingOffsets=json.dumps({topic: {"0": 13}}))  # fmt: skip
    assert values(some) == ["10", "11", "12"]
    some = read(spark, broker, topic, startingTimestamp=base + 45_000, endingTimestamp="2023-11-14T22:14:08Z")
    assert values(some) == ["45", "46", "47"]


def test_filters_bound_what_is_read(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, base = broker.create_topic("filtered", 2, {"segment.bytes": "1048576", **FOREVER}), 1_700_000_000_000
    send(broker, topic, [Sent(noise(1_000), at % 2, timestamp_ms=base + at * 1_000) for at in range(12_000)])
    publish_quickly(broker, topic)
    await_published(broker, topic)

    def cost(name: str, condition: str, **more: object) -> tuple[int, int]:
        metrics = ReadMetrics(tmp_path / name)
        rows = read(spark, broker, topic, **metrics.options, **more).filter(condition).count()
        return rows, metrics.read().bytes_objects

    # A dozen segments of a mebibyte: a window takes one of each partition, or two where it lies on a border.
    rows, everything = cost("all", "true")
    assert (rows, everything > 12_000_000) == (12_000, True)
    rows, some = cost("offsets", "partition = 1 and offset >= 100 and offset < 300")
    assert (rows, some < everything * 0.1) == (200, True)
    window = [datetime.fromtimestamp((base + at) / 1_000, UTC).isoformat() for at in (6_000_000, 6_059_999)]
    within = f"timestamp >= timestamp '{window[0]}' and timestamp <= timestamp '{window[1]}'"
    rows, later = cost("from", within)
    assert (rows, later < everything * 0.7) == (60, True)  # from there to the end: who knows how late a record may be
    rows, some = cost("window", within, timestampDisorder="2s")
    assert (rows, some < everything * 0.4) == (60, True)
    assert cost("none", "partition = 7") == (0, 0)
    assert cost("not", "offset in (5, 7) and not partition = 0")[0] == 2


def test_a_session_without_filter_pushdown_filters_itself(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("plain")
    send(broker, topic, numbered(20))
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    try:
        assert values(read(spark, broker, topic).filter("offset < 3")) == ["0", "1", "2"]
    finally:
        spark.conf.set(name, before or "true")


@pytest.mark.parametrize("packing", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(spark: SparkSession, broker: Broker, packing: str) -> None:
    topic = broker.create_topic(packing)
    send(broker, topic, numbered(1_000), **{"compression.type": packing})
    assert read(spark, broker, topic).select(f.sum(f.col("value").cast("string").cast("int"))).first() == (499_500,)


def test_wrong_options_are_named(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("wrong")
    with pytest.raises(PySparkException, match=r"invalid option 'subscribed'.*topicsPattern"):
        read(spark, broker, topic, subscribed="x").collect()
    with pytest.raises(PySparkException, match="invalid options subscribe and topics 'both'"):
        read(spark, broker, topic, subscribe="x").collect()
    with pytest.raises(PySparkException, match="'nowhere' does not exist"):
        read(spark, broker, "nowhere").collect()
    with pytest.raises(PySparkException, match="option startingOffsets"):
        read(spark, broker, topic, startingOffsets="first").collect()
    with pytest.raises(PySparkException, match="invalid schema"):
        spark.read.format("holdfast").schema("a int").options(**options(broker, topic)).load().collect()


def test_a_missing_topic_is_skipped_with_fail_on_data_loss_false(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("there")
    send(broker, topic, numbered(3))
    assert read(spark, broker, f"{topic},nowhere", failOnDataLoss="false").count() == 3


def test_records_removed_after_planning_fail_the_read_or_are_skipped(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("removed", config=QUICK)
    send(broker, topic, numbered(100))
    await_published(broker, topic)
    given = json.dumps({topic: {"0": 10}})
    delete_before(broker, topic, 50)
    with pytest.raises(PySparkException, match=r"offsets 10 to 49 are missing"):
        read(spark, broker, topic, startingOffsets=given).collect()
    assert read(spark, broker, topic, startingOffsets=given, failOnDataLoss="false").count() == 50


def test_many_partitions_share_a_task(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("wide", 40)
    send(broker, topic, numbered(4_000, 40))
    frame = read(spark, broker, topic)
    assert frame.rdd.getNumPartitions() == 1
    assert read(spark, broker, topic, rowsPerTask="1000").rdd.getNumPartitions() == 4
    assert frame.count() == 4_000


def test_workers_and_their_open_connections_are_reused(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic("kept")
    send(broker, topic, numbered(10))
    for _ in range(3):
        assert read(spark, broker, topic).count() == 10
