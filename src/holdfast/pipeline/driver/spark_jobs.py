"""Spark jobs of slots, concurrently: each in its slot's thread, tagged by the slot, cancelled by that tag from another thread.

The one rule: results are small. A job returns one line per range; rows stay on the executors.
"""

import re
from threading import local
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.contracts.executors import Task
from holdfast.pipeline.driver import task_outcomes
from holdfast.pipeline.driver.sql_plan import FULL_TEXT, NO_SUBSTITUTION
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import WarmUp
from holdfast.pipeline.driver.versions import ComponentVersions, VersionsDifferError, installed_versions
from holdfast.spark.executors import numbered_tasks, task_slots
from holdfast.spark.settings import is_local_master
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_RAISED: Final = re.compile(r"(\w+\.)*[A-Z]\w*(Error|Exception)\b: ")
"""The last line of a traceback."""
_CAUSE_CHARS_MAX: Final = 500


class SparkJobs:
    """The jobs of one Spark session."""

    def __init__(self, spark: "SparkSession", *, remote: bool, clock: Clock | None = None) -> None:
        self.spark, self.remote = spark, remote
        self._clock = clock or RealClock()
        self._since_ms: dict[str, int] = {}
        self._own = local()
        self._running: dict[str, SparkSession] = {}
        self._cancelled: set[str] = set()

    @property
    def ui_url(self) -> str:
        """Of Spark's UI; empty: it has none."""
        return "" if self.remote else str(self.spark.sparkContext.uiWebUrl or "")

    @property
    def on_one_machine(self) -> bool:
        """Whether all tasks run in the driver's own process, and see its disk."""
        return not self.remote and is_local_master(str(self.spark.sparkContext.master))

    def run(self, slot: str, frame: "DataFrame") -> list[TaskOutcome]:
        """Run to the end. A failure or a cancellation is an exception of Spark's."""
        return task_outcomes.from_rows(self._collect(slot, frame))

    def executors(self, slot: str) -> "SlotExecutors":
        """The executors, for tasks of a slot."""
        return SlotExecutors(self, slot)

    def run_numbered(self, slot: str, task: Task, count: int) -> list[str]:
        """Run a task for each number below `count`; their texts. Exceptions as of `run`."""
        return [row[0] for row in self._collect(slot, numbered_tasks(self.spark, task, count))]

    def _collect(self, slot: str, frame: "DataFrame") -> list[Any]:
        if slot in self._cancelled:
            raise UnavailableError("Spark job", "cancelled before it began")
        self._tag(slot, frame.sparkSession)
        self._since_ms[slot] = self._clock.boot_ms()
        try:
            return frame.collect()
        finally:
            del self._since_ms[slot]

    def running_ms(self, slot: str) -> int:
        """For how long the job of a slot has been running; 0: none is."""
        since_ms = self._since_ms.get(slot)
        return 0 if since_ms is None else self._clock.boot_ms() - since_ms

    def warm_up(self) -> None:
        """Start Python on the executors. `VersionsDifferError`: one of them has other versions than this process."""
        width = 1 if self.remote else max(1, self.spark.sparkContext.defaultParallelism)
        frame = self.spark.range(0, width, 1, width).mapInArrow(WarmUp(), task_outcomes.SCHEMA)
        for row in frame.collect():
            found = msgspec.json.decode(row[0], type=ComponentVersions)
            if found != installed_versions():
                raise VersionsDifferError(installed_versions(), found)

    def cancel(self, slot: str) -> None:
        """Cancel the running job of a slot, and those that it would run before `allow`."""
        self._cancelled.add(slot)
        if not self.remote:
            self.spark.sparkContext.cancelJobGroup(slot_tag(slot))
        elif slot in self._running:
            self._running[slot].interruptTag(slot_tag(slot))

    def allow(self, slot: str) -> None:
        """A new turn of a slot: what was cancelled is over."""
        self._cancelled.discard(slot)

    def was_cancelled(self, slot: str) -> bool:
        """Whether the jobs of a slot's turn are cancelled."""
        return slot in self._cancelled

    def responds(self) -> bool:
        """Whether Spark responds. If it hangs this call does, too, and no `DriverAlive` is sent."""
        if self.remote:
            return self.spark.conf.get("spark.sql.session.timeZone") is not None
        return not self.spark.sparkContext._jsc.sc().isStopped()

    def own_session(self) -> "SparkSession":
        """A session of this thread alone, with its own views. Failing casts give null there, as pipelines promise."""
        if not hasattr(self._own, "session"):
            session = self.spark.newSession()
            session.conf.set("spark.sql.ansi.enabled", "false")
            session.conf.set("spark.sql.session.timeZone", "UTC")
            for name, value in {**NO_SUBSTITUTION, **(FULL_TEXT if self.remote else {})}.items():
                session.conf.set(name, value)
            self._own.session = session
        found: SparkSession = self._own.session
        return found

    def join_pool(self, slot: str) -> None:
        """What this thread starts from here on shares the executors fairly with other slots. Not for Spark Connect."""
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", slot_tag(slot))

    def _tag(self, slot: str, session: "SparkSession") -> None:
        if self.remote:
            session.clearTags()
            session.addTag(slot_tag(slot))
            self._running[slot] = session
            return
        context: Any = self.spark.sparkContext
        context.setJobGroup(slot_tag(slot), f"slot {slot}", True)
        context.setLocalProperty("spark.scheduler.pool", slot_tag(slot))


class SlotExecutors:
    """Executors (`contracts.executors`) whose tasks are a slot's: cancelled with it, in its share of the cores."""

    def __init__(self, jobs: SparkJobs, slot: str) -> None:
        self._jobs, self._slot = jobs, slot

    @property
    def width(self) -> int:
        return task_slots(self._jobs.spark)

    def run(self, task: Task, count: int) -> list[str]:
        try:
            return self._jobs.run_numbered(self._slot, task, count)
        except HoldfastError:
            raise
        except Exception as error:
            raise UnavailableError("Spark job", cause_of(error)) from error


def slot_tag(slot: str) -> str:
    """A slot's name in the characters that Spark allows."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in slot)


def cause_of(error: Exception) -> str:
    """The cause of a job's failure in one line: of an error in a task, what the task raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return (raised[-1] if raised else " ".join(lines) or type(error).__name__)[:_CAUSE_CHARS_MAX]
