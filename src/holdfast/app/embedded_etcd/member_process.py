"""The member's process: started, started again with backoff when it ends, stopped gracefully. It dies with this process."""

import logging
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.app.embedded_etcd.program import environment
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.with_parent import with_parent

_log: Final = logging.getLogger(__name__)

_FIRST_MS, _LAST_MS = 200, 10_000  # between an exit and the next start
_STEADY_MS: Final = 60_000  # after this uptime the backoff starts over
_POLL_MS: Final = 20
_LOG_BYTES_MAX: Final = 16 * MIB
_TAIL_BYTES: Final = 2_000


class MemberProcess:
    """One etcd process after another. `command` is asked for the command line before each start."""

    def __init__(
        self, command: Callable[[], Awaitable[Sequence[str]]], log: Path, *, stop_ms: int, clock: Clock, random: Random
    ) -> None:
        self.exits = 0
        self._command, self._log_path, self._stop_ms = command, log, stop_ms
        self._clock, self._random = clock, random
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    async def keep(self) -> None:
        """Start it, and again after it has ended, until it is stopped."""
        deaths = 0
        while not self._stopping:
            command = await self._command()
            if self._stopping:
                return
            began_ms = self._clock.boot_ms()
            ended = await self._run(command)
            if self._stopping:
                return
            self.exits += 1
            deaths = 0 if self._clock.boot_ms() - began_ms > _STEADY_MS else deaths + 1
            pause_ms = backoff_ms(deaths, base_ms=_FIRST_MS, max_ms=_LAST_MS, random=self._random)
            _log.warning("etcd member %s: starting it again in %d ms; see %s", ended, pause_ms, self._log_path)
            await self._clock.sleep_ms(pause_ms)

    async def _run(self, command: Sequence[str]) -> str:
        """Run it to its end; how it ended."""
        try:
            self._process = process = self._start(command)
        except OSError as error:
            return f"was not started ({error})"
        _log.info("etcd member runs", extra={"pid": process.pid})
        while process.poll() is None:
            await self._clock.sleep_ms(_POLL_MS)
        return f"ended with {process.returncode}"

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        with suppress(OSError):
            if self._log_path.stat().st_size > _LOG_BYTES_MAX:
                self._log_path.replace(self._log_path.with_suffix(".log.1"))
        with self._log_path.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 (the program that the operator names)
                with_parent(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
                start_new_session=True,  # Ctrl-C is this process's
            )

    def log_tail(self) -> str:
        """The end of what it has logged. Blocks."""
        try:
            return self._log_path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
        except OSError as error:
            return str(error)

    def end(self) -> None:
        """Send SIGTERM and return at once: it hands leadership over and closes its files."""
        self._stopping = True
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Stop it gracefully; it is killed after `stop_ms`."""
        self.end()
        process, until_ms = self._process, self._clock.boot_ms() + self._stop_ms
        while process is not None and process.poll() is None:
            if self._clock.boot_ms() >= until_ms:
                _log.warning("etcd member did not stop within %d ms: killing it", self._stop_ms)
                process.kill()
                until_ms += self._stop_ms
            await self._clock.sleep_ms(_POLL_MS)
