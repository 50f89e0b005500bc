"""Batch reads: every column of every row, into nothing."""

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from bench.kafka.processes import cpu_seconds
from bench.kafka.results import BenchResults
from bench.spark.data import Data
from holdfast.spark.source.read_metrics import ReadMetrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASE: Final = "batch read"
OURS, PARQUET, CONNECTOR = "holdfast", "parquet", "kafka connector"
PARQUET_MIN: Final = 0.7
CONNECTOR_MIN: Final = 2.0
AGENTS_SHARE_MAX: Final = 0.01


def measure(spark: "SparkSession", data: Data, rounds: int, found: BenchResults, *, connector: bool) -> list[Figure]:
    """All readers in turn, round after round, after one round that does not count."""
    readers = [OURS, PARQUET, *([CONNECTOR] if connector else [])]
    for round_ in range(-1, rounds):
        for reader in readers:
            begin, used = time.perf_counter(), cpu_seconds(os.getpid())
            _frame(spark, data, reader).write.format("noop").mode("overwrite").save()
            if round_ >= 0:
                found.add(CASE, "rows_s", reader, round_, data.records / (time.perf_counter() - begin))
                found.add(CASE, "cpu_us", reader, round_, (cpu_seconds(os.getpid()) - used) * 1e6 / data.records)
    return [*_against(found, readers), *_cpu(found, readers), _bytes(spark, data)]


def _frame(spark: "SparkSession", data: Data, reader: str) -> "DataFrame":
    if reader == PARQUET:
        return spark.read.parquet(str(data.parquet))
    if reader == CONNECTOR:
        options = {"kafka.bootstrap.servers": data.bootstrap, "subscribe": data.topic}
        return spark.read.format("kafka").options(**options).load()
    return spark.read.format("holdfast").options(**data.options).load()


def _against(found: BenchResults, readers: list[str]) -> list[Figure]:
    made = []
    for reader, least in ((PARQUET, PARQUET_MIN), (CONNECTOR, CONNECTOR_MIN)):
        if reader in readers:
            ours, other = found.median(CASE, "rows_s", OURS), found.median(CASE, "rows_s", reader)
            ratio = found.ratio(CASE, "rows_s", OURS, reader)
            assert ours is not None
            assert ratio is not None
            met = ratio >= least
            made.append(
                Figure("batch read", f"against {reader}", "rows/s", ours, other, ratio, f"ratio ≥ {least:g}", met)
            )
    return made


def _cpu(found: BenchResults, readers: list[str]) -> list[Figure]:
    """CPU time per row, of JVM and Python together: on a busy machine it is more reliable than rows per second."""
    ours = found.median(CASE, "cpu_us", OURS)
    assert ours is not None
    made = []
    for reader in readers[1:]:
        other, ratio = found.median(CASE, "cpu_us", reader), found.ratio(CASE, "cpu_us", OURS, reader)
        note = "the broker's share is not in it" if reader == CONNECTOR else ""
        made.append(Figure("batch read", f"CPU a row, against {reader}", "µs", ours, other, ratio, note=note))
    return made


def _bytes(spark: "SparkSession", data: Data) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        metrics = ReadMetrics(Path(folder) / "metrics")
        frame = spark.read.format("holdfast").options(**data.options).options(**metrics.options).load()
        frame.write.format("noop").mode("overwrite").save()
        counted = metrics.read()
    share = counted.bytes_agents / (counted.bytes_agents + counted.bytes_objects)
    return Figure(
        "catch-up", "bytes from agents, of all that were read", "", share, aim=f"≤ {AGENTS_SHARE_MAX:g}",
        met=share <= AGENTS_SHARE_MAX, note=f"{counted.bytes_objects:,} from objects, {counted.bytes_agents:,} from agents",
    )  # fmt: skip
