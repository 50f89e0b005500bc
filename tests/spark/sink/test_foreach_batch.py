"""`foreachBatch(publish_batches(...))`: tasks send what the driver planned; a query may change to the sink and back."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sink.test_spark_stream import ROWS_PER_FILE, add_file, ids, start
from tests.support.broker import Broker
from tests.support.failpoints import FailpointError, fail_at

from holdfast.spark import publish_batches
from holdfast.vocabulary import failpoints

PARTITIONS = 3


def run_batches(spark: SparkSession, folder: Path, publish: Any) -> None:
    rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "1").json(str(folder / "in"))
    values = rows.selectExpr("cast(id as string) key", "struct(id) value").repartition(3)
    writing = values.writeStream.foreachBatch(publish).option("checkpointLocation", str(folder / "checkpoint"))
    writing.trigger(availableNow=True).start().awaitTermination()


def options_of(broker: Broker, topic: str) -> dict[str, str]:
    return {"bootstrap": broker.bootstrap, "topic": topic, "batchBytes": "2048", "inlineBytes": "0"}


def test_batches_are_published_by_tasks_once_over_a_driver_that_dies_and_a_change_of_the_sink(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.create_topic("batches", PARTITIONS)
    (tmp_path / "in").mkdir()
    publish, sent_here = publish_batches(**options_of(broker, topic)), []

    def dies(frame: DataFrame, batch: int) -> None:
        with failpoints.installed(fail_at("spark-sink.planned")):
            publish(frame, batch)

    def watched(frame: DataFrame, batch: int) -> None:
        with failpoints.installed(lambda name: sent_here.append(name) if name == "spark-sink.round-sent" else None):
            publish(frame, batch)

    add_file(tmp_path / "in", 0)
    with pytest.raises(Exception, match=FailpointError.__name__):
        run_batches(spark, tmp_path, dies)
    assert ids(broker, topic, PARTITIONS) == []
    add_file(tmp_path / "in", 1)
    run_batches(spark, tmp_path, watched)
    assert sent_here == []
    assert ids(broker, topic, PARTITIONS) == list(range(2 * ROWS_PER_FILE))
    add_file(tmp_path / "in", 2)
    start(spark, "holdfast", tmp_path, options_of(broker, topic)).awaitTermination()
    assert ids(broker, topic, PARTITIONS) == list(range(3 * ROWS_PER_FILE))


def test_a_frame_of_no_query_is_refused(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame([(b"a",)], "value binary")
    with pytest.raises(Exception, match="foreachBatch"):
        publish_batches(bootstrap=broker.bootstrap, topic=broker.create_topic("batch"))(frame, 0)
