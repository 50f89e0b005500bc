"""Celery's own worker as a process, what its tasks wrote, and a project of such workers."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from celery import Celery
from tests.support.server_process import ServeProcess, environment
from tests.support.waiting import WAIT_S, until

import holdfast.celery


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


class Project:
    """The project's app and workers, with queues of its own."""

    def __init__(self, node: ServeProcess, directory: Path, *, lease: float) -> None:
        self.directory, self.journal = directory, Journal(directory / "journal")
        prefix = f"{directory.name}."
        broker = f"holdfast://{node.kafka}"
        self._settings = {
            "HOLDFAST_TEST_BROKER": broker,
            "HOLDFAST_TEST_JOURNAL": str(self.journal.path),
            "HOLDFAST_TEST_LEASE": str(lease),
            "HOLDFAST_TEST_PREFIX": prefix,
        }
        self.app = Celery("project", broker=broker, set_as_current=False)
        holdfast.celery.configure(self.app, lease=lease, prefix=prefix)
        self.stack = ExitStack()
        self.stack.callback(self.app.close)

    def worker(self, name: str, *options: str) -> CeleryWorker:
        worker = CeleryWorker(name, self.directory, self._settings, "-c", "1", *options)
        self.stack.callback(worker.kill)
        return worker

    def send(self, task: str, *args: object, **options: object) -> None:
        self.app.send_task(task, args, ignore_result=True, **options)

    def waiting(self) -> int:
        """Messages that wait in the queue."""
        with self.app.connection_for_read() as connection:
            return int(connection.default_channel.queue_declare("celery", passive=True).message_count)

    def unsettled(self) -> int:
        """Messages that are not acknowledged."""
        with self.app.connection_for_read() as connection:
            transport = connection.default_channel.connection
            name = transport.settings.prefix + "celery"
            found = transport.heaps.call(transport.heaps.client.stats(name))
            return sum(each.ready + each.delayed + each.inflight for each in found)
