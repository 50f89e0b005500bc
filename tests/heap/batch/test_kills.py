"""kill -9 of a real process at each step of a batch over several partitions: after its restart all of it is there, or nothing."""

import os
from pathlib import Path

import pytest
from tests.support.failpoints import FailpointFolder
from tests.support.heap_process import PARTITIONS, HeapProcess

pytestmark = pytest.mark.slow

NOTHING, ALL = [[0, 0, 0]] * PARTITIONS, [[1, 1, 0]] * PARTITIONS


def killed_and_started_again(folder: Path, failpoint: str) -> None:
    """A batch during which the process dies, and the same batch again in the next life."""
    armed = FailpointFolder(folder / "failpoints")
    environment = {**os.environ, **armed.environment}  # noqa: TID251
    first = HeapProcess(folder, environment)
    assert first.call("wide") == NOTHING
    armed.arm(failpoint, "kill")
    first.call("batch", number=0)
    assert first.wait() == -9
    second = HeapProcess(folder, environment)
    try:
        found = second.call("wide")
        assert found in (NOTHING, ALL)
        again = second.call("batch", number=0)
        assert [duplicate for _, duplicate in again] == [found == ALL] * PARTITIONS
        assert second.call("wide") == ALL
        expected = {"heap.batch-begun": NOTHING, "heap.batch-prepared": NOTHING}
        if failpoint.startswith("heap.batch-"):
            assert found == expected.get(failpoint, ALL)
    finally:
        second.end()


@pytest.mark.parametrize("failpoint", ["heap.batch-prepared", "heap.batch-decided"])
def test_a_kill_before_or_after_the_decision_leaves_nothing_or_all(tmp_path: Path, failpoint: str) -> None:
    killed_and_started_again(tmp_path, failpoint)


@pytest.mark.long
@pytest.mark.parametrize(
    "failpoint",
    [
        *("heap.batch-begun", "heap.batch-resolved", "heap.batch-key-deleted"),
        *("heap.before-append", "heap.appended", "heap.durable"),
    ],
)
def test_a_kill_at_any_other_step_leaves_all_or_nothing(tmp_path: Path, failpoint: str) -> None:
    killed_and_started_again(tmp_path, failpoint)
