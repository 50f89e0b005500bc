"""The driver as a child process: sent messages, watched, and killed with all its descendants."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.waiting import async_until, until
from tests.support.worker_process import fake_driver

from holdfast.pipeline.model.driver_protocol import DriverReady, FromDriver
from holdfast.pipeline.workers.driver_process import DriverProcess
from holdfast.pipeline.workers.process_session import members
from holdfast.vocabulary.clock import RealClock

CLOCK = RealClock()


def grandchild(folder: Path, made: DriverProcess) -> int:
    return int((folder / f"grandchild.{made.pid}").read_text() or 0)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_it_starts_sends_messages_and_exits_when_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said: list[FromDriver] = []
    with caplog.at_level(logging.DEBUG):
        async with fake_driver(tmp_path, said) as made:
            await async_until(lambda: made.ready)
            assert isinstance(said[0], DriverReady)
            assert made.ready is not None
            assert made.ready.spark_version == "0.0-fake"
            await async_until(lambda: (tmp_path / f"grandchild.{made.pid}").exists())
            started = members(made.pid)
            assert len(started) == 2
            assert not any("store.db" in command_of(pid) for pid in started), "the store's URL is in no command line"
            await made.quit(within_ms=5_000)
            await made.dead.wait()
            assert members(made.pid) == []
            assert made.failure == "exit code 0"
    levels = {record.getMessage(): (record.name, record.levelname) for record in caplog.records}
    assert levels["batch cancelled"] == ("holdfast.pipeline.driver.fake", "WARNING"), (
        "its own log lines keep their level"
    )
    noise = [level for message, (_, level) in levels.items() if "noise of a library" in message]
    assert noise == ["DEBUG"], "what libraries print is for debugging"


async def test_killing_it_also_kills_descendants_that_left_its_process_group(tmp_path: Path) -> None:
    async with fake_driver(tmp_path, []) as made:
        await async_until(lambda: made.ready and (tmp_path / f"grandchild.{made.pid}").exists())
        await async_until(lambda: grandchild(tmp_path, made))
        pid = grandchild(tmp_path, made)
        await async_until(lambda: os.getpgid(pid) == pid)
        made.terminate("a test says so")
        await asyncio.wait_for(made.dead.wait(), 10)
        assert not is_alive(pid)
        assert made.failure == "a test says so"


async def test_one_that_dies_by_itself_is_dead_only_when_its_session_is_empty(tmp_path: Path) -> None:
    async with fake_driver(tmp_path, []) as made:
        await async_until(lambda: made.ready and (tmp_path / f"grandchild.{made.pid}").exists())
        await async_until(lambda: grandchild(tmp_path, made))
        (tmp_path / "die").touch()
        await asyncio.wait_for(made.dead.wait(), 10)
        assert not is_alive(grandchild(tmp_path, made))
        assert made.failure == "exit code 7"


async def test_leaving_the_body_kills_it(tmp_path: Path) -> None:
    async with fake_driver(tmp_path, []) as made:
        await async_until(lambda: made.ready)
    assert made.dead.is_set()
    assert members(made.pid) == []


async def test_one_that_sends_a_malformed_message_is_killed(tmp_path: Path) -> None:
    async with fake_driver(tmp_path, []) as made:
        await async_until(lambda: made.ready)
        (tmp_path / "garbage").touch()
        await asyncio.wait_for(made.dead.wait(), 10)
        assert made.failure.startswith("malformed message")


async def test_silence_is_counted_from_the_last_message(tmp_path: Path) -> None:
    async with fake_driver(tmp_path, []) as made:
        await async_until(lambda: made.ready)
        (tmp_path / "hang").touch()
        await async_until(lambda: made.silent_ms() > 700)
        (tmp_path / "hang").unlink()
        await async_until(lambda: made.silent_ms() < 300)


async def test_the_last_lines_of_one_that_died_by_itself_are_logged_as_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "no-start").touch()
    with caplog.at_level(logging.ERROR):
        async with fake_driver(tmp_path, []) as made:
            await asyncio.wait_for(made.dead.wait(), 30)
            assert made.failure == "exit code 1"
    assert any("there is no Java on this machine" in each for each in caplog.messages)


def test_it_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """Also one that is frozen, and so does not notice that its stdin has ended."""
    script = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from pathlib import Path
from tests.support.worker_process import fake_driver
async def main():
    async with fake_driver(Path({str(tmp_path)!r}), []) as made:
        print(made.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: (tmp_path / "rows").exists())
        os.kill(pid, signal.SIGSTOP)
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        until(lambda: not is_alive(pid), within_s=10)
    for each in members(pid):  # the grandchild has no worker to kill it
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
