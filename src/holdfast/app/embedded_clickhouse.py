"""The embedded ClickHouse of a server: it listens from the start, its process is started by the first connection.

The listening socket belongs to this process; the child inherits it. So the address stays the same across restarts of the child, a
server without ClickHouse sinks never starts one, and connections made during a start wait in the backlog. The child ends with this
process: it watches its standard input, whose other end is here.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from holdfast.app.addresses import Address
from holdfast.app.config import WORKER, EmbeddedSettings, ServeSettings
from holdfast.clickhouse.embedded.authentication import load_or_create_password
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.installation import install_hint
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.sockets import bind_one, listen
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)

EMBEDDED: Final = "embedded"
OFF: Final = "off"
_HOST: Final = "127.0.0.1"
_PORT: Final = 8123  # ClickHouse's own; a free one if it is in use
_USER: Final = "default"
_FIRST_MS, _LAST_MS = 200, 10_000  # between an exit and the next start
_HEALTHY_AFTER_MS: Final = 60_000  # after this uptime the backoff starts over


@dataclass(frozen=True, slots=True)
class ClickHouseEndpoint:
    """The ClickHouse of sinks that name none. `address`: of the embedded one; `disabled`: why there is none, and the remedy."""

    url: str = ""
    address: Address | None = None
    disabled: str = ""

    def __repr__(self) -> str:
        return f"ClickHouseEndpoint(address={self.address})"


@asynccontextmanager
async def clickhouse_endpoint(
    settings: ServeSettings, *, clock: Clock, random: Random
) -> AsyncIterator[ClickHouseEndpoint]:
    """The ClickHouse that the settings name, for the body; the embedded one listens."""
    if settings.clickhouse != EMBEDDED:
        if settings.clickhouse == OFF:
            yield ClickHouseEndpoint(disabled="--clickhouse off")
        else:
            yield ClickHouseEndpoint(url=settings.clickhouse)
        return
    if why := _why_unavailable(settings):
        if WORKER in settings.roles:
            _log.info("embedded ClickHouse disabled: %s", why)
        yield ClickHouseEndpoint(disabled=why)
        return
    data = settings.data / "clickhouse"
    password = await asyncio.to_thread(load_or_create_password, data, random)
    with _listening() as place:
        address = Address(*place.getsockname())
        child = _EmbeddedProcess(place, data, settings.embedded, clock=clock, random=random)
        async with background_tasks(child.keep()):
            try:
                yield ClickHouseEndpoint(f"http://{_USER}:{quote(password)}@{address}", address)
                await child.stop()
            finally:
                child.end()


def _why_unavailable(settings: ServeSettings) -> str:
    """Why there is no embedded one, and the remedy; empty: there is."""
    if WORKER not in settings.roles:
        return "--roles does not include worker"
    if find_spec("chdb") is None:
        return f"chdb is not installed; {install_hint('clickhouse')}, or give --clickhouse URL"
    if not _owns_its_store(settings):
        return "the store may be shared by several nodes, which need one ClickHouse: give --clickhouse URL"
    return ""


def _owns_its_store(settings: ServeSettings) -> bool:
    """Whether the store is in this data directory. Workers of one cluster must share a ClickHouse: it holds fences and tokens."""
    parts = urlsplit(settings.store)
    if parts.scheme == "memory":
        return True
    path = Path(unquote(parts.path).removeprefix("/"))  # sqlite:///a is the relative a
    return parts.scheme == "sqlite" and path.resolve().is_relative_to(settings.data.resolve())


def _listening() -> socket.socket:
    """A listening socket on ClickHouse's own port, or on a free one if that is in use."""
    with suppress(UnavailableError):
        return _listening_at(_PORT)
    return _listening_at(0)


def _listening_at(port: int) -> socket.socket:
    made = bind_one(_HOST, port)
    try:
        listen([made])
    except UnavailableError:
        made.close()
        raise
    return made


class _EmbeddedProcess:
    """`holdfast clickhouse serve`, started by a connection, and again after it exited."""

    def __init__(
        self, place: socket.socket, data: Path, settings: EmbeddedSettings, *, clock: Clock, random: Random
    ) -> None:
        self._place, self._data, self._settings, self._clock, self._random = place, data, settings, clock, random
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def keep(self) -> None:
        """Start the process whenever a connection waits and none runs."""
        deaths = 0
        while not self._stopping:
            await self._await_connection()
            if self._stopping:
                return
            began_ms = self._clock.boot_ms()
            code = await self._run_once()
            if self._stopping:
                return
            deaths = 0 if self._clock.boot_ms() - began_ms > _HEALTHY_AFTER_MS else deaths + 1
            pause_ms = backoff_ms(deaths, base_ms=_FIRST_MS, max_ms=_LAST_MS, random=self._random)
            _log.warning("embedded ClickHouse exited with %d; a connection after %d ms restarts it", code, pause_ms)
            await self._clock.sleep_ms(pause_ms)

    async def _run_once(self) -> int:
        try:
            self._process = process = await self._start()
        except OSError as error:
            _log.warning("embedded ClickHouse failed to start: %s", error)
            return -1
        _log.info("starting embedded ClickHouse", extra={"pid": process.pid, "data": self._data})
        return await self._watched(process)

    async def _watched(self, process: asyncio.subprocess.Process) -> int:
        """Its exit code. A process that does not respond for `hung_ms` is killed."""
        responded_ms, hung_ms = self._clock.boot_ms(), self._settings.hung_ms
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.ping_ms / 1000):
                    return await process.wait()
            if await self._answers():
                responded_ms = self._clock.boot_ms()
            elif self._clock.boot_ms() - responded_ms > hung_ms and not self._stopping:
                _log.warning("embedded ClickHouse has not responded for %d ms: killing it", hung_ms)
                with suppress(ProcessLookupError):
                    process.kill()
                return await process.wait()

    async def _answers(self) -> bool:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._settings.ping_ms / 1000):
                reader, writer = await asyncio.open_connection(*self._place.getsockname())
                try:
                    writer.write(b"GET /ping HTTP/1.0\r\n\r\n")
                    return bool(await reader.readline())
                finally:
                    writer.close()
        return False

    def end(self) -> None:
        """Send SIGTERM and return at once."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Let running queries finish; kill the process after `stop_ms`."""
        self.end()
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(self._settings.stop_ms / 1000):
                await process.wait()
        except TimeoutError:
            _log.warning("embedded ClickHouse did not stop within %d ms: killing it", self._settings.stop_ms)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _await_connection(self) -> None:
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._place.fileno(), came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(self._place.fileno())

    async def _start(self) -> asyncio.subprocess.Process:
        descriptor = self._place.fileno()
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "clickhouse", "serve", "--data", str(self._data), "--user", _USER),
            *("--listen-fd", str(descriptor), "--with-parent"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
