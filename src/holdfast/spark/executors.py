"""Tasks of our own on Spark's executors: numbers go in, one line of text for each comes out. No row passes through the JVM."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.contracts.executors import Task
from holdfast.vocabulary.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMN: Final = "line"
_REMOTE_WIDTH: Final = 8
"""A Spark Connect session does not say how many tasks run at the same time."""


class SparkExecutors:
    """The executors of a session."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    @property
    def width(self) -> int:
        return task_slots(self._spark)

    def run(self, task: Task, count: int) -> list[str]:
        try:
            return lines_of(numbered_tasks(self._spark, task, count))
        except Exception as error:
            raise UnavailableError("Spark job", f"{type(error).__name__}: {error}"[:2_000]) from error


def task_slots(spark: "SparkSession") -> int:
    """How many tasks run at the same time, as far as the session says."""
    from pyspark.sql.utils import is_remote

    return _REMOTE_WIDTH if is_remote() else max(1, spark.sparkContext.defaultParallelism)


def numbered_tasks(spark: "SparkSession", task: Task, count: int) -> "DataFrame":
    """The frame whose rows are the lines of `count` tasks."""
    return spark.range(0, count, 1, count).mapInArrow(task, f"{_COLUMN} string")


def lines_of(frame: "DataFrame") -> list[str]:
    """Run the tasks."""
    return [row[0] for row in frame.collect()]


def numbers_in(batches: Iterator[Any]) -> Iterator[int]:
    """The numbers that a task got."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def line_batch(line: str) -> Any:
    """A task's line, for Spark."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([line], pa.string())], names=[_COLUMN])
