"""Real servers started from wheels, on free ports of loopback, as an ordinary user or as root.

A `ServerProcess` owns one child process in its own data directory: started, killed, frozen and started again by tests.
Its methods block, so that one server can outlive many event loops; from async code call them with `asyncio.to_thread`.
"""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Protocol, Self

from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError

START_TIMEOUT_MS: Final = 30_000

# Below the ephemeral range, so that no outgoing connection takes the port meanwhile; a stretch of its own per process: neighbours
# among process ids, as those of parallel test runs are, begin hundreds of ports apart (the multiplier is the golden section).
_ports: Final = itertools.count(20_000 + os.getpid() * 6_799 % 11_000)


def free_port() -> int:
    """A free port that this process has not returned before."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise UnavailableError("loopback", "no free port")


def as_plain_user(argv: Sequence[str]) -> list[str]:
    """`argv` for a server that refuses to run as root: in a user namespace with another user id."""
    if sys.platform == "linux" and os.geteuid() == 0:
        return ["unshare", "--user", "--map-user=1000", "--map-group=1000", *argv]
    return list(argv)


class ChildProcess(Protocol):
    """What is used of a `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


class ServerProcess(ABC):
    """One server child process. Subclasses define its command line and when it is ready."""

    name = "server"
    start_timeout_ms = START_TIMEOUT_MS

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self._process: ChildProcess | None = None

    @abstractmethod
    def argv(self) -> list[str]:
        """The command line that serves `self.data` on `self.port`."""

    def prepare(self) -> None:
        """Make the data directory, once."""
        self.data.mkdir(parents=True, exist_ok=True)

    def ready(self) -> bool:
        """Whether the server responds; by default, whether its port is open."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    @contextmanager
    def running(self) -> Iterator[Self]:
        """The server, prepared and started, for the body."""
        self.prepare()
        try:
            self.start()
            yield self
        finally:
            self.kill()

    def start(self) -> None:
        """Start and wait until it answers."""
        log_path = self.directory / f"{self.name}.log"
        with log_path.open("ab") as log:
            self._process = self.spawn(log)
        clock, pause = RealClock(), threading.Event()
        deadline_ms = clock.boot_ms() + self.start_timeout_ms
        while not self.ready():
            if self._process.poll() is not None or clock.boot_ms() > deadline_ms:
                raise UnavailableError(self.name, f"did not start: {log_path.read_text(errors='replace')[-2000:]}")
            pause.wait(0.02)

    def spawn(self, log: IO[bytes]) -> ChildProcess:
        """The process, in a session of its own, so that a signal to the test run does not reach the server first."""
        return subprocess.Popen(self.argv(), stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL to the server and its children; returns when it has exited."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def restart(self) -> None:
        """As a crash and a supervisor would: SIGKILL, then start on the same data."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: alive for the kernel, dead for its clients."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)
        self.await_stopped(self._process.pid)

    def await_stopped(self, pid: int) -> None:
        """Return when all its threads have stopped. They stop one by one: until the last has, it may still answer."""
        os.waitpid(pid, os.WUNTRACED)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def save(self) -> None:
        """Remember the data as they are now."""
        self.kill()
        saved = self.directory / "saved"
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(self.data, saved, symlinks=True)
        self.start()

    def restore_saved(self) -> None:
        """Replace the data by the saved ones, as a restored backup would."""
        self.kill()
        shutil.rmtree(self.data)
        shutil.copytree(self.directory / "saved", self.data, symlinks=True)
        self.start()
