"""The processes of a worker: its driver, that one's JVM, and the Python processes in which tasks run.

The one rule: a process is ours if its environment names our folder of failpoints, so that no other process is ever touched.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.failpoints import VARIABLE


@dataclass(frozen=True, slots=True)
class Process:
    """A process as listed in /proc."""

    pid: int
    parent: int
    session: int
    state: str
    words: tuple[str, ...]

    @property
    def is_driver(self) -> bool:
        return self.pid == self.session and "holdfast.pipeline.driver" in self.words

    @property
    def is_jvm(self) -> bool:
        return "org.apache.spark.deploy.SparkSubmit" in self.words

    @property
    def is_python(self) -> bool:
        return "pyspark.daemon" in self.words


def ours(failpoints: Path) -> dict[int, Process]:
    """The living processes that were started with this folder of failpoints."""
    marker = f"{VARIABLE}={failpoints}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it exited meanwhile
            if marker in (entry / "environ").read_bytes().split(b"\0"):
                process = _read(entry)
                if process.state not in "ZX":
                    found[process.pid] = process
    return found


def _read(entry: Path) -> Process:
    state, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
    words = tuple((entry / "cmdline").read_bytes().decode(errors="replace").split("\0"))
    return Process(int(entry.name), int(parent), int(session), state, words)


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """A worker and its descendants, seen from the process that has reached a step. `daemons` are the tasks' parents."""

    here: int
    worker: int
    driver: int
    jvm: int
    daemons: tuple[int, ...]
    tasks: tuple[int, ...]

    def target(self, name: str) -> int:
        """The process of this name; the executor is the task that has reached the step, if it was one."""
        if name == "executor":
            return self.here if self.here in self.tasks else self.tasks[0]
        found: int = getattr(self, name)
        return found

    @property
    def all_processes(self) -> tuple[int, ...]:
        return (self.worker, self.driver, self.jvm, *self.daemons, *self.tasks)


def process_tree_of(pid: int, failpoints: Path) -> ProcessTree | None:
    """The tree of a process that has reached a step; None if it is about to exit."""
    known = ours(failpoints)
    members = [each for each in known.values() if pid in known and each.session == known[pid].session]
    driver = next((each for each in members if each.is_driver), None)
    jvm = next((each for each in members if each.is_jvm), None)
    if driver is None or jvm is None or driver.parent not in known:
        return None
    daemons = tuple(each.pid for each in members if each.is_python and each.parent == jvm.pid)
    tasks = tuple(each.pid for each in members if each.is_python and each.parent in daemons)
    if not daemons:
        return None
    return ProcessTree(pid, driver.parent, driver.pid, jvm.pid, daemons, tasks or daemons)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """A signal to each that still lives."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all(failpoints: Path) -> None:
    """SIGKILL to every process of ours, until none is left."""
    while left := ours(failpoints):
        send(left, signal.SIGKILL)
