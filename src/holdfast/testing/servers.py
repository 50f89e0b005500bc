"""Real servers started from wheels, on free ports of loopback, as an ordinary user or as root.

A `ServerProcess` owns one child process in its own data directory: started, killed, frozen and started again by tests.
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import UnavailableError

START_TIMEOUT_MS: Final = 30_000


def free_port(*, below: int = 32_000) -> int:
    """A port nobody listens on now, below the ephemeral range so that no outgoing connection takes it meanwhile."""
    for port in range(20_000 + os.getpid() * 7 % 9_000, below):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise UnavailableError("loopback", "no free port")


def as_plain_user(argv: Sequence[str]) -> list[str]:
    """`argv` for a server that refuses to run as root: in a user namespace where we are somebody else."""
    if sys.platform == "linux" and os.geteuid() == 0:
        return ["unshare", "--user", "--map-user=1000", "--map-group=1000", *argv]
    return list(argv)


class ServerProcess:
    """One server child process. Subclasses say how it is started and when it is ready."""

    name = "server"

    def __init__(self, directory: Path, *, clock: Clock | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self.clock = clock or RealClock()
        self._process: asyncio.subprocess.Process | None = None

    def argv(self) -> list[str]:
        """The command line that serves `self.data` on `self.port`."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Make the data directory, once."""
        self.data.mkdir(parents=True, exist_ok=True)

    async def ready(self) -> bool:
        """Whether the server answers."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ServerProcess"]:
        """The server, prepared and started, for the body."""
        await self.prepare()
        try:
            await self.start()
            yield self
        finally:
            await self.kill()

    async def start(self) -> None:
        """Start and wait until it answers."""
        with (self.directory / f"{self.name}.log").open("ab") as log:
            # A session of its own, so that a signal to the test run does not reach the server first.
            self._process = await asyncio.create_subprocess_exec(
                *self.argv(), stdout=log, stderr=log, start_new_session=True
            )
        deadline_ms = self.clock.boot_ms() + START_TIMEOUT_MS
        while not await self.ready():
            if self._process.returncode is not None or self.clock.boot_ms() > deadline_ms:
                tail = (self.directory / f"{self.name}.log").read_text(errors="replace")[-2000:]
                raise UnavailableError(self.name, f"did not start: {tail}")
            await self.clock.sleep_ms(20)

    async def kill(self) -> None:
        """SIGKILL to the server and its children; returns when it is gone."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def restart(self) -> None:
        """As a crash and a supervisor would: SIGKILL, then start on the same data."""
        await self.kill()
        await self.start()

    def freeze(self) -> None:
        """SIGSTOP: alive for the kernel, dead for its clients."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    async def save(self) -> None:
        """Remember the data as they are now."""
        await self.kill()
        saved = self.directory / "saved"
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(self.data, saved, symlinks=True)
        await self.start()

    async def go_back(self) -> None:
        """Replace the data by the saved ones."""
        await self.kill()
        shutil.rmtree(self.data)
        shutil.copytree(self.directory / "saved", self.data, symlinks=True)
        await self.start()
