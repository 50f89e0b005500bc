"""Spark's own Kafka connector, `format("kafka")`: batches, streams, offsets, checkpoints."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.spark_kafka import ARTIFACTS, spark_kafka_jars

from conformance import topics
from conformance.model import Case, Workplace
from conformance.programs import require
from conformance.scenarios import Step, played
from holdfast.spark.settings import SparkSettings
from holdfast.spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = ARTIFACTS[0].rpartition(":")[2]
FIRST: Final = [b"%d" % number for number in range(3000)]


class Spark:
    """One session of two threads in this process."""

    name = "spark"
    title = "Spark's Kafka connector"
    about = '`format("kafka")` in the PySpark that Holdfast is installed with, on `local[2]`.'
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        require("java", used_for="to run Spark")
        spark_kafka_jars()
        return VERSION

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        jars = ",".join(map(str, spark_kafka_jars()))
        conf = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2"}
        spark = session(SparkSettings(master="local[2]", quick_start=True, conf=conf), app_name="conformance")
        try:
            yield from played(_Scenario(spark, at).steps())
        finally:
            spark.stop()


class _Scenario:
    def __init__(self, spark: "SparkSession", at: Workplace) -> None:
        self._spark, self._broker, self._folder = spark, at.broker, at.scratch
        self._at = {"kafka.bootstrap.servers": at.broker.bootstrap}

    def steps(self) -> Sequence[Step]:
        return [
            self.a_batch_reads_a_topic_with_keys_headers_and_times,
            self.a_batch_reads_between_offsets,
            self.a_batch_reads_from_a_timestamp,
            self.topics_are_read_by_a_pattern,
            self.a_batch_is_split_into_more_tasks_than_partitions,
            self.a_batch_writes_a_topic,
            self.a_stream_copies_a_topic_and_goes_on_from_its_checkpoint,
            self.a_stream_goes_on_after_the_server_crashed,
            self.a_stream_reads_no_more_than_it_is_told_per_trigger,
        ]

    def _read(self, **options: object) -> "DataFrame":
        return self._spark.read.format("kafka").options(**self._at).options(**_texts(options)).load()

    def a_batch_reads_a_topic_with_keys_headers_and_times(self) -> None:
        topics.create_topic(self._broker.bootstrap, "spark-in", 3)
        topics.send(self._broker.bootstrap, "spark-in", FIRST, **{"compression.type": "lz4"})
        rows = self._read(subscribe="spark-in", includeHeaders="true").collect()
        assert sorted(int(row.value) for row in rows) == list(range(3000))
        sent = {each.value: each.timestamp_ms for each in topics.read_all(self._broker.bootstrap, "spark-in")}
        for row in rows:
            (header,) = row.headers
            assert (bytes(row.key), header["key"], bytes(header["value"])) == (
                bytes(row.value),
                "number",
                bytes(row.value),
            )
            assert round(row.timestamp.timestamp() * 1000) == sent[bytes(row.value)]

    def a_batch_reads_between_offsets(self) -> None:
        bounds = {
            "startingOffsets": '{"spark-in":{"0":10,"1":-2,"2":7}}',
            "endingOffsets": '{"spark-in":{"0":20,"1":5,"2":-1}}',
        }
        rows = self._read(subscribe="spark-in", **bounds).collect()
        found = {(row.partition, row.offset) for row in rows}
        end = sum(each.partition == 2 for each in topics.read_all(self._broker.bootstrap, "spark-in"))
        expected = {0: range(10, 20), 1: range(5), 2: range(7, end)}
        assert found == {(partition, offset) for partition, offsets in expected.items() for offset in offsets}

    def a_batch_reads_from_a_timestamp(self) -> None:
        everything = topics.read_all(self._broker.bootstrap, "spark-in")
        middle = sorted(each.timestamp_ms for each in everything)[len(everything) // 2]
        rows = self._read(
            subscribe="spark-in", startingTimestamp=middle, startingOffsetsByTimestampStrategy="latest"
        ).collect()
        found = {bytes(row.value) for row in rows}
        assert found >= {each.value for each in everything if each.timestamp_ms >= middle}

    def topics_are_read_by_a_pattern(self) -> None:
        topics.create_topic(self._broker.bootstrap, "spark-in-too", 1)
        topics.send(self._broker.bootstrap, "spark-in-too", [b"too"])
        assert self._read(subscribePattern="spark-in.*").count() == 3001

    def a_batch_is_split_into_more_tasks_than_partitions(self) -> None:
        frame = self._read(subscribe="spark-in", minPartitions=9)
        assert frame.rdd.getNumPartitions() >= 9
        assert frame.count() == 3000

    def a_batch_writes_a_topic(self) -> None:
        topics.create_topic(self._broker.bootstrap, "spark-out", 2)
        rows = self._spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
        rows.write.format("kafka").options(**self._at).option("topic", "spark-out").save()
        found = topics.read_until(self._broker.bootstrap, "spark-out", [b"%d" % number for number in range(1000)])
        assert len(found) == 1000

    def _copy(self, source: str, target: str, **options: object) -> Any:
        stream = self._spark.readStream.format("kafka").options(**self._at).option("subscribe", source)
        frame = stream.option("startingOffsets", "earliest").options(**_texts(options)).load()
        out = frame.select("key", "value").writeStream.format("kafka").options(**self._at).option("topic", target)
        return out.option("checkpointLocation", str(self._folder / f"checkpoint-{target}"))

    def a_stream_copies_a_topic_and_goes_on_from_its_checkpoint(self) -> None:
        topics.create_topic(self._broker.bootstrap, "spark-copy", 2)
        for more in ([], [b"more-%d" % number for number in range(200)]):
            if more:
                topics.send(self._broker.bootstrap, "spark-in", more)
            query = self._copy("spark-in", "spark-copy").trigger(availableNow=True).start()
            assert query.awaitTermination(int(topics.WAIT_S))
            topics.read_until(self._broker.bootstrap, "spark-copy", [*FIRST, *more])
        assert len(topics.read_all(self._broker.bootstrap, "spark-copy")) == 3200

    def a_stream_goes_on_after_the_server_crashed(self) -> None:
        topics.create_topic(self._broker.bootstrap, "spark-live", 2)
        query = self._copy("spark-in", "spark-live").trigger(processingTime="500 milliseconds").start()
        try:
            topics.read_until(self._broker.bootstrap, "spark-live", FIRST)
            self._broker.kill()
            self._broker.start()
            later = [b"crashed-%d" % number for number in range(200)]
            topics.send(self._broker.bootstrap, "spark-in", later)
            topics.read_until(self._broker.bootstrap, "spark-live", later)
            assert query.isActive
        finally:
            query.stop()

    def a_stream_reads_no_more_than_it_is_told_per_trigger(self) -> None:
        topics.create_topic(self._broker.bootstrap, "spark-slow", 1)
        query = self._copy("spark-in", "spark-slow", maxOffsetsPerTrigger=1000).trigger(availableNow=True).start()
        assert query.awaitTermination(int(topics.WAIT_S))
        read = [each["numInputRows"] for each in query.recentProgress]
        assert max(read) <= 1000, read
        assert sum(read) == len(topics.read_all(self._broker.bootstrap, "spark-in")), read


def _texts(options: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}
