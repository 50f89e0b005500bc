"""A Spark driver as a child process: started, sent messages, watched, and killed with all its descendants.

The one rule: a driver that does not send `DriverReady` or `DriverAlive` in time, sends a malformed message, or does not read its
messages is killed: SIGKILL to its whole session, and it is dead when no process of that session is left. It dies with the worker,
even with one that was killed.

Log records of the driver's own code are messages and are logged here at their level. Its stderr, where Spark, py4j and other
libraries log, is logged at debug; if the driver dies by itself, the last lines are logged as errors.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from holdfast.pipeline.model.driver_protocol import (
    LINE_BYTES_MAX,
    DriverAlive,
    DriverLog,
    DriverReady,
    FromDriver,
    QuitDriver,
    ToDriver,
)
from holdfast.pipeline.workers.process_session import kill, kill_all
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.with_parent import with_parent

_log: Final = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "holdfast.pipeline.driver")
_STDERR_LINE_MAX: Final = 4_000
_STDERR_LINES_KEPT: Final = 20
_KILL_WITHIN_MS: Final = 5_000
_POLL_MS: Final = 50
_decode: Final = msgspec.json.Decoder(FromDriver)


class DriverProcess:
    """One driver process. Made by `running_driver`; a dead one is never restarted.

    `on_message` gets every message of the driver's, in order. `failure` says why it died or was killed.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, *, clock: Clock, on_message: Callable[[FromDriver], None]
    ) -> None:
        self._process, self._clock, self._on_message = process, clock, on_message
        self._stderr_tail: deque[str] = deque(maxlen=_STDERR_LINES_KEPT)
        self.started_ms = self.last_message_ms = clock.boot_ms()
        self.ready: DriverReady | None = None
        self.failure = ""
        self._quitting = False
        self.dead = asyncio.Event()
        """No process of its session is left. Only then can its partitions be released without waiting for their fence."""

    @property
    def pid(self) -> int:
        """Of the process, its group and its session."""
        return self._process.pid

    def send(self, message: ToDriver) -> None:
        """Send a message. A dead driver gets none; one that does not read is killed."""
        stdin = self._process.stdin
        if self.dead.is_set() or stdin is None or stdin.is_closing():
            return
        if stdin.transport.get_write_buffer_size() > LINE_BYTES_MAX:
            self.terminate("it does not read its messages")
            return
        stdin.write(msgspec.json.encode(message) + b"\n")

    def silent_ms(self) -> int:
        """Time since its last message."""
        return self._clock.boot_ms() - self.last_message_ms

    def terminate(self, why: str) -> None:
        """Kill it; `dead` is set when it is."""
        if not self.dead.is_set():
            self.failure = self.failure or why
            kill(self.pid)

    async def quit(self, *, within_ms: int) -> None:
        """Ask it to exit, and kill it if it does not."""
        self._quitting = True
        self.send(QuitDriver())
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await self.dead.wait()
        if not self.dead.is_set():
            self.terminate(f"it did not exit within {within_ms} ms")

    async def watch(self) -> None:
        """Read its output until it exits, then kill its descendants: when this returns, no process of its session is left."""
        reading = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._log_stderr())]
        # Not `wait()`: on some versions of Python it also waits for the pipes, which descendants may hold open for ever.
        while (code := self._process.returncode) is None:
            await self._clock.sleep_ms(_POLL_MS)
        killed_by_us = bool(self.failure)
        self.failure = self.failure or _exit_reason(code)
        # Descendants hold its pipes open: the readers end only when they are gone.
        while not await kill_all(self.pid, clock=self._clock, within_ms=_KILL_WITHIN_MS):
            _log.error("Spark driver %d survives SIGKILL: leases are not renewed until it is dead", self.pid)
        await asyncio.gather(*reading)
        if not killed_by_us and not self._quitting:
            for line in self._stderr_tail:
                _log.error("Spark driver %d: %s", self.pid, line)
        self.dead.set()

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # requested below
        try:
            while line := await stdout.readline():
                self._receive(line)
        except msgspec.MsgspecError as error:
            self.terminate(f"malformed message: {error}")
        except ValueError:
            self.terminate(f"a message of more than {LINE_BYTES_MAX} bytes")
        except Exception as error:  # a driver whose messages are not read any more must not stay alive
            _log.exception("a message of Spark driver %d could not be handled", self.pid)
            self.terminate(f"its message could not be handled: {error}")

    def _receive(self, line: bytes) -> None:
        message = _decode.decode(line)
        if isinstance(message, DriverLog):  # from any thread: no sign that the driver's loop is alive
            self._log_message(message)
            return
        self.last_message_ms = self._clock.boot_ms()
        if isinstance(message, DriverReady):
            self.ready = message
        if not isinstance(message, DriverAlive):
            self._on_message(message)

    def _log_message(self, message: DriverLog) -> None:
        level = logging.getLevelNamesMapping().get(message.level, logging.INFO)
        for line in (message.text, *message.trace.splitlines()):
            logging.getLogger(message.logger).log(level, "%s", line[:_STDERR_LINE_MAX], extra={"driver": self.pid})

    async def _log_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None  # requested below
        while True:
            try:
                line = await stderr.readline()
            except ValueError:
                continue  # a line longer than the limit; the rest of it follows
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                self._stderr_tail.append(text[:_STDERR_LINE_MAX])
                _log.debug("Spark driver %d: %s", self.pid, text[:_STDERR_LINE_MAX])


def _exit_reason(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


@asynccontextmanager
async def running_driver(
    *,
    clock: Clock,
    first_line: bytes,
    on_message: Callable[[FromDriver], None],
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
) -> AsyncIterator[DriverProcess]:
    """A driver for the body; leaving the body kills it. It may die before: see `dead`."""
    process = await asyncio.create_subprocess_exec(
        *with_parent(command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
        start_new_session=True,
        env=None if environment is None else dict(environment),
    )
    driver = DriverProcess(process, clock=clock, on_message=on_message)
    assert process.stdin is not None  # requested below
    process.stdin.write(first_line)
    watching = asyncio.ensure_future(driver.watch())
    try:
        yield driver
    finally:
        driver.terminate("the worker stopped")
        await asyncio.shield(watching)
