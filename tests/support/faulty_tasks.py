"""Spark jobs whose publishing tasks obey a folder of failpoints: they kill or pause their process where a test says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.failpoints import FailpointFolder, FolderHandler

from holdfast.contracts.executors import Task
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.vocabulary import failpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FaultyTask:
    """A task with the handler installed while it runs."""

    def __init__(self, task: Task, folder: Path) -> None:
        self._task, self._folder = task, folder

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        with failpoints.installed(FolderHandler(self._folder)):
            yield from self._task(batches)


class FaultyJobs(SparkJobs):
    """The jobs of a session; `failpoints` is where a test arms them."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        super().__init__(spark, remote=False)
        self.failpoints = FailpointFolder(folder)
        self.published: list[int] = []
        """The number of tasks of each publishing job."""

    def run_numbered(self, slot: str, task: Task, count: int) -> list[str]:
        self.published.append(count)
        return super().run_numbered(slot, FaultyTask(task, self.failpoints.folder), count)
