"""The supervisor of a worker's one driver: starts it when there is work, kills it when it hangs, restarts it when it dies, stops it
when it is idle.

The one rule: the worker's leases are renewed only while its driver sends heartbeats, is known to be dead, or was never started
(`healthy`). So a hung driver loses its work: it is killed, and if it cannot be killed, the leases expire.
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
from holdfast.vocabulary.tasks import Notify, raise_if_cancelled

_log: Final = logging.getLogger(__name__)


class DriverHandle(Protocol):
    """A driver process; `driver_process.DriverProcess` is the real one."""

    started_ms: int
    last_message_ms: int
    ready: DriverReady | None
    failure: str
    dead: asyncio.Event

    def send(self, message: ToDriver) -> None: ...
    def silent_ms(self) -> int: ...
    def terminate(self, why: str) -> None: ...
    async def quit(self, *, within_ms: int) -> None: ...


OnMessage = Callable[[FromDriver], None]
StartDriver = Callable[[OnMessage], AbstractAsyncContextManager[DriverHandle]]


class DriverSupervisor:
    """Runs at most one driver. `on_death` is called with the reason when one dies unexpectedly."""

    def __init__(
        self,
        start_driver: StartDriver,
        *,
        on_message: OnMessage,
        on_death: Callable[[str], None],
        settings: WorkerSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._start_driver, self._on_message, self._on_death = start_driver, on_message, on_death
        self._settings, self._clock, self._random = settings, clock, random
        self._changed = Notify()
        self._needed = False
        self._idle_since_ms: int | None = None
        self._driver: DriverHandle | None = None
        self._last_failure = ""
        self._checked_ms = 0
        self.deaths = 0
        """In a row."""

    @property
    def ready(self) -> DriverReady | None:
        """The `DriverReady` of the living driver; None: Spark is not up."""
        driver = self._driver
        return None if driver is None or driver.dead.is_set() or driver.failure else driver.ready

    @property
    def failure(self) -> str:
        """Why the driver is being killed, or the last one died; empty once another is ready. Until then the worker is not able."""
        return self._last_failure or (self._driver.failure if self._driver is not None else "")

    @property
    def state(self) -> DriverState:
        """As published in the worker's record."""
        if self.ready is not None:
            return "ready"
        if self.failure:
            return "restarting"
        return "none" if self._driver is None else "starting"

    @property
    def exists(self) -> bool:
        """Whether a driver process may still be alive."""
        return self._driver is not None

    @property
    def healthy(self) -> bool:
        """Whether the worker's leases may be renewed."""
        driver = self._driver
        if driver is None or driver.dead.is_set():
            return True
        return not driver.failure and not self._overdue(driver)

    def need(self, needed: bool) -> None:
        """Whether there is, or soon will be, work for a driver."""
        if needed:
            self._idle_since_ms = None
        elif self._needed or self._idle_since_ms is None:
            self._idle_since_ms = self._clock.boot_ms()
        if needed != self._needed:
            self._needed = needed
            self._changed.notify()

    def stop_now(self) -> None:
        """Stop an idle driver without waiting."""
        self._idle_since_ms = self._clock.boot_ms() - self._settings.idle_ms
        self._changed.notify()

    def send(self, message: ToDriver) -> None:
        """Send a message to the living driver."""
        if self._driver is not None:
            self._driver.send(message)

    def terminate(self, why: str) -> None:
        """Kill the living driver."""
        if self._driver is not None:
            self._driver.terminate(why)

    def check_liveness(self) -> None:
        """Kill a driver without a heartbeat for too long. To be called about once a second.

        Time in which this worker was frozen does not count: it has yet to read what its driver sent meanwhile.
        """
        driver, now_ms = self._driver, self._clock.boot_ms()
        if driver is not None and now_ms - self._checked_ms >= self._settings.alive_ms / 2:
            driver.last_message_ms = now_ms
        self._checked_ms = now_ms
        if driver is not None and not driver.dead.is_set() and not driver.failure and (why := self._overdue(driver)):
            driver.terminate(why)

    def _overdue(self, driver: DriverHandle) -> str:
        if driver.ready is None:
            late = self._clock.boot_ms() - driver.started_ms >= self._settings.start_ms
            return f"Spark not up after {self._settings.start_ms} ms" if late else ""
        silent_ms = driver.silent_ms()
        return f"no heartbeat for {silent_ms} ms" if silent_ms >= self._settings.alive_ms else ""

    async def run(self) -> None:
        """Run a driver whenever one is needed, for ever."""
        while True:
            raise_if_cancelled()
            while not self._needed:
                await self._changed.wait()
            began_ms = self._clock.boot_ms()
            _log.info("starting a Spark driver")
            try:
                async with self._start_driver(self._on_message) as driver:
                    self._driver = driver
                    try:
                        stopped = await self._supervise(driver)
                    finally:
                        self._driver = None
            except OSError as error:  # no process could be created; retry
                await self._on_unexpected_death(f"it could not be started: {error}", lived_ms=0)
            else:
                if not stopped:
                    lived_ms = self._clock.boot_ms() - began_ms if driver.ready is not None else 0
                    await self._on_unexpected_death(driver.failure or "it exited", lived_ms=lived_ms)

    async def _supervise(self, driver: DriverHandle) -> bool:
        """Until it has died (False), or was stopped because it was idle (True)."""
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
                    _log.info("stopping the Spark driver: no slots")
                    await driver.quit(within_ms=self._settings.halt_ms)
                    await driver.dead.wait()
                    return True
            return False
        finally:
            dying.cancel()

    async def _on_unexpected_death(self, failure: str, *, lived_ms: int) -> None:
        self.deaths = 1 if lived_ms >= self._settings.steady_ms else self.deaths + 1
        self._last_failure = failure
        pause_ms = backoff_ms(
            self.deaths - 1,
            base_ms=self._settings.retry_base_ms,
            max_ms=self._settings.retry_max_ms,
            random=self._random,
        )
        _log.error("Spark driver died: %s; restarting in %.1f s", failure, pause_ms / 1000)
        self._on_death(failure)
        await self._clock.sleep_ms(pause_ms)

    def on_ready(self) -> None:
        """Spark is up."""
        self._last_failure = ""
