"""`spark.readStream.format("holdfast")`: every record once, over restarts, limits and changes of topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.broker import Broker
from tests.support.spark_topics import await_published, delete_before, numbered, options, send
from tests.support.waiting import until

EARLIEST = {"startingOffsets": "earliest"}
WAIT_S = 90


def stream(spark: SparkSession, broker: Broker, topic: str, **more: object) -> DataFrame:
    return spark.readStream.format("holdfast").options(**options(broker, topic, more)).load()


class CheckpointedStream:
    """A folder of Parquet that a stream writes, and its checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def write(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.selectExpr("partition", "offset", "cast(value as string) value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        query: StreamingQuery = writer.trigger(**trigger).start(str(self._folder / "rows"))
        return query

    def values(self) -> list[int]:
        rows = self._folder / "rows"
        if not (rows / "_spark_metadata").exists():
            return []
        written = self._spark.read.schema("partition int, offset long, value string").parquet(str(rows))
        return sorted(int(row.value) for row in written.select("value").collect())


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> CheckpointedStream:
    return CheckpointedStream(spark, tmp_path)


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def finish(query: StreamingQuery) -> StreamingQuery:
    with running(query):
        assert query.awaitTermination(WAIT_S)
    return query


def test_a_stream_resumes_from_its_checkpoint(spark: SparkSession, broker: Broker, kept: CheckpointedStream) -> None:
    topic = broker.create_topic("restarted", 2, {"segment.ms": "100"})
    send(broker, topic, numbered(500, 2))
    with running(kept.write(stream(spark, broker, topic, **EARLIEST), processingTime="100 milliseconds")) as query:
        until(lambda: len(kept.values()) == 500, within_s=WAIT_S, what=str(query.exception()))
        send(broker, topic, numbered(200, 2, first=500))
        until(lambda: len(kept.values()) == 700, within_s=WAIT_S, what=str(query.exception()))
    send(broker, topic, numbered(300, 2, first=700))
    await_published(broker, topic)
    finish(kept.write(stream(spark, broker, topic, **EARLIEST), availableNow=True))
    assert kept.values() == list(range(1_000))


def test_partitions_that_are_added_are_read_from_their_beginning(
    spark: SparkSession, broker: Broker, kept: CheckpointedStream
) -> None:
    topic = broker.create_topic("grown", 1, {"segment.ms": "100"})
    send(broker, topic, numbered(50, 1))
    latest = {"startingOffsets": "latest"}
    with running(kept.write(stream(spark, broker, topic, **latest), processingTime="100 milliseconds")) as query:
        until(lambda: query.lastProgress is not None, within_s=WAIT_S, what=str(query.exception()))
        broker.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        send(broker, topic, numbered(300, 3, first=100))
        until(lambda: len(kept.values()) == 300, within_s=WAIT_S, what=str(query.exception()))
    broker.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)  # while the stream is away
    send(broker, topic, numbered(200, 4, first=400))
    await_published(broker, topic)
    finish(kept.write(stream(spark, broker, topic, **latest), availableNow=True))
    assert kept.values() == list(range(100, 600))


def test_available_now_reads_to_the_end_in_limited_batches(
    spark: SparkSession, broker: Broker, kept: CheckpointedStream
) -> None:
    topic = broker.create_topic("limited", 3)
    send(broker, topic, numbered(1_000, 3))
    frame = stream(spark, broker, topic, maxRowsPerTrigger=400, minRows=10_000, **EARLIEST)
    query = finish(kept.write(frame, availableNow=True))
    batches = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(batches) == 1_000
    assert max(batches) <= 400
    assert kept.values() == list(range(1_000))
    assert '"lag"' in str(query.recentProgress[0].sources[0].latestOffset)


@pytest.mark.long  # as rows, above; how limits are shared is in tests/client/test_splits.py
def test_bytes_are_limited(spark: SparkSession, broker: Broker, kept: CheckpointedStream) -> None:
    topic = broker.create_topic("bytes", config={"segment.ms": "100"})
    send(broker, topic, numbered(2_000))
    await_published(broker, topic)
    query = finish(kept.write(stream(spark, broker, topic, maxBytesPerTrigger=6_000, **EARLIEST), availableNow=True))
    assert len([progress for progress in query.recentProgress if progress.numInputRows]) >= 3
    assert kept.values() == list(range(2_000))


def test_a_stream_without_starting_offsets_begins_at_the_end(
    spark: SparkSession, broker: Broker, kept: CheckpointedStream
) -> None:
    topic = broker.create_topic("latest")
    send(broker, topic, numbered(10))
    with running(kept.write(stream(spark, broker, topic), processingTime="50 milliseconds")) as query:
        until(lambda: query.lastProgress is not None, within_s=WAIT_S, what=str(query.exception()))
        send(broker, topic, numbered(5, first=10))
        until(lambda: len(kept.values()) >= 5, within_s=WAIT_S, what=str(query.exception()))
    assert kept.values() == [10, 11, 12, 13, 14]


@pytest.mark.long  # without Spark, the same is in test_positions.py
def test_a_recreated_topic_stops_the_stream_or_is_read_from_the_beginning(
    spark: SparkSession, broker: Broker, kept: CheckpointedStream
) -> None:
    topic = broker.create_topic("again")
    send(broker, topic, numbered(10))
    finish(kept.write(stream(spark, broker, topic, **EARLIEST), availableNow=True))
    broker.admin.delete_topics([topic])[topic].result(20)
    broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    broker.await_leaders(topic)
    send(broker, topic, numbered(5, first=100))
    with pytest.raises(StreamingQueryException, match="was deleted and recreated"):
        finish(kept.write(stream(spark, broker, topic, **EARLIEST), availableNow=True))
    finish(kept.write(stream(spark, broker, topic, failOnDataLoss="false", **EARLIEST), availableNow=True))
    assert kept.values() == [*range(10), *range(100, 105)]


@pytest.mark.long  # without Spark, the same is in test_positions.py
def test_retention_that_was_faster_stops_the_stream_or_is_skipped(
    spark: SparkSession, broker: Broker, kept: CheckpointedStream
) -> None:
    topic = broker.create_topic("faster", config={"segment.ms": "100"})
    send(broker, topic, numbered(10))
    finish(kept.write(stream(spark, broker, topic, **EARLIEST), availableNow=True))
    send(broker, topic, numbered(90, first=10))
    await_published(broker, topic)
    delete_before(broker, topic, 60)
    with pytest.raises(StreamingQueryException, match=r"offsets 10 to 59 are missing"):
        finish(kept.write(stream(spark, broker, topic, **EARLIEST), availableNow=True))
    finish(kept.write(stream(spark, broker, topic, failOnDataLoss="false", **EARLIEST), availableNow=True))
    assert kept.values() == [*range(10), *range(60, 100)]
