"""A driver in this process, for tests under a fake clock: it speaks as a real one does, and can be told to misbehave.

It keeps a log of who may act on which partition under which epoch, so that a test can say that nobody ever acted beside another.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from holdfast.pipeline.model.driver_protocol import (
    DriverReady,
    FromDriver,
    HaltSlot,
    PartitionProgress,
    PartitionsReleased,
    QuitDriver,
    RunSlot,
    SlotClaims,
    SlotFailed,
    SlotFinished,
    SlotHalted,
    SlotProgress,
    ToDriver,
)
from holdfast.vocabulary.clock import Clock


@dataclass(slots=True)
class DriverBehaviour:
    """How the drivers of one worker behave."""

    start_ms: int = 1_000
    let_go_ms: int = 200
    halt_ms: int = 200
    silent: bool = False
    deaf_to_halt: bool = False
    unkillable: bool = False
    dies_at_start: bool = False
    lives: int = 0
    heard: list[ToDriver] = field(default_factory=list)


class InProcessDriver:
    """One life."""

    def __init__(self, clock: Clock, hear: Callable[[FromDriver], None], manners: DriverBehaviour) -> None:
        self._clock, self._hear, self._manners = clock, hear, manners
        self.started_ms = self.heard_ms = clock.boot_ms()
        self.ready: DriverReady | None = None
        self.trouble = ""
        self.dead = asyncio.Event()
        self.runs: dict[str, RunSlot] = {}
        self.claims: dict[str, SlotClaims] = {}
        self._tasks = {asyncio.ensure_future(self._live())}

    # --- as the keeper sees it

    def say(self, message: ToDriver) -> None:
        if self.dead.is_set():
            return
        self._manners.heard.append(message)
        match message:
            case RunSlot():
                self.runs[message.slot] = message
                self.claims.pop(message.slot, None)
            case SlotClaims() if message.slot in self.runs:
                before = self.claims.get(message.slot)
                self.claims[message.slot] = message
                left = {p: e for p, e in (before.epochs if before else {}).items() if p not in message.epochs}
                if left:
                    self._later(
                        self._manners.let_go_ms, lambda: self._hear(PartitionsReleased(slot=message.slot, epochs=left))
                    )
            case HaltSlot():
                if not self._manners.deaf_to_halt:
                    self._later(self._manners.halt_ms, lambda: self._halt(message.slot))
            case QuitDriver():
                self._later(10, lambda: self._die("it ended with exit code 0"))

    def silent_ms(self) -> int:
        return self._clock.boot_ms() - self.heard_ms

    def terminate(self, why: str) -> None:
        if not self.dead.is_set():
            self.trouble = self.trouble or why
            if not self._manners.unkillable:
                self._later(10, lambda: self._die(why))

    async def quit(self, *, within_ms: int) -> None:
        self.say(QuitDriver())
        await self.dead.wait()

    # --- as a test sees it

    def acts_on(self) -> dict[tuple[str, str], int]:
        """(generation's registry, partition) → epoch: what it may act on at this moment."""
        if self.dead.is_set():
            return {}
        now_ms = self._clock.boot_ms()
        return {
            (slot.rpartition(".")[0], partition): epoch
            for slot, claims in self.claims.items()
            if now_ms < claims.until_ms and slot in self.runs
            for partition, epoch in claims.epochs.items()
        }

    def die(self, why: str = "killed by a test") -> None:
        self._die(why)

    def report(self, slot: str, *, batches: int, rows: int = 0, blocked: str = "") -> None:
        epochs = self.claims[slot].epochs if slot in self.claims else {}
        partitions = {each: PartitionProgress(checkpoint=rows, end=rows) for each in epochs}
        self._hear(SlotProgress(slot=slot, batches=batches, rows=rows, blocked=blocked, partitions=partitions))

    def fail(self, slot: str, reason: str, *, lasting: bool = False) -> None:
        del self.runs[slot]
        self._hear(SlotFailed(slot=slot, reason=reason, lasting=lasting))

    def finish(self, slot: str) -> None:
        self._hear(SlotFinished(slot=slot))

    # --- how

    async def _live(self) -> None:
        await self._clock.sleep_ms(self._manners.start_ms)
        if self._manners.dies_at_start:
            self._die("no Spark for you")
            return
        self.ready = DriverReady(spark_version="4.3.0-acted")
        self.heard_ms = self._clock.boot_ms()
        self._hear(self.ready)
        while not self.dead.is_set():
            if not self._manners.silent:
                self.heard_ms = self._clock.boot_ms()
            await self._clock.sleep_ms(1_000)

    def _later(self, after_ms: int, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await self._clock.sleep_ms(after_ms)
            if not self.dead.is_set():
                act()

        task = asyncio.ensure_future(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _halt(self, slot: str) -> None:
        self.runs.pop(slot, None)
        self.claims.pop(slot, None)
        self._hear(SlotHalted(slot=slot))

    def _die(self, why: str) -> None:
        self.trouble = self.trouble or why
        self.claims.clear()
        self.dead.set()

    async def bury(self) -> None:
        self._die("its worker stopped")
        for task in list(self._tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)


class DriverStage:
    """Makes the drivers of one worker, and knows the one that lives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.manners = DriverBehaviour()
        self.driver: InProcessDriver | None = None

    @asynccontextmanager
    async def drive(self, hear: Callable[[FromDriver], None]) -> AsyncIterator[InProcessDriver]:
        self.manners.lives += 1
        self.driver = driver = InProcessDriver(self._clock, hear, self.manners)
        try:
            yield driver
        finally:
            await driver.bury()
            self.driver = None
