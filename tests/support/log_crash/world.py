"""A world: one folder with a store, objects and WALs, in which lives begin and end, and the history they leave.

Lives are processes forked from a server that has imported everything: a life costs tens of milliseconds, and shares nothing with
the one before but the folder.
"""

import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from tests.support.log_crash import process as child
from tests.support.log_crash.history import History, Verdict

from holdfast.vocabulary.clock import RealClock

LIFE_S_MAX: Final = 100
_forking: Final = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["tests.support.log_crash.process", "holdfast.stores.sqlite"])


class CrashWorld:
    """A folder, and whoever lives in it."""

    COUNTS: Final = (
        "lives",
        "kills",
        "records acknowledged",
        "losses",
        "duplicates",
        "other faults",
        "planted bugs caught",
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tally: Counter[str] = Counter()
        self._running: list[BaseProcess] = []

    def begin(self, *told: str) -> BaseProcess:
        """A life begins."""
        process = _forking.Process(target=child.main, args=([str(self.folder), *told],))
        process.start()
        self.tally["lives"] += 1
        self._running.append(process)
        return process

    def run(self, *told: str) -> int:
        """A whole life; how it ended: 0, or the negative number of the signal."""
        return self.finished(self.begin(*told))

    def finished(self, process: BaseProcess) -> int:
        """Wait for the end of a life."""
        process.join(LIFE_S_MAX)
        assert process.exitcode is not None, f"still alive: {self.tail()}"
        self.tally["kills"] += process.exitcode == -signal.SIGKILL
        return process.exitcode

    def die_at(self, step: str, *told: str) -> None:
        """A life that ends at this step, and nowhere else."""
        ended = self.run("--die-at", step, *told)
        assert ended == -signal.SIGKILL, f"it ended with {ended} before {step}: {self.tail()}"

    def work_off(self, *told: str) -> None:
        """A life that ends well."""
        assert self.run(*told) == 0, self.tail()

    def check(self, *told: str) -> Verdict:
        """A life that reads everything; the history must be free of faults then."""
        verdict = self.read(*told)
        self.tally.update(
            {
                "records acknowledged": verdict.acked,
                "losses": verdict.losses,
                "duplicates": verdict.duplicates,
                "other faults": max(0, len(verdict.faults) - verdict.losses - verdict.duplicates),
            }
        )
        assert not verdict.faults, "\n".join([*verdict.faults[:20], self.tail()])
        return verdict

    def catch(self, *told: str) -> Verdict:
        """The same in a world with a planted bug: there must be faults."""
        verdict = self.read(*told)
        assert verdict.faults, "nobody noticed"
        self.tally["planted bugs caught"] += 1
        return verdict

    def read(self, *told: str) -> Verdict:
        """A life that reads everything; what the history amounts to then."""
        self.work_off("--read", *told)
        return self.history().judge()

    def history(self) -> History:
        """What was said so far."""
        return History.load(self.folder / child.HISTORY)

    def tail(self) -> str:
        """The last words, for error texts."""
        return json.dumps([" ".join(line) for line in self.history().lines[-12:]], indent=1)

    async def until_history(self, condition: Callable[[History], object]) -> History:
        """Wait until the history fulfils the condition; the test's own timeout ends a wait in vain."""
        while not condition(history := self.history()):
            await RealClock().sleep_ms(20)
        return history

    def end(self) -> None:
        """End whoever is left."""
        for process in self._running:
            if process.exitcode is None and process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
            process.join()
            process.close()
