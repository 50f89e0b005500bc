"""Pause, kill, fail or hold a process at a failpoint, in this process or in any below it.

Across processes the two sides share a folder. The test arms a failpoint by the file `{name}.{action}`; the first process that
reaches the failpoint takes it, by renaming it to `{name}.{action}.{pid}`, and stops itself (SIGSTOP), kills itself (SIGKILL),
raises, or (`hold`) waits until the test removes that file. So whoever is held goes on once it was let go, however soon the
failpoint is armed again.
"""

import os
import re
import signal
import time  # noqa: TID251 (tests wait for real processes)
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Event
from typing import Final

from holdfast.vocabulary.errors import InvalidError

ACTIONS: Final = ("pause", "kill", "fail", "hold")
VARIABLE: Final = "HOLDFAST_TEST_FAILPOINTS"
_ROOT: Final = Path(__file__).parents[2]
_SITE: Final = Path(__file__).with_name("failpoint_site")
_CALL: Final = re.compile(r"\breached(?:_async)?\(\s*\"([^\"]+)\"")
_HOLD_POLL_S: Final = 0.02


class FailpointError(Exception):
    """A test asked for a failure here."""


@cache
def known_failpoints() -> frozenset[str]:
    """The names of all failpoints in the code."""
    files = (_ROOT / "src").rglob("*.py")
    return frozenset(name for file in files for name in _CALL.findall(file.read_text()))


def fail_at(name: str) -> Callable[[str], None]:
    """A handler for `failpoints.installed`: raises at this failpoint."""

    def handler(reached: str) -> None:
        if reached == name:
            raise FailpointError(name)

    return handler


class FolderHandler:
    """The side of the process that reaches failpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> None:
        for action in ACTIONS:
            try:
                # Of several processes at the same failpoint one succeeds.
                (self._folder / f"{name}.{action}").rename(self._folder / f"{name}.{action}.{os.getpid()}")
            except FileNotFoundError:
                continue
            self._act(name, action)

    def _act(self, name: str, action: str) -> None:
        match action:
            case "pause":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "fail":
                raise FailpointError(name)
            case "hold":
                never = Event()
                while (self._folder / f"{name}.hold.{os.getpid()}").exists():
                    never.wait(_HOLD_POLL_S)


class FailpointFolder:
    """The test's side: processes started with `environment`, and those they start, obey what is armed here."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """For a child process. Children of Spark inherit it; a remote Spark master needs it in `spark.executorEnv`."""
        inherited = os.environ.get("PYTHONPATH", "")  # noqa: TID251 (a child keeps what this process has)
        paths = [str(_SITE), str(_ROOT), *([inherited] if inherited else [])]
        return {VARIABLE: str(self.folder), "PYTHONPATH": os.pathsep.join(paths)}

    def arm(self, name: str, action: str) -> None:
        """The next process that reaches the failpoint does `action`, once."""
        if name not in known_failpoints():
            raise InvalidError("failpoint", name, f"one of {', '.join(sorted(known_failpoints()))}")
        if action not in ACTIONS:
            raise InvalidError("action", action, f"one of {', '.join(ACTIONS)}")
        (self.folder / f"{name}.{action}").touch()

    def disarm(self) -> None:
        """Withdraw every action that no process has taken."""
        for file in self.folder.iterdir():
            if file.suffix.lstrip(".") in ACTIONS:
                file.unlink(missing_ok=True)

    def taken(self, name: str, action: str) -> int | None:
        """The process that took the action; None so far."""
        for file in self.folder.glob(f"{name}.{action}.*"):
            return int(file.name.rpartition(".")[2])
        return None

    def wait_taken(self, name: str, action: str, *, within_s: float = 60) -> int:
        """Wait until a process has taken the action: its id."""
        until = time.monotonic() + within_s
        while (pid := self.taken(name, action)) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"no process reached {name} within {within_s} s")
            time.sleep(0.02)
        return pid

    def resume(self, name: str, action: str) -> None:
        """Let a process that is paused or held at a failpoint go on."""
        pid = self.wait_taken(name, action)
        if action == "pause":
            os.kill(pid, signal.SIGCONT)
        (self.folder / f"{name}.{action}.{pid}").unlink(missing_ok=True)
