"""The labelled steps of a batch, and the hook by which tests stop a process at one of them.

The one rule: without `HOLDFAST_TEST_STEPS` in the environment a step is nothing. With it, the variable names a folder; a file
`{step}.pause`, `{step}.kill`, `{step}.fail` or `{step}.hold` in it is taken by the first process that comes to that step, which
then stops itself (SIGSTOP), kills itself (SIGKILL), raises, or waits until the file `{step}.go` is there. What was taken is left as
`{step}.{action}.{pid}`, so that a test knows who is where. `tests.support.failpoints` is the test's side.
"""

import os
import signal
from pathlib import Path
from threading import Event
from typing import Final, Literal, get_args

Step = Literal[
    "planned",
    "begun",
    "read",
    "mapped",
    "inserting",
    "inserted",
    "dlq-inserted",
    "task-done",
    "job-done",
    "committed",
    "checkpointed",
]
"""Up to `begun`, and from `job-done` on, it is the driver; between them a task. `committed` is of sinks that the driver commits."""

STEPS: Final[tuple[Step, ...]] = get_args(Step)
ACTIONS: Final = ("pause", "kill", "fail", "hold")
VARIABLE: Final = "HOLDFAST_TEST_STEPS"
_HOLD_POLL_S: Final = 0.02


class StepFailedError(Exception):
    """A test asked for a failure here."""


def reached(step: Step) -> None:
    """Say that this process is at a step."""
    folder = os.environ.get(VARIABLE)  # noqa: TID251 (a hook for tests must work in executors, which have no settings)
    if folder:
        _obey(Path(folder), step)


def _obey(folder: Path, step: Step) -> None:
    for action in ACTIONS:
        taken = folder / f"{step}.{action}.{os.getpid()}"
        try:
            (folder / f"{step}.{action}").rename(taken)  # of many processes one succeeds
        except FileNotFoundError:
            continue
        match action:
            case "pause":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "fail":
                raise StepFailedError(step)
            case "hold":
                _wait_for(folder / f"{step}.go")


def _wait_for(file: Path) -> None:
    never = Event()
    while not file.exists():
        never.wait(_HOLD_POLL_S)
