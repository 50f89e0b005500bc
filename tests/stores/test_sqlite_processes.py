"""SQLite between processes: races at the first opening, doorbells, expiry, stopped and killed writers."""

import asyncio
import os
import signal
import stat
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.waiting import async_until

from holdfast.contracts.store import Changed
from holdfast.stores.sqlite import SqliteSettings, SqliteStore
from holdfast.stores.sqlite.notifier import directory_for
from holdfast.testing.store_contract.suite import put
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom

CLOCK: Final = RealClock()
NEVER_MS: Final = 600_000  # a tick that cannot be what makes a test pass

# A child's program is this, then a body of its own that uses `store`, `kind` and `say`; it goes on when a line comes in.
_PROGRAM: Final = """
import asyncio, os, signal, sqlite3, sys
from pathlib import Path
from holdfast.contracts.store import *
from holdfast.stores.sqlite import SqliteSettings, SqliteStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

def say(word):
    print(word, flush=True)

class StopInCommit(sqlite3.Connection):
    stopping = False
    def execute(self, sql, parameters=(), /):
        if sql == "COMMIT" and StopInCommit.stopping:
            say("stopping")
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().execute(sql, parameters)

async def main():
    path, tick_ms = Path(sys.argv[1]), int(sys.argv[2])
    async with SqliteStore.open(path, clock=RealClock(), random=SystemRandom(), connection_class=StopInCommit,
                                settings=SqliteSettings(timeout_ms=60_000, tick_ms=tick_ms)) as store:
{body}

asyncio.run(main())
"""


@asynccontextmanager
async def child(path: Path, body: str) -> AsyncIterator[Process]:
    """A process that runs `body` with a store of its own; killed at the end, if it is still there."""
    indented = "\n".join(" " * 8 + line for line in body.strip().splitlines())
    program = _PROGRAM.replace("{body}", indented)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), str(NEVER_MS), stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def read_line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(30):
        return (await process.stdout.readline()).decode().strip()


async def finished(process: Process) -> int:
    async with asyncio.timeout(60):
        return await process.wait()


def opening(path: Path, **settings: Any) -> AbstractAsyncContextManager[SqliteStore]:
    return SqliteStore.open(
        path, clock=CLOCK, random=SystemRandom(), settings=SqliteSettings(**{"tick_ms": NEVER_MS, **settings})
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_processes_that_open_a_new_file_at_once_find_one_store(path: Path) -> None:
    body = 'say(store.facts.incarnation)\nawait store.commit(apply=[Put(f"from/{os.getpid()}", b"1")])'
    async with child(path, body) as a, child(path, body) as b, child(path, body) as c, child(path, body) as d:
        assert len({await read_line(each) for each in (a, b, c, d)}) == 1
        assert [await finished(each) for each in (a, b, c, d)] == [0, 0, 0, 0]
    async with opening(path) as store:
        assert len((await store.scan("from/", "from0")).entries) == 4


INCREMENT: Final = """
for _ in range(200):
    while True:
        entry = await store.get("counter")
        done = await store.commit(require=[AtVersion("counter", entry.version)],
                                  apply=[Put("counter", b"%d" % (int(entry.value) + 1))])
        if isinstance(done, Committed):
            break
"""


async def test_four_processes_count_to_eight_hundred_and_a_watcher_misses_nothing(path: Path) -> None:
    async with opening(path) as store:
        version = await put(store, "counter", 0)
        async with (
            store.watch("counter", from_version=version) as commits,
            child(path, INCREMENT) as a,
            child(path, INCREMENT) as b,
            child(path, INCREMENT) as c,
            child(path, INCREMENT) as d,
        ):
            seen: list[Changed] = []
            async with asyncio.timeout(90):
                while len(seen) < 800:
                    commit = await anext(commits)
                    assert isinstance(commit, Changed)
                    seen.append(commit)
            assert [await finished(each) for each in (a, b, c, d)] == [0, 0, 0, 0]
        entries = [change.entry for commit in seen for change in commit.changes]
        assert [entry and int(entry.value) for entry in entries] == list(range(1, 801))
        assert [commit.version for commit in seen] == list(range(version + 1, version + 801))
        assert await store.get("counter") == entries[-1]


async def test_a_session_of_a_killed_process_ends_in_time_without_commits_or_watchers(path: Path) -> None:
    body = """
session = await store.open_session(300)
await store.commit(apply=[Put("held", b"1", session.id)])
say("held")
sys.stdin.read()
"""
    async with opening(path) as store, child(path, body) as process:
        assert await read_line(process) == "held"
        process.kill()

        async def gone() -> bool:
            return await store.get("held") is None

        await async_until(gone)  # and its tick never comes, so it was not the tick that saw it


async def test_notification_sockets_are_private_and_those_of_dead_processes_are_removed(path: Path) -> None:
    sockets = directory_for(path)
    async with opening(path) as store:
        async with child(path, 'say("open")\nsys.stdin.read()') as process:
            assert await read_line(process) == "open"
            assert len(list(sockets.iterdir())) == 2
            assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
            assert {stat.S_IMODE(socket.stat().st_mode) for socket in sockets.iterdir()} == {0o600}
        assert len(list(sockets.iterdir())) == 2, "a killed process leaves its socket"
        await put(store, "a")
        assert len(list(sockets.iterdir())) == 1
    assert not sockets.exists()


async def test_a_path_too_long_for_a_socket_still_gets_notifications(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 120) / "store.db"
    assert len(str(directory_for(path))) < 80
    assert directory_for(path) != directory_for(path.with_name("other.db"))
    async with opening(path) as store, opening(path) as other:
        version = await put(store, "a")
        async with store.watch("a", from_version=version) as commits:
            waiting = asyncio.ensure_future(anext(commits))
            await put(other, "a")
            async with asyncio.timeout(10):
                await waiting


async def test_a_process_paused_inside_a_write_blocks_writes_until_it_is_killed(path: Path) -> None:
    body = 'StopInCommit.stopping = True\nawait store.commit(apply=[Put("stopped", b"1")])'
    async with opening(path) as store:
        await put(store, "a", 1)
        async with child(path, body) as process:
            assert await read_line(process) == "stopping"
            with pytest.raises(
                UnavailableError, match=f"locked by process {process.pid}, which is writing or was paused"
            ):
                await put(store, "b", 1)
            with pytest.raises(UnavailableError, match=r"locked for .* ms by process"):
                async with opening(path, timeout_ms=200):
                    pass
            assert await store.get("a") is not None, "reads go on"
            os.kill(process.pid, signal.SIGKILL)
            assert await finished(process) == -signal.SIGKILL
            await put(store, "b", 1)
            assert await store.get("stopped") is None, "its transaction was never committed"


async def test_a_process_paused_inside_a_write_finishes_it_when_resumed(path: Path) -> None:
    body = """
StopInCommit.stopping = True
done = await store.commit(apply=[Put("stopped", b"1")])
say(done.version)
"""
    async with opening(path) as store, child(path, body) as process:
        assert await read_line(process) == "stopping"
        with pytest.raises(UnavailableError):
            await put(store, "b", 1)
        os.kill(process.pid, signal.SIGCONT)
        version = int(await read_line(process))
        entry = await store.get("stopped")
        assert entry is not None
        assert entry.version == version
        assert await put(store, "b", 1) == version + 1
