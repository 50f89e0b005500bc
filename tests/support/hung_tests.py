"""A plugin that ends what hangs, so that a run with xdist ends: `-p tests.support.hung_tests`.

pytest-timeout ends a test; nothing ends a fixture or a pool of processes that hangs after that. Its process is ended here, with all
stacks on stderr and with its children: a forked one has the pipe to xdist open, which would wait for it. xdist gives the tests of a
worker that died to others, unless these have been told to end already: then it waits for ever.
"""

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

CLEAN_UP_S = 180.0  # after the time-out of a test, for the fixtures it used
STILL_S = 1_200.0  # without any report, after the death of a worker
_STDERR = 2


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TestGuard() if hasattr(config, "workerinput") else RunGuard(_interrupt))


class TestGuard:
    """In a worker: ends its process when a test neither ends nor fails."""

    __test__ = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        mark = item.get_closest_marker("timeout")
        timeout_s = float(mark.args[0] if mark is not None and mark.args else item.config.getini("timeout"))
        timer = threading.Timer(timeout_s + CLEAN_UP_S, _end_process, [item])
        timer.daemon = True
        timer.start()
        try:
            return (yield)
        finally:
            timer.cancel()
            timer.join()


class RunGuard:
    """In the controller: ends the run when nothing happens any more after the death of a worker."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._reported = threading.Event()

    def pytest_runtest_logreport(self) -> None:
        self._reported.set()

    def pytest_testnodedown(self, error: object) -> None:
        if error:
            threading.Thread(target=self._await_reports, daemon=True).start()

    def _await_reports(self) -> None:
        while self._reported.wait(STILL_S):
            self._reported.clear()
        self._end()


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _end_process(item: pytest.Item) -> None:
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, _STDERR)  # of the process, not of the test
    os.write(stderr, f"{item.nodeid} neither ends nor fails\n".encode())
    faulthandler.dump_traceback(stderr)
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
    os._exit(1)
