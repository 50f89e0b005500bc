"""A test that hangs fails, and the rest of the run goes on; a run that stands still ends."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support import hung_tests
from tests.support.hung_tests import RunGuard

ROOT = Path(__file__).parents[2]
TESTS = """
import os, time, pytest

@pytest.mark.timeout(1)
def test_that_hangs():
    if os.fork() == 0:
        time.sleep(600)  # it has the pipe of its worker open
    while True:
        try:
            time.sleep(600)
        except BaseException:  # its time-out
            pass

@pytest.mark.parametrize("number", range(5))
def test_that_passes(number):
    pass
"""


def test_a_test_that_hangs_is_a_failure_and_the_others_are_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    (tmp_path / "conftest.py").write_text("from tests.support import hung_tests\nhung_tests.CLEAN_UP_S = 1.0\n")
    argv = [sys.executable, "-m", "pytest", "-n", "2", "-p", "tests.support.hung_tests", "-p", "no:randomly"]
    run = subprocess.run(
        [*argv, "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=100,
        check=False,
    )
    assert run.returncode == 1
    assert "crashed while running" in run.stdout
    assert "5 passed" in run.stdout
    assert "test_that_hangs neither ends nor fails" in run.stdout + run.stderr


def test_a_run_is_ended_when_nothing_is_reported_after_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung_tests, "STILL_S", 0.01)
    ended = threading.Event()
    guard = RunGuard(ended.set)
    guard.pytest_runtest_logreport()
    guard.pytest_testnodedown(None)  # it has done its work
    assert not ended.is_set()
    guard.pytest_testnodedown("not properly terminated")
    assert ended.wait(60)
