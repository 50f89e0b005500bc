"""What a task tells its sink, and what its process keeps."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from tests.support.sink_values import fenced_range, target_of

from holdfast.pipeline.driver import tasks
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.sinks.contract import FencedRange, WriteResult

TARGET = target_of(ClickHouseConfig(dsn="http://127.0.0.1:1", table="orders"))


def attempt(number: int) -> SimpleNamespace:
    return SimpleNamespace(attemptNumber=lambda: number)


@pytest.mark.parametrize(
    ("context", "may_have", "expected"),
    [
        (None, False, False),
        (attempt(0), False, False),
        (attempt(1), False, True),
        (attempt(0), True, True),
    ],
)
def test_a_task_that_spark_runs_once_more_may_have_written_already(
    monkeypatch: pytest.MonkeyPatch, context: SimpleNamespace | None, may_have: bool, expected: bool
) -> None:
    written: list[FencedRange] = []

    class Sink:
        def write(self, of: FencedRange, rows: Any, refused: Any) -> WriteResult:
            written.append(of)
            return WriteResult(fenced_range=of)

    monkeypatch.setattr(tasks, "cached_sink", lambda _: Sink())
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    tasks.write_to_sink(TARGET, fenced_range(0, 5, may_be_written=may_have), pa.table({}), [])
    assert written == [fenced_range(0, 5, may_be_written=expected)]


READS = """
from holdfast.client.cluster_address import ClusterAddress
from holdfast.spark.source.tasks import ReadTask, TaskOptions, run_task
list(run_task(ReadTask([], TaskOptions(ClusterAddress(bootstrap="127.0.0.1:1"), False, False, None, ""))))
"""
WRITES = """
import pyarrow as pa
from holdfast.pipeline.driver import tasks
from holdfast.pipeline.sinks.contract import WriteResult
from holdfast.pipeline.model.definition import ClickHouseConfig
from tests.support.sink_values import fenced_range, target_of

class Sink:
    def write(self, of, rows, refused):
        return WriteResult(fenced_range=of)

tasks.cached_sink = lambda _: Sink()
target = target_of(ClickHouseConfig(dsn="http://127.0.0.1:1", table="orders"))
tasks.write_to_sink(target, fenced_range(0, 5), pa.table({}), [])
"""


@pytest.mark.parametrize("task", [READS, WRITES])
def test_after_its_first_task_a_process_freezes_loaded_objects_for_the_garbage_collector(task: str) -> None:
    """In a process of its own: it is for the rest of its life."""
    program = f"import gc\n{task}\nprint(gc.get_freeze_count() > 1_000)"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd=root
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
