"""A forked process is as one that `subprocess` starts: its own environment, folder, session, exit code and death."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fork_server import await_stopped, fork

PROGRAM = """
import os, random, sys, time
print(os.getcwd(), sorted(os.environ), sys.argv[1:], os.getsid(0) == os.getpid(), flush=True)
if sys.argv[1] == "sleep":
    time.sleep(600)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    return [sys.executable, "-m", "program"]


def test_it_runs_in_its_folder_with_its_environment_and_its_exit_code_arrives(
    program: list[str], tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = fork([*program, "7"], stdout=out, stderr=out, env={"ONLY": "this"}, cwd=tmp_path)
        assert process.wait(60) == 7
    assert process.poll() == process.returncode == 7
    assert (tmp_path / "out").read_text().split() == [str(tmp_path), "['ONLY']", "['7']", "True"]


def test_it_is_stopped_killed_and_waited_for(program: list[str], tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = fork([*program, "sleep"], stdout=out, stderr=out, env={}, cwd=tmp_path)
    process.send_signal(signal.SIGSTOP)
    await_stopped(process.pid)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL


def test_two_of_them_are_random_each_in_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text("import random, uuid\nprint(random.random(), uuid.uuid4())\n")
    found = set()
    for number in range(2):
        with (tmp_path / str(number)).open("wb") as out:
            assert fork([sys.executable, "-m", "dice"], stdout=out, stderr=out, env={}, cwd=tmp_path).wait(60) == 0
        found.update((tmp_path / str(number)).read_text().split())
    assert len(found) == 4
