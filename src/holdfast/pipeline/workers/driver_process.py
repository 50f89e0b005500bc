"""A Spark driver as a child process: started, talked to, watched, and killed with everything it started.

The one rule: a driver is believed only while it speaks. One that does not say `Ready` or `Alive` in time, that says what nobody
understands, or that reads nothing of what it is told is killed: SIGKILL to its whole session, and it counts as dead when nobody of
that session is left. It dies with the worker, even one that was killed.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from holdfast.pipeline.model.driver_protocol import (
    LINE_BYTES_MAX,
    DriverAlive,
    DriverReady,
    FromDriver,
    QuitDriver,
    ToDriver,
)
from holdfast.pipeline.workers.process_session import kill, kill_all
from holdfast.vocabulary.clock import Clock

_log: Final = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "holdfast.pipeline.driver")
_EXEC_WITH_PARENT: Final = str(Path(__file__).with_name("exec_with_parent.py"))
_STDERR_LINE_MAX: Final = 4_000
_KILL_WITHIN_MS: Final = 5_000
_LOOK_MS: Final = 50
_decode: Final = msgspec.json.Decoder(FromDriver)


class DriverProcess:
    """One life of a driver. Made by `driving`; when it has died it never lives again.

    `hear` is called with everything the driver says, in order. `trouble` says why it died or had to be killed.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, *, clock: Clock, hear: Callable[[FromDriver], None]
    ) -> None:
        self._process, self._clock, self._hear = process, clock, hear
        self.started_ms = self.heard_ms = clock.boot_ms()
        self.ready: DriverReady | None = None
        self.trouble = ""
        self.dead = asyncio.Event()
        """Nobody of its session is left. Only then may somebody else do its work without being fenced against it."""

    @property
    def pid(self) -> int:
        """Of the process, its group and its session."""
        return self._process.pid

    def say(self, message: ToDriver) -> None:
        """Tell it something. What a dead one is told is lost; one that does not listen is killed."""
        stdin = self._process.stdin
        if self.dead.is_set() or stdin is None or stdin.is_closing():
            return
        if stdin.transport.get_write_buffer_size() > LINE_BYTES_MAX:
            self.terminate("it does not read what it is told")
            return
        stdin.write(msgspec.json.encode(message) + b"\n")

    def silent_ms(self) -> int:
        """For how long nothing was heard of it."""
        return self._clock.boot_ms() - self.heard_ms

    def terminate(self, why: str) -> None:
        """Kill it; `dead` says when it is."""
        if not self.dead.is_set():
            self.trouble = self.trouble or why
            kill(self.pid)

    async def quit(self, *, within_ms: int) -> None:
        """Ask it to end, and see to it that it does."""
        self.say(QuitDriver())
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await self.dead.wait()
        if not self.dead.is_set():
            self.terminate("it did not quit in time")

    async def watch(self) -> None:
        """Read what it says until it ends, then bury it: when this returns, nobody of its session is left."""
        reading = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._log_errors())]
        # Not `wait()`: on some versions of Python it waits for the pipes too, which those it started may hold for ever.
        while (code := self._process.returncode) is None:
            await self._clock.sleep_ms(_LOOK_MS)
        self.trouble = self.trouble or _told_by(code)
        # Those it started hold its pipes too, so they go before the readers can come to an end.
        while not await kill_all(self.pid, clock=self._clock, within_ms=_KILL_WITHIN_MS):
            _log.error("driver %d does not die of SIGKILL: its leases are not renewed until it does", self.pid)
        await asyncio.gather(*reading)
        self.dead.set()

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # it was asked for
        try:
            while line := await stdout.readline():
                self._take(line)
        except msgspec.MsgspecError as error:
            self.terminate(f"it said what nobody understands: {error}")
        except ValueError:
            self.terminate(f"it said a line of more than {LINE_BYTES_MAX} bytes")
        except Exception as error:  # whatever it said, it must not leave a driver that nobody listens to
            _log.exception("what driver %d said could not be taken in", self.pid)
            self.terminate(f"what it said could not be taken in: {error}")

    def _take(self, line: bytes) -> None:
        message = _decode.decode(line)
        self.heard_ms = self._clock.boot_ms()
        if isinstance(message, DriverReady):
            self.ready = message
        if not isinstance(message, DriverAlive):
            self._hear(message)

    async def _log_errors(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None  # it was asked for
        while True:
            try:
                line = await stderr.readline()
            except ValueError:
                continue  # a line beyond all bounds; its end follows
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                _log.info("driver %d: %s", self.pid, text[:_STDERR_LINE_MAX], extra={"driver": self.pid})


def _told_by(code: int) -> str:
    return f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"


@asynccontextmanager
async def running_driver(
    *,
    clock: Clock,
    first_line: bytes,
    hear: Callable[[FromDriver], None],
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
) -> AsyncIterator[DriverProcess]:
    """A driver for the body; leaving it kills what is left. It may die before the body ends: see `dead`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        _EXEC_WITH_PARENT,
        str(os.getpid()),
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
        start_new_session=True,
        env=None if environment is None else dict(environment),
    )
    driver = DriverProcess(process, clock=clock, hear=hear)
    assert process.stdin is not None  # it was asked for
    process.stdin.write(first_line)
    watching = asyncio.ensure_future(driver.watch())
    try:
        yield driver
    finally:
        driver.terminate("its worker stopped")
        await asyncio.shield(watching)
