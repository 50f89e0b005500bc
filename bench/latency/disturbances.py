"""What disturbs a run on purpose: short stops of the measured process, or other processes that want the cores."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Final

from bench.kafka.processes import family

PAUSE_S: Final = 0.005
BETWEEN_PAUSES_S: Final = (0.8, 1.2)  # not a second sharp: pauses are not to keep step with anything


@contextmanager
def pauses(pid: int) -> Iterator[list[float]]:
    """SIGSTOP, 5 ms later SIGCONT, about once a second. How long each took, in seconds, is in the list."""
    done, taken = threading.Event(), list[float]()
    pids, random = family(pid), Random(pid)

    def pause() -> None:
        while not done.wait(random.uniform(*BETWEEN_PAUSES_S)):
            began = time.perf_counter()
            try:
                _signal(pids, signal.SIGSTOP)
                time.sleep(PAUSE_S)
            finally:
                _signal(pids, signal.SIGCONT)
            taken.append(time.perf_counter() - began)

    pausing = threading.Thread(target=pause, name="pauses")
    pausing.start()
    try:
        yield taken
    finally:
        done.set()
        pausing.join()


@contextmanager
def busy_cores() -> Iterator[int]:
    """Half of the cores, at least one, wanted by processes that do nothing else, at normal priority."""
    count = max(1, (os.cpu_count() or 1) // 2)
    with ExitStack() as running:
        for _ in range(count):
            process = running.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            running.callback(process.kill)
        yield count


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # the run has just ended
            continue
