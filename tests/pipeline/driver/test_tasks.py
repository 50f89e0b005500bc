"""What a task tells its sink, and what its process keeps."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from tests.pipeline.sinks.making import portion, target_of

from holdfast.pipeline.driver import tasks
from holdfast.pipeline.nouns import ClickHouseConfig
from holdfast.pipeline.sinks.contract import Portion, Written

TARGET = target_of(ClickHouseConfig(dsn="http://127.0.0.1:1", table="orders"))


def attempt(number: int) -> SimpleNamespace:
    return SimpleNamespace(attemptNumber=lambda: number)


@pytest.mark.parametrize(
    ("context", "said", "again"),
    [
        (None, False, False),
        (attempt(0), False, False),
        (attempt(1), False, True),
        (attempt(0), True, True),
    ],
)
def test_a_task_that_spark_runs_once_more_may_have_written_already(
    monkeypatch: pytest.MonkeyPatch, context: SimpleNamespace | None, said: bool, again: bool
) -> None:
    told: list[Portion] = []

    class Sink:
        def write(self, of: Portion, rows: Any, refused: Any) -> Written:
            told.append(of)
            return Written(portion=of)

    monkeypatch.setattr(tasks, "kept_sink", lambda _: Sink())
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    tasks.give(TARGET, portion(0, 5, again=said), pa.table({}), [])
    assert told == [portion(0, 5, again=again)]


READS = """
from holdfast.spark.reach import Reach
from holdfast.spark.source.tasks import Task, Work, run_task
list(run_task(Task([], Work(Reach(bootstrap="127.0.0.1:1"), False, False, None, ""))))
"""
WRITES = """
import pyarrow as pa
from holdfast.pipeline.driver import tasks
from holdfast.pipeline.sinks.contract import Written
from tests.pipeline.driver.test_tasks import TARGET, portion

class Sink:
    def write(self, of, rows, refused):
        return Written(portion=of)

tasks.kept_sink = lambda _: Sink()
tasks.give(TARGET, portion(0, 5), pa.table({}), [])
"""


@pytest.mark.parametrize("task", [READS, WRITES])
def test_after_its_first_task_a_process_is_not_looked_through_for_what_that_has_loaded(task: str) -> None:
    """In a process of its own: it is for the rest of its life."""
    program = f"import gc\n{task}\nprint(gc.get_freeze_count() > 1_000)"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd=root
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
