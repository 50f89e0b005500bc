"""Celery's own worker as a process, and what its tasks wrote."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.server_process import environment
from tests.support.waiting import WAIT_S, until


class CeleryWorker:
    """`celery worker` of `tests.support.celery_project`, in a process group of its own."""

    def __init__(self, name: str, directory: Path, settings: dict[str, str], *options: str) -> None:
        self.name, self._log = name, directory / f"{name}.log"
        self._log_file = self._log.open("wb")
        argv = [sys.executable, "-m", "celery", "-A", "tests.support.celery_project", "worker", "-l", "INFO"]
        argv += ["-n", f"{name}@test", *options]
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            argv,
            cwd=root,
            env={**environment(), **settings},
            stdout=self._log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ready(self) -> "CeleryWorker":
        """Return when it consumes."""
        until(lambda: self._alive() and "ready." in self.log, what=lambda: f"worker {self.name} is ready: {self.log}")
        return self

    def _alive(self) -> bool:
        assert self.process.poll() is None, f"worker {self.name} ended: {self.log}"
        return True

    def signal_all(self, number: int) -> None:
        """Signal the worker and the processes of its pool."""
        os.killpg(self.process.pid, number)

    def stop(self) -> int:
        """A warm shutdown."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal_all(signal.SIGKILL)
            self.process.wait()
        self._log_file.close()


class Journal:
    """The lines that tasks wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self, *beginning: str) -> list[list[str]]:
        found = [line.split() for line in self.path.read_text().splitlines()]
        return [words for words in found if words[: len(beginning)] == list(beginning)]

    def count(self, *beginning: str) -> int:
        return len(self.lines(*beginning))

    def wait(self, *beginning: str, count: int = 1, context: Any = None) -> list[list[str]]:
        until(
            lambda: self.count(*beginning) >= count,
            what=lambda: f"{beginning} × {count} in {self.path.read_text()!r}; {context() if context else ''}",
        )
        return self.lines(*beginning)
