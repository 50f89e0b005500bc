"""A plugin that lists what failed in a file, for `tests.short_form`: `-p tests.support.failed_tests --failed-tests FILE`."""

from pathlib import Path

import pytest

_OPTION = "--failed-tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, metavar="FILE", help="where to list the tests that failed")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OPTION)
    if path is not None and not hasattr(config, "workerinput"):  # the reports of workers come to the controller
        config.pluginmanager.register(_FailedTests(Path(str(path))))


class _FailedTests:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._add(report.nodeid)

    def _add(self, test: str) -> None:
        with self._path.open("a") as listed:
            listed.write(f"{test}\n")
