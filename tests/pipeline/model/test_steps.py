"""The hook for tests: nothing without its variable, and once per file with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.broker import until
from tests.support.failpoints import FailpointFolder

from holdfast.pipeline.model import steps
from holdfast.vocabulary.errors import InvalidError

REACH = "from holdfast.pipeline.driver import steps; steps.reached('begun'); print('on', flush=True)"


def started(control: FailpointFolder) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", REACH]
    environment = {**os.environ, **control.environment}  # noqa: TID251 (a child has what we have, and more)
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)


def finished(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


def test_a_step_is_nothing_without_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(steps.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun.fail").touch()
    steps.reached("begun")
    assert (tmp_path / "begun.fail").exists()


def test_a_failure_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = FailpointFolder(tmp_path / "steps")
    monkeypatch.setenv(steps.VARIABLE, str(control.folder))
    steps.reached("begun")
    control.arm("begun", "fail")
    steps.reached("planned")
    with pytest.raises(steps.StepFailedError):
        steps.reached("begun")
    steps.reached("begun")
    assert control.taken("begun", "fail") == os.getpid()


def test_a_process_is_killed_held_and_paused_where_it_is(tmp_path: Path) -> None:
    control = FailpointFolder(tmp_path / "steps")
    control.arm("begun", "kill")
    assert finished(started(control)) == (-signal.SIGKILL, b"")
    control.arm("begun", "hold")
    process = started(control)
    assert control.wait_taken("begun", "hold") == process.pid
    control.let_go("begun", "hold")
    assert finished(process) == (0, b"on\n")
    control.arm("begun", "pause")
    process = started(control)
    control.wait_taken("begun", "pause")
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", what="it stops")
    control.let_go("begun", "pause")
    assert finished(process) == (0, b"on\n")


def test_what_is_no_step_cannot_be_armed(tmp_path: Path) -> None:
    control = FailpointFolder(tmp_path / "steps")
    with pytest.raises(InvalidError, match="begun"):
        control.arm("nowhere", "kill")
    control.arm("begun", "kill")
    control.disarm()
    assert finished(started(control)) == (0, b"on\n")
