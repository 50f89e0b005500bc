"""An owner of a key that can be paused: a real process, or a task with a clock that can stand still."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from holdfast.stores.urls import parse_store_url
from holdfast.testing.harness import StoreHarness
from holdfast.testing.owner import hold_key
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.tasks import background_tasks


class Owner(Protocol):
    """Runs `holdfast.testing.owner`."""

    async def read_line(self) -> str:
        """The next line of its output."""
        ...

    def pause(self) -> None:
        """Stop it as SIGSTOP does: it cannot notice."""
        ...

    def resume(self) -> None:
        """Let it continue."""
        ...


@asynccontextmanager
async def running_owner(harness: StoreHarness, *, ttl_ms: int, key: str) -> AsyncIterator[Owner]:
    """An owner of `key`: a child process if one can open the store by its URL."""
    running = _process(harness.url, ttl_ms, key) if _opens(harness.url) else _task(harness, ttl_ms, key)
    async with running as owner:
        yield owner


def _opens(url: str) -> bool:
    try:
        parse_store_url(url)
    except InvalidError:
        return False
    return True


class _ProcessOwner:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read_line(self) -> str:
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode().strip()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(f"the owner died: {(await self._process.stderr.read()).decode()[-2000:]}")
        return line

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def _process(url: str, ttl_ms: int, key: str) -> AsyncIterator[Owner]:
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-m", "holdfast.testing.owner", url, str(ttl_ms), key)
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe)
    try:
        yield _ProcessOwner(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


class _PausableClock(RealClock):
    """A clock whose sleepers do not wake while it is paused."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.running.set()

    async def sleep_ms(self, duration_ms: float) -> None:
        await super().sleep_ms(duration_ms)
        await self.running.wait()


class _TaskOwner:
    def __init__(self, clock: _PausableClock, lines: "asyncio.Queue[str]") -> None:
        self._clock, self._lines = clock, lines

    async def read_line(self) -> str:
        return await self._lines.get()

    def pause(self) -> None:
        self._clock.running.clear()

    def resume(self) -> None:
        self._clock.running.set()


@asynccontextmanager
async def _task(harness: StoreHarness, ttl_ms: int, key: str) -> AsyncIterator[Owner]:
    clock = _PausableClock()
    lines: asyncio.Queue[str] = asyncio.Queue()
    async with (
        harness.client() as store,
        background_tasks(
            hold_key(store, clock=clock, random=SystemRandom(), ttl_ms=ttl_ms, key=key, report=lines.put_nowait)
        ),
    ):
        yield _TaskOwner(clock, lines)
