"""Streams into nothing: rows a second against the JVM's own rate source, and how long one row takes."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from bench.figures import Figure
from bench.kafka.results import BenchResults
from bench.spark.data import Data, create

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CASE, LATENCY = "stream", "one row"
OURS, RATE, CONNECTOR = "holdfast", "rate", "kafka connector"
ROWS_PER_BATCH: Final = 1_000_000
_TURN_MAX_S: Final = 600
_ROWS: Final = 30


def throughput(spark: "SparkSession", data: Data, rounds: int, found: BenchResults) -> list[Figure]:
    """The whole topic in batches of a million rows, and as many rows from the rate source."""
    rows = min(ROWS_PER_BATCH, max(1, data.records // 4))
    for round_ in range(-1, rounds):
        for source in (OURS, RATE):
            speed = _speed(spark, data, source, rows)
            if round_ >= 0:
                found.add(CASE, "rows_s", source, round_, speed)
    ours, other = found.median(CASE, "rows_s", OURS), found.median(CASE, "rows_s", RATE)
    ratio = found.ratio(CASE, "rows_s", OURS, RATE)
    assert ours is not None
    note = f"batches of {rows:,} rows; a rate row is a time and a number"
    return [Figure("stream", "into nothing, against the JVM's rate source", "rows/s", ours, other, ratio, note=note)]


def latency(spark: "SparkSession", data: Data, found: BenchResults, *, connector: bool) -> list[Figure]:
    """From a row's send to the end of its batch, at the smallest trigger; one row at a time."""
    topic = create(data.bootstrap, f"{data.topic}-rows", 1)
    for source in (OURS, *([CONNECTOR] if connector else [])):
        for round_, took_ms in enumerate(_row_by_row(spark, data, source, topic)):
            found.add(LATENCY, "ms", source, round_, took_ms)
    ours, other = found.median(LATENCY, "ms", OURS), found.median(LATENCY, "ms", CONNECTOR)
    assert ours is not None
    ratio = ours / other if other else None
    note = f"median of {_ROWS}; the reference is Spark's Kafka connector" if other else f"median of {_ROWS}"
    return [Figure("stream", "one row, from its send to the end of its batch", "ms", ours, other, ratio, note=note)]


def _speed(spark: "SparkSession", data: Data, source: str, rows: int) -> float:
    """Rows a second over the batches of one query, first batch left out: it begins the query."""
    wanted = data.records // rows
    if source == RATE:
        options = {"rowsPerBatch": str(rows), "numPartitions": str(spark.sparkContext.defaultParallelism)}
        frame = spark.readStream.format("rate-micro-batch").options(**options).load()
        trigger: dict[str, Any] = {"processingTime": "0 seconds"}
    else:
        options = {**data.options, "startingOffsets": "earliest", "maxRowsPerTrigger": str(rows)}
        frame = spark.readStream.format("holdfast").options(**options).load()
        trigger = {"availableNow": True}
    with tempfile.TemporaryDirectory() as folder:
        query = _into_nothing(frame, Path(folder), trigger)
        try:
            _until(lambda: not query.isActive or len(_batches(query)) >= wanted)
        finally:
            query.stop()
        failed = query.exception()
        if failed is not None:
            raise failed
        counted = _batches(query)[1:wanted]
    return sum(count for count, _ in counted) / (sum(took_ms for _, took_ms in counted) / 1_000)


def _row_by_row(spark: "SparkSession", data: Data, source: str, topic: str) -> list[float]:
    if source == OURS:
        frame = spark.readStream.format("holdfast").options(bootstrap=data.bootstrap, topics=topic).load()
    else:
        options = {"kafka.bootstrap.servers": data.bootstrap, "subscribe": topic}
        frame = spark.readStream.format("kafka").options(**options).load()
    producer = Producer({"bootstrap.servers": data.bootstrap, "linger.ms": 0, "log_level": 0})
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        query = _into_nothing(frame, Path(folder), {"processingTime": "0 seconds"})
        try:
            _until(lambda: query.lastProgress is not None)
            for _ in range(_ROWS + 5):
                seen = len(_batches(query))
                begin = time.perf_counter()
                producer.produce(topic, b"row")
                producer.flush(30)
                _until(lambda seen=seen: len(_batches(query)) > seen)  # type: ignore[misc]
                took.append((time.perf_counter() - begin) * 1_000)
        finally:
            query.stop()
    return took[5:]


def _into_nothing(frame: "DataFrame", folder: Path, trigger: dict[str, Any]) -> "StreamingQuery":
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query: StreamingQuery = writer.trigger(**trigger).start()
    return query


def _batches(query: "StreamingQuery") -> list[tuple[int, float]]:
    """Rows and milliseconds of every batch that had rows."""
    return [(each.numInputRows, float(each.batchDuration)) for each in query.recentProgress if each.numInputRows]


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _TURN_MAX_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing happened for {_TURN_MAX_S} s")
        time.sleep(0.005)
