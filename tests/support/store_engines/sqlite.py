"""The SQLite engine's harness. There is no server: other processes, and the disk, are what can hurt a client.

Disk faults are made where they happen, in the connection: a statement fails, or COMMIT takes longer than the caller waits.
"""

import asyncio
import itertools
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.support.store_engines import NewStoreHarness

from holdfast.contracts.store import Store
from holdfast.stores.sqlite import SqliteSettings, SqliteStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom

SETTINGS: Final = SqliteSettings(timeout_ms=2_000)
_PAST_TIMEOUT_S: Final = (SETTINGS.timeout_ms + 200) / 1000

# Writes in short transactions until it is killed; with a second argument, once. Leaves no version and no key behind.
_WRITER: Final = """
import asyncio, sys
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

async def main():
    async with open_store(sys.argv[1], clock=RealClock(), random=SystemRandom()) as store:
        session = await store.open_session(5_000)
        while await store.keep_alive(session.id):
            print("wrote", flush=True)
            if len(sys.argv) > 2:
                break

asyncio.run(main())
"""
_BACKUP: Final = """
import sqlite3, sys
source, target = (sqlite3.connect(path) for path in sys.argv[1:])
source.backup(target)
target.close()
source.close()
"""


class DiskFaults:
    """What the disk under all clients of a harness is to do wrong."""

    def __init__(self) -> None:
        self.reachable = True
        self.cuts = 0
        self.lose_answer_to: str | None = None
        self.lose_request: str | None = None


class FaultyConnection(sqlite3.Connection):
    """A connection whose disk fails as `disk` is set."""

    disk: ClassVar[DiskFaults]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cuts_seen = self.disk.cuts
        self._mentioned: list[object] = []  # what the transaction under way is about

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if not self.disk.reachable or self._cuts_seen != self.disk.cuts:
            self._cuts_seen = self.disk.cuts
            raise _disk_error()
        if sql == "COMMIT":
            return self._commit()
        if sql.startswith("BEGIN"):
            self._mentioned.clear()
        self._mentioned.extend(parameters)
        return super().execute(sql, parameters)

    def _commit(self) -> sqlite3.Cursor:
        disk, mentioned = self.disk, " ".join(map(str, self._mentioned))
        if disk.lose_request is not None and disk.lose_request in mentioned:
            disk.lose_request = None
            threading.Event().wait(_PAST_TIMEOUT_S)
            raise _disk_error()
        done = super().execute("COMMIT")
        if disk.lose_answer_to is not None and disk.lose_answer_to in mentioned:
            disk.lose_answer_to = None
            threading.Event().wait(_PAST_TIMEOUT_S)
        return done


def _disk_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR, "SQLITE_IOERR"
    return error


class SqliteHarness:
    """Clients of one database file in a directory of its own."""

    name = "sqlite"
    ttl_ms_min = 300

    def __init__(self, directory: Path) -> None:
        self.path = directory / "store.db"
        self._saved = directory / "saved.db"
        self.url = f"sqlite:///{self.path}"
        self._disk = DiskFaults()
        self._kind = type("Connection", (FaultyConnection,), {"disk": self._disk})

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Store]:
        async with SqliteStore.open(
            self.path,
            clock=RealClock(),
            random=SystemRandom(),
            settings=SETTINGS,
            connection_class=self._kind,
        ) as store:
            yield store

    def lose_answer_to(self, marker: str) -> None:
        self._disk.lose_answer_to = marker

    def lose_request(self, marker: str) -> None:
        self._disk.lose_request = marker

    async def cut(self) -> None:
        self._disk.cuts += 1

    async def set_reachable(self, reachable: bool) -> None:
        self._disk.reachable = reachable

    async def restart(self) -> None:
        """SIGKILL a process in the middle of its writes, and let another one take over."""
        await asyncio.to_thread(self._kill_a_writer)

    async def save(self) -> None:
        # In another process: to open and close the file in this one would drop the locks its connections hold.
        await asyncio.to_thread(_run, _BACKUP, str(self.path), str(self._saved))

    async def restore_saved(self) -> None:
        await asyncio.to_thread(self._put_back)

    def _kill_a_writer(self) -> None:
        command = [sys.executable, "-c", _WRITER, self.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(5):
                if not writer.stdout.readline():
                    raise UnavailableError("writing process", "it ended by itself")
            writer.kill()
        _run(_WRITER, self.url, "once")

    def _put_back(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(self._saved, self.path)


def _run(script: str, *args: str) -> None:
    subprocess.run([sys.executable, "-c", script, *args], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def serving(directory: Path) -> Iterator[NewStoreHarness]:
    """Nothing to start: each harness has a file of its own."""
    numbers = itertools.count()

    @asynccontextmanager
    async def new() -> AsyncIterator[SqliteHarness]:
        own = directory / f"sqlite-{next(numbers)}"
        own.mkdir(parents=True)
        yield SqliteHarness(own)

    yield new
