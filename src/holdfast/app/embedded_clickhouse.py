"""The embedded ClickHouse of a server: its address from the start, its process from the first request on.

The listening socket is this process's; the child inherits it. So the address is known before anything runs and stays while children
come and go, a server whose pipelines go elsewhere never pays for one, and who connects while one starts just waits. The child ends
with this process, however this one ends: it holds the other end of the child's standard input.
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
_PORT: Final = 8123  # ClickHouse's own; another if somebody has it
_USER: Final = "default"
_FIRST_MS, _LAST_MS = 200, 10_000  # between a death and the next start
_HEALTHY_AFTER_MS: Final = 60_000  # one that has lived so long is well


@dataclass(frozen=True, slots=True)
class ClickHouseEndpoint:
    """Where sinks that name no ClickHouse write. `address` is that of the embedded one."""

    url: str = ""
    address: Address | None = None

    def __repr__(self) -> str:
        return f"ClickHouseBeside(address={self.address})"


@asynccontextmanager
async def clickhouse_endpoint(
    settings: ServeSettings, *, clock: Clock, random: Random
) -> AsyncIterator[ClickHouseEndpoint]:
    """The ClickHouse the settings name, for the body; the embedded one is ready to be started."""
    if settings.clickhouse != EMBEDDED:
        yield ClickHouseEndpoint(url="" if settings.clickhouse == OFF else settings.clickhouse)
        return
    if why := _why_unavailable(settings):
        if WORKER in settings.roles:
            _log.info("no embedded ClickHouse: %s", why)
        yield ClickHouseEndpoint()
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
    """Why there can be no embedded one; empty: there can."""
    if WORKER not in settings.roles:
        return "this process is no worker"
    if find_spec("chdb") is None:
        return f"chdb is not installed: {install_hint('clickhouse')}, or name a server with --clickhouse URL"
    if not _owns_its_store(settings):
        return "other nodes may share this store and would write into ones of their own; name one with --clickhouse URL"
    return ""


def _owns_its_store(settings: ServeSettings) -> bool:
    """Whether the store is this node's own. Workers of one cluster must write to one ClickHouse: fences and tokens are in it."""
    parts = urlsplit(settings.store)
    if parts.scheme == "memory":
        return True
    return parts.scheme == "sqlite" and Path(unquote(parts.path)).resolve().is_relative_to(settings.data.resolve())


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
    """`holdfast clickhouse`, started when somebody connects and again when it has died."""

    def __init__(
        self, place: socket.socket, data: Path, settings: EmbeddedSettings, *, clock: Clock, random: Random
    ) -> None:
        self._place, self._data, self._settings, self._clock, self._random = place, data, settings, clock, random
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def keep(self) -> None:
        """Start it whenever there is somebody to serve and nobody who does."""
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
            _log.warning(
                "the embedded ClickHouse ended with %d; the next request after %d ms starts it", code, pause_ms
            )
            await self._clock.sleep_ms(pause_ms)

    async def _run_once(self) -> int:
        try:
            self._process = process = await self._start()
        except OSError as error:
            _log.warning("the embedded ClickHouse cannot start: %s", error)
            return -1
        _log.info("the embedded ClickHouse starts", extra={"pid": process.pid, "data": self._data})
        return await self._watched(process)

    async def _watched(self, process: asyncio.subprocess.Process) -> int:
        """Its exit code. One that lives and does not answer, as when it is frozen, is killed: who asks it waits in vain."""
        heard_ms, hung_ms = self._clock.boot_ms(), self._settings.hung_ms
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.ping_ms / 1000):
                    return await process.wait()
            if await self._answers():
                heard_ms = self._clock.boot_ms()
            elif self._clock.boot_ms() - heard_ms > hung_ms and not self._stopping:
                _log.warning("the embedded ClickHouse has not answered for %d ms and is killed", hung_ms)
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
        """Ask it to end, and wait for nothing."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Let it finish what runs; kill it if that takes too long."""
        self.end()
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(self._settings.stop_ms / 1000):
                await process.wait()
        except TimeoutError:
            _log.warning("the embedded ClickHouse did not end in %d ms and is killed", self._settings.stop_ms)
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
            *(sys.executable, "-m", "holdfast", "clickhouse", "--data", str(self._data), "--user", _USER),
            *("--listen-fd", str(descriptor), "--with-parent"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
