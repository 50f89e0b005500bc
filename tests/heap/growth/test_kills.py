"""kill -9 of a real process at each step of a growth: afterwards every number is enqueued once, and the heap has what was asked."""

import os
from pathlib import Path

import pytest
from tests.support.failpoints import FailpointFolder
from tests.support.heap_process import PARTITIONS, HeapProcess

from holdfast.heap.routing import partition_of_key

pytestmark = pytest.mark.slow

GROWN = 7
KEYS = [key for key in map(str, range(40)) if partition_of_key(key, GROWN) >= PARTITIONS][:6]


def killed_while_it_grows(folder: Path, failpoint: str) -> None:
    """Numbers, a growth, and the same numbers again; whenever the process dies, it starts, and all of it is done again."""
    armed = FailpointFolder(folder / "failpoints")
    environment = {**os.environ, **armed.environment}  # noqa: TID251
    first = HeapProcess(folder, environment)
    before = [first.call("number", key=key, number=at) for at, key in enumerate(KEYS)]
    armed.arm(failpoint, "kill")
    answers = (first.call("number", key=key, number=at) for at, key in enumerate(KEYS))
    assert first.call("grow", partitions=GROWN) is None or None in answers
    assert first.wait() == -9
    second = HeapProcess(folder, environment)
    try:
        assert second.call("grow", partitions=GROWN) == GROWN
        again = [second.call("number", key=key, number=at) for at, key in enumerate(KEYS)]
        assert again == [[message_id, True, partition] for message_id, _, partition in before]
        new = [second.call("number", key=key, number=len(KEYS) + at) for at, key in enumerate(KEYS)]
        assert [(duplicate, partition) for _, duplicate, partition in new] == [
            (False, partition_of_key(key, GROWN)) for key in KEYS
        ]
        assert sum(second.call("enqueued")) == 2 * len(KEYS)
    finally:
        second.end()


@pytest.mark.parametrize("failpoint", ["heap.growth-committed", "heap.look-up-answered"])
def test_a_kill_right_after_the_growth_or_the_look_up_enqueues_nothing_twice(tmp_path: Path, failpoint: str) -> None:
    killed_while_it_grows(tmp_path, failpoint)


@pytest.mark.long
@pytest.mark.parametrize(
    "failpoint",
    [
        *("heap.growth-begun", "heap.growth-logged", "heap.look-up-begun"),
        *("heap.before-append", "heap.appended", "heap.durable"),
    ],
)
def test_a_kill_at_any_other_step_enqueues_nothing_twice(tmp_path: Path, failpoint: str) -> None:
    killed_while_it_grows(tmp_path, failpoint)
