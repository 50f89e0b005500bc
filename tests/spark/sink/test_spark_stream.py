"""`df.writeStream.format("holdfast")`: every row once, over commits that die at every step and drivers that are killed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.broker import Broker
from tests.support.dying_sink import DyingSource
from tests.support.fake_brokers import FAILPOINTS
from tests.support.librdkafka_client import read_all

ROWS_PER_FILE = 500
DRIVER_TIMEOUT_S = 240  # a busy machine is no defect


def add_file(folder: Path, number: int) -> None:
    """The next rows of the stream, all at once."""
    first = number * ROWS_PER_FILE
    text = "".join(f'{{"id": {row}}}\n' for row in range(first, first + ROWS_PER_FILE))
    (folder / f".{number}").write_text(text)
    (folder / f".{number}").rename(folder / f"{number:04d}.json")


def start(spark: SparkSession, form: str, folder: Path, options: dict[str, str]) -> StreamingQuery:
    rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "1").json(str(folder / "in"))
    values = rows.selectExpr("cast(id as string) key", "struct(id) value").repartition(3)
    writing = values.writeStream.format(form).options(**options)
    return writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def ids(broker: Broker, topic: str, partitions: int) -> list[int]:
    found = read_all(broker, topic, range(partitions))
    return sorted(int((each.value or b"").removeprefix(b'{"id":').removesuffix(b"}")) for each in found)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "steps",
    [FAILPOINTS[::2], pytest.param(FAILPOINTS, marks=pytest.mark.long)],  # without Spark, each is in test_publisher.py
    ids=["every other step", "every step"],
)
def test_a_stream_whose_commits_die_at_every_step_loses_and_repeats_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    """Each start finishes the batch that the one before it died in, and dies at the next step."""
    spark.dataSource.register(DyingSource)
    topic = broker.create_topic("stream", 3)
    (tmp_path / "in").mkdir()
    options = {"bootstrap": broker.bootstrap, "topic": topic, "batchBytes": "2048", "inlineBytes": "0"}
    for number, step in enumerate(steps):
        add_file(tmp_path / "in", number)
        dying = start(spark, "dying", tmp_path, {**options, "step": step, "mark": str(tmp_path / step)})
        with pytest.raises(Exception, match=r"(?s)."):
            dying.awaitTermination()
        assert (tmp_path / step).exists(), f"the commit did not reach {step!r}"
    add_file(tmp_path / "in", len(steps))
    start(spark, "holdfast", tmp_path, options).awaitTermination()
    assert ids(broker, topic, 3) == list(range((len(steps) + 1) * ROWS_PER_FILE))


def test_a_stream_may_have_a_name(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("named")
    (tmp_path / "in").mkdir()
    add_file(tmp_path / "in", 0)
    rows = spark.readStream.schema("id LONG").json(str(tmp_path / "in")).selectExpr("struct(id) value")
    writing = rows.writeStream.queryName("copies").format("holdfast").option("bootstrap", broker.bootstrap)
    writing = writing.option("topic", topic).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writing.trigger(availableNow=True).start().awaitTermination()
    assert ids(broker, topic, 1) == list(range(ROWS_PER_FILE))


def drive(folder: Path, broker: Broker, topic: str, step: str) -> int:
    """A driver of its own, JVM and all, that is killed at `step`; its exit code."""
    options = {"bootstrap": broker.bootstrap, "topic": topic, "batchBytes": "2048", "step": step}
    argv = [
        sys.executable,
        "-m",
        "tests.spark.sink.test_spark_stream",
        str(folder),
        *(f"{k}={v}" for k, v in options.items()),
    ]
    driver = subprocess.Popen(argv, start_new_session=True, cwd=Path(__file__).parents[3])
    try:
        return driver.wait(DRIVER_TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize(
    "steps",
    [("spark-sink.round-sent",), pytest.param(FAILPOINTS, marks=pytest.mark.long)],
    ids=["one step", "every step"],
)
@pytest.mark.timeout(1_800)
def test_a_driver_killed_with_its_jvm_is_resumed_by_the_next_one(
    spark: SparkSession, broker: Broker, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    topic = broker.create_topic("driver", 3)
    (tmp_path / "in").mkdir()
    for number, step in enumerate(steps):
        add_file(tmp_path / "in", number)
        assert drive(tmp_path, broker, topic, step) == -signal.SIGKILL
    add_file(tmp_path / "in", len(steps))
    start(spark, "holdfast", tmp_path, {"bootstrap": broker.bootstrap, "topic": topic}).awaitTermination()
    assert ids(broker, topic, 3) == list(range((len(steps) + 1) * ROWS_PER_FILE))


def main() -> None:
    """The driver of its own."""
    from tests.support.spark_session import SETTINGS

    from holdfast.spark.spark_session import session

    folder, options = Path(sys.argv[1]), dict(each.split("=", 1) for each in sys.argv[2:])
    spark = session(SETTINGS)
    spark.dataSource.register(DyingSource)
    mark = str(folder / f"mark-{options['step']}")
    start(spark, "dying", folder, {**options, "mark": mark, "group": str(os.getpgid(0))}).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
