"""Failpoints: nothing without a handler; installed for a test's body or, by a folder, for whole processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from tests.support.failpoints import FailpointError, FailpointFolder, FolderHandler, fail_at, known_failpoints
from tests.support.waiting import until

from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import InvalidError

BEGUN, PLANNED = "pipeline.begun", "pipeline.planned"
PROGRAM = f"from holdfast.vocabulary.failpoints import reached; reached({BEGUN!r}); print('passed', flush=True)"


def started(folder: FailpointFolder) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **folder.environment}  # noqa: TID251 (a child has what we have, and more)
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE)


def finished(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


def test_a_failpoint_without_a_handler_does_nothing() -> None:
    failpoints.reached(BEGUN)


def test_a_handler_is_installed_for_the_body_alone() -> None:
    with failpoints.installed(fail_at(BEGUN)):
        failpoints.reached(PLANNED)
        with pytest.raises(FailpointError):
            failpoints.reached(BEGUN)
    failpoints.reached(BEGUN)


async def test_an_asynchronous_handler_is_awaited_where_the_code_can_await_it() -> None:
    reached = []

    async def handler(name: str) -> None:
        reached.append(name)

    with failpoints.installed(handler):
        await failpoints.reached_async(BEGUN)
    assert reached == [BEGUN]


def test_a_handler_that_reaches_failpoints_itself_is_not_called_again() -> None:
    reached = []

    def handler(name: str) -> None:
        reached.append(name)
        failpoints.reached(PLANNED)

    with failpoints.installed(handler):
        failpoints.reached(BEGUN)
    assert reached == [BEGUN]


def test_an_armed_failure_happens_once(tmp_path: Path) -> None:
    folder = FailpointFolder(tmp_path / "failpoints")
    with failpoints.installed(FolderHandler(folder.folder)):
        failpoints.reached(BEGUN)
        folder.arm(BEGUN, "fail")
        failpoints.reached(PLANNED)
        with pytest.raises(FailpointError):
            failpoints.reached(BEGUN)
        failpoints.reached(BEGUN)
    assert folder.taken(BEGUN, "fail") == os.getpid()


def test_a_process_is_killed_held_and_paused_at_a_failpoint(tmp_path: Path) -> None:
    folder = FailpointFolder(tmp_path / "failpoints")
    folder.arm(BEGUN, "kill")
    assert finished(started(folder)) == (-signal.SIGKILL, b"")
    folder.arm(BEGUN, "hold")
    process = started(folder)
    assert folder.wait_taken(BEGUN, "hold") == process.pid
    folder.resume(BEGUN, "hold")
    assert finished(process) == (0, b"passed\n")
    folder.arm(BEGUN, "pause")
    process = started(folder)
    folder.wait_taken(BEGUN, "pause")
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", what="it stops")
    folder.resume(BEGUN, "pause")
    assert finished(process) == (0, b"passed\n")


def test_who_is_held_goes_on_also_if_the_failpoint_is_armed_again_at_once(tmp_path: Path) -> None:
    folder = FailpointFolder(tmp_path / "failpoints")
    held = Thread(target=FolderHandler(folder.folder), args=(BEGUN,), daemon=True)
    folder.arm(BEGUN, "hold")
    held.start()
    folder.wait_taken(BEGUN, "hold")
    folder.resume(BEGUN, "hold")
    folder.arm(BEGUN, "hold")
    held.join(60)
    assert not held.is_alive()
    assert folder.taken(BEGUN, "hold") is None


def test_only_failpoints_of_the_code_can_be_armed(tmp_path: Path) -> None:
    folder = FailpointFolder(tmp_path / "failpoints")
    with pytest.raises(InvalidError, match="begun"):
        folder.arm("pipeline.nowhere", "kill")
    folder.arm(BEGUN, "kill")
    folder.disarm()
    assert finished(started(folder)) == (0, b"passed\n")


def test_names_of_failpoints_are_an_area_and_a_step_and_fit_into_file_names() -> None:
    assert known_failpoints()
    for name in known_failpoints():
        area, _, step = name.partition(".")
        assert area
        assert step
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-"), name
