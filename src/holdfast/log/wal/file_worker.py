"""Keeper: the thread that makes the next file ready and takes released ones back, so that the writer never waits for either.

The one rule: one job at a time, in order; a job's failure is raised where its result is awaited. It decides nothing.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class FileWorker:
    """Runs jobs on a thread of its own. `stop` ends it after the jobs it has."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a call that hangs in the kernel for ever must not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name="wal-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Do `job` after those before it."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(job())
            except Exception as error:
                answer.set_exception(error)

        self._jobs.put(run)
        return answer

    def stop(self) -> None:
        """Finish what was asked, then end. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # keep nothing alive while waiting
