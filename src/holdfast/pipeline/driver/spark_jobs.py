"""Spark jobs of slots, side by side: each in its slot's thread, named by the slot, and cancelled by that name from another thread.

The one rule: a job is small. What comes back is one line per portion; rows stay on the executors.
"""

from threading import local
from typing import TYPE_CHECKING, Any

from holdfast.pipeline.driver import task_outcomes
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import WarmUp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkJobs:
    """One engine's jobs."""

    def __init__(self, spark: "SparkSession", *, remote: bool) -> None:
        self.spark, self.remote = spark, remote
        self._own = local()
        self._running: dict[str, SparkSession] = {}

    def run(self, slot: str, frame: "DataFrame") -> list[TaskOutcome]:
        """Run to the end. An error of the engine, or a cancellation, is an exception of the engine's."""
        self._name(slot, frame.sparkSession)
        return task_outcomes.from_rows(frame.collect())

    def warm_up(self) -> None:
        """Start Python on the executors."""
        width = 1 if self.remote else max(1, self.spark.sparkContext.defaultParallelism)
        self.spark.range(0, width, 1, width).mapInArrow(WarmUp(), task_outcomes.SCHEMA).collect()

    def cancel(self, slot: str) -> None:
        """End what runs under this name."""
        if not self.remote:
            self.spark.sparkContext.cancelJobGroup(slot_tag(slot))
        elif slot in self._running:
            self._running[slot].interruptTag(slot_tag(slot))

    def answers(self) -> bool:
        """Whether the engine is there. One that hangs does not return, and the driver falls silent with it."""
        if self.remote:
            return self.spark.conf.get("spark.sql.session.timeZone") is not None
        return not self.spark.sparkContext._jsc.sc().isStopped()

    def own_session(self) -> "SparkSession":
        """A session of this thread's, whose views nobody else sees. A cast that fails gives null there, as pipelines promise."""
        if not hasattr(self._own, "session"):
            session = self.spark.newSession()
            session.conf.set("spark.sql.ansi.enabled", "false")
            session.conf.set("spark.sql.session.timeZone", "UTC")
            self._own.session = session
        found: SparkSession = self._own.session
        return found

    def _name(self, slot: str, session: "SparkSession") -> None:
        if self.remote:
            session.clearTags()
            session.addTag(slot_tag(slot))
            self._running[slot] = session
            return
        context: Any = self.spark.sparkContext
        context.setJobGroup(slot_tag(slot), f"slot {slot}", True)
        context.setLocalProperty("spark.scheduler.pool", slot_tag(slot))


def slot_tag(slot: str) -> str:
    """A slot's name as Spark takes it."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in slot)
