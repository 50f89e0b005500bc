"""The keeper of a worker's one driver: starts it when there is work, judges it, restarts it when it dies, ends it when it is idle.

The one rule: the worker's leases are renewed only while its driver speaks, is surely dead, or was never started (`healthy`). So a
hung driver loses its work: it is killed, and if it cannot be killed, the leases run out.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from holdfast.pipeline.catalog.worker_status import DriverState
from holdfast.pipeline.model.driver_protocol import DriverReady, FromDriver, ToDriver
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)


class DriverHandle(Protocol):
    """One life of a driver; `driver_process.DriverProcess` is the real one."""

    started_ms: int
    heard_ms: int
    ready: DriverReady | None
    trouble: str
    dead: asyncio.Event

    def say(self, message: ToDriver) -> None: ...
    def silent_ms(self) -> int: ...
    def terminate(self, why: str) -> None: ...
    async def quit(self, *, within_ms: int) -> None: ...


OnMessage = Callable[[FromDriver], None]
StartDriver = Callable[[OnMessage], AbstractAsyncContextManager[DriverHandle]]


class DriverSupervisor:
    """Keeps at most one driver. `wanted` is set by the worker; `on_death` is told why one died that should not have."""

    def __init__(
        self,
        drive: StartDriver,
        *,
        hear: OnMessage,
        on_death: Callable[[str], None],
        settings: WorkerSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._drive, self._hear, self._on_death = drive, hear, on_death
        self._settings, self._clock, self._random = settings, clock, random
        self._changed = Notify()
        self._wanted = False
        self._idle_since_ms: int | None = None
        self._driver: DriverHandle | None = None
        self._last_death = ""
        self._judged_ms = 0
        self.deaths = 0
        """In a row."""

    @property
    def ready(self) -> DriverReady | None:
        """What the living driver said when Spark was up."""
        driver = self._driver
        return None if driver is None or driver.dead.is_set() or driver.trouble else driver.ready

    @property
    def trouble(self) -> str:
        """Why the driver is being killed, or the last one died; empty once another is ready. With trouble a worker is not able."""
        return self._last_death or (self._driver.trouble if self._driver is not None else "")

    @property
    def state(self) -> DriverState:
        """As it is published."""
        if self.ready is not None:
            return "ready"
        if self.trouble:
            return "restarting"
        return "none" if self._driver is None else "starting"

    @property
    def exists(self) -> bool:
        """Whether there is a driver that may still do something."""
        return self._driver is not None

    @property
    def healthy(self) -> bool:
        """Whether the worker's leases may be renewed."""
        driver = self._driver
        if driver is None or driver.dead.is_set():
            return True
        return not driver.trouble and not self._overdue(driver)

    def want(self, wanted: bool) -> None:
        """Whether there is, or will be, something to do."""
        if wanted:
            self._idle_since_ms = None
        elif self._wanted or self._idle_since_ms is None:
            self._idle_since_ms = self._clock.boot_ms()
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.notify()

    def end_idle(self) -> None:
        """Do not wait any longer before an idle driver is ended."""
        self._idle_since_ms = self._clock.boot_ms() - self._settings.idle_ms
        self._changed.notify()

    def say(self, message: ToDriver) -> None:
        """Tell the living driver."""
        if self._driver is not None:
            self._driver.say(message)

    def terminate(self, why: str) -> None:
        """Kill the living driver."""
        if self._driver is not None:
            self._driver.terminate(why)

    def check_liveness(self) -> None:
        """Kill a driver that has been silent for too long. To be called about once a second.

        Silence counts while somebody listens: a worker that was frozen has yet to read what its driver said meanwhile.
        """
        driver, now_ms = self._driver, self._clock.boot_ms()
        if driver is not None and now_ms - self._judged_ms >= self._settings.alive_ms / 2:
            driver.heard_ms = now_ms
        self._judged_ms = now_ms
        if driver is not None and not driver.dead.is_set() and not driver.trouble and (why := self._overdue(driver)):
            driver.terminate(why)

    def _overdue(self, driver: DriverHandle) -> str:
        if driver.ready is None:
            late = self._clock.boot_ms() - driver.started_ms >= self._settings.start_ms
            return f"Spark was not up after {self._settings.start_ms} ms" if late else ""
        silent_ms = driver.silent_ms()
        return f"it was silent for {silent_ms} ms" if silent_ms >= self._settings.alive_ms else ""

    async def keep(self) -> None:
        """Keep a driver for as long as one is wanted, for ever."""
        while True:
            while not self._wanted:
                await self._changed.wait()
            began_ms = self._clock.boot_ms()
            try:
                async with self._drive(self._hear) as driver:
                    self._driver = driver
                    try:
                        asked = await self._supervise(driver)
                    finally:
                        self._driver = None
            except OSError as error:  # no process could be made; there may be room for one later
                await self._note_death(f"it could not be started: {error}", lived_ms=0)
            else:
                if not asked:
                    lived_ms = self._clock.boot_ms() - began_ms if driver.ready is not None else 0
                    await self._note_death(driver.trouble or "it ended", lived_ms=lived_ms)

    async def _supervise(self, driver: DriverHandle) -> bool:
        """Until it has died (False), or was idle for long enough and quit (True)."""
        dying = asyncio.ensure_future(driver.dead.wait())
        dying.add_done_callback(lambda _: self._changed.notify())
        try:
            while not driver.dead.is_set():
                idle_since_ms = self._idle_since_ms
                if idle_since_ms is None:
                    await self._changed.wait_ms(self._clock, self._settings.idle_ms)
                elif (left_ms := idle_since_ms + self._settings.idle_ms - self._clock.boot_ms()) > 0:
                    await self._changed.wait_ms(self._clock, left_ms)
                else:
                    await driver.quit(within_ms=self._settings.halt_ms)
                    await driver.dead.wait()
                    return True
            return False
        finally:
            dying.cancel()

    async def _note_death(self, trouble: str, *, lived_ms: int) -> None:
        self.deaths = 1 if lived_ms >= self._settings.steady_ms else self.deaths + 1
        self._last_death = trouble
        pause_ms = backoff_ms(
            self.deaths - 1,
            base_ms=self._settings.retry_base_ms,
            max_ms=self._settings.retry_max_ms,
            random=self._random,
        )
        _log.error("the Spark driver is dead: %s; another one in %.1f s", trouble, pause_ms / 1000)
        self._on_death(trouble)
        await self._clock.sleep_ms(pause_ms)

    def on_ready(self) -> None:
        """Spark is up."""
        self._last_death = ""
