"""A plugin for `tests.short_form`: it lists what failed in a file, and ends a run in which nothing happens any more.

xdist gives the tests of a worker that died to the others; if they have been told to end, nobody runs them, and it waits for ever.
"""

import os
import signal
import threading
from pathlib import Path

import pytest

_OPTION = "--failed-tests"
_STILL_S = 1_200.0  # longer than any test of the short form may take


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, metavar="FILE", help="where to list the tests that failed")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OPTION)
    if path is not None and not hasattr(config, "workerinput"):  # the reports of workers come to the controller
        config.pluginmanager.register(_FailedTests(Path(str(path))))


class _FailedTests:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._happened = threading.Event()
        threading.Thread(target=self._end_still_run, daemon=True).start()

    def _end_still_run(self) -> None:
        while self._happened.wait(_STILL_S):
            self._happened.clear()
        os.kill(os.getpid(), signal.SIGINT)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._happened.set()
        if report.failed:
            self._add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._add(report.nodeid)

    def _add(self, test: str) -> None:
        with self._path.open("a") as listed:
            listed.write(f"{test}\n")
