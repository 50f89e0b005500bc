"""Stop a pipeline's processes at a labelled step: the test's side of `holdfast.pipeline.model.steps`."""

import os
import signal
import time  # noqa: TID251 (tests wait for real processes)
from pathlib import Path

from holdfast.pipeline.model.steps import ACTIONS, STEPS, VARIABLE
from holdfast.vocabulary.errors import InvalidError


class FailpointFolder:
    """A folder that processes started with `environment` look into at every step."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """What a driver's process, and so its executors, must have in its environment."""
        return {VARIABLE: str(self.folder)}

    def arm(self, step: str, action: str) -> None:
        """The next process that comes to `step` does `action`, once."""
        if step not in STEPS or action not in ACTIONS:
            raise InvalidError("step and action", (step, action), f"{', '.join(STEPS)}; {', '.join(ACTIONS)}")
        (self.folder / f"{step}.go").unlink(missing_ok=True)
        (self.folder / f"{step}.{action}").touch()

    def disarm(self) -> None:
        """Forget what nobody has come to."""
        for file in self.folder.iterdir():
            if file.suffix.lstrip(".") in ACTIONS:
                file.unlink(missing_ok=True)

    def taken(self, step: str, action: str) -> int | None:
        """The process that came to the step and did it; None so far."""
        for file in self.folder.glob(f"{step}.{action}.*"):
            return int(file.name.rpartition(".")[2])
        return None

    def wait_taken(self, step: str, action: str, *, within_s: float = 60) -> int:
        """Wait until a process has come to the step: its id."""
        until = time.monotonic() + within_s
        while (pid := self.taken(step, action)) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"nobody came to {step} within {within_s} s")
            time.sleep(0.02)
        return pid

    def let_go(self, step: str, action: str) -> None:
        """Let a process that is paused or held at a step go on."""
        pid = self.wait_taken(step, action)
        if action == "hold":
            (self.folder / f"{step}.go").touch()
        elif action == "pause":
            os.kill(pid, signal.SIGCONT)
        (self.folder / f"{step}.{action}.{pid}").unlink(missing_ok=True)
