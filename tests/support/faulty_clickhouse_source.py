"""A data source that is `holdfast.clickhouse` with faults: a commit that stops or dies at a failpoint, tasks that fail once.

As a program it is a driver of its own, JVM and all: `python -m tests.support.faulty_clickhouse_source FOLDER [OPTION=VALUE …]`.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from holdfast.spark.clickhouse.writers import ClickHouseStreamWriter, Messages, RowMessage, stream_writer
from holdfast.vocabulary import failpoints
from pyspark_holdfast_clickhouse import DefaultSource

FAULTS = ("step", "mark", "signal", "failfirst")
ROWS_PER_FILE = 500


class SignalOnce:
    """Sends a signal to this process at a failpoint, and leaves its id in `mark`, unless that exists."""

    def __init__(self, step: str, mark: str, number: int) -> None:
        self._step, self._mark, self._number = f"spark-clickhouse.{step}", Path(mark), number

    def __call__(self, failpoint: str) -> None:
        if failpoint != self._step or self._mark.exists():
            return
        partly = self._mark.with_suffix(".partly")
        partly.write_text(str(os.getpid()))
        partly.rename(self._mark)
        os.kill(os.getpid(), self._number)


class FaultyWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: ClickHouseStreamWriter, fault: SignalOnce | None, fail_first: bool) -> None:
        self._writer, self._fault, self._fail_first = writer, fault, fail_first

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowMessage:
        staged = self._writer.write(iterator)
        context = TaskContext.get()
        if self._fail_first and context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails, after it has staged its rows")
        return staged

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        if self._fault is None:
            self._writer.commit(messages, batchId)
            return
        with failpoints.installed(self._fault):
            self._writer.commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._writer.abort(messages, batchId)


class FaultyClickHouseSource(DefaultSource):
    """`format("faulty.clickhouse")`."""

    @classmethod
    def name(cls) -> str:
        return "faulty.clickhouse"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        given = {name: value for name, value in self.options.items() if name.lower() not in FAULTS}
        fault = None
        if "step" in self.options:
            fault = SignalOnce(self.options["step"], self.options["mark"], int(self.options["signal"]))
        return FaultyWriter(stream_writer(given, schema, overwrite), fault, "failfirst" in self.options)


def add_file(folder: Path, number: int) -> None:
    """The next rows of the stream, all at once."""
    first = number * ROWS_PER_FILE
    text = "".join(f'{{"id": {row}}}\n' for row in range(first, first + ROWS_PER_FILE))
    (folder / f".{number}").write_text(text)
    (folder / f".{number}").rename(folder / f"{number:04d}.json")


def start_stream(spark: SparkSession, form: str, folder: Path, options: dict[str, str]) -> StreamingQuery:
    rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "1").json(str(folder / "in"))
    writing = rows.repartition(3).writeStream.format(form).options(**options)
    return writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def main() -> None:
    from dataclasses import replace

    from tests.support.spark_session import SETTINGS

    from holdfast.spark.spark_session import session

    folder, options = Path(sys.argv[1]), dict(each.split("=", 1) for each in sys.argv[2:])
    spark = session(replace(SETTINGS, master="local[2,3]"))
    spark.dataSource.register(FaultyClickHouseSource)
    try:
        start_stream(spark, "faulty.clickhouse", folder, options).awaitTermination()
    except Exception as failure:
        (folder / "failure.partly").write_text(str(failure))
        (folder / "failure.partly").rename(folder / "failure")
    spark.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
