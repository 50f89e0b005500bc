"""A driver in this process, for tests under a fake clock: it sends what a real one sends, and can misbehave.

It keeps a log of who may act on which partition under which epoch, so that a test can say that nobody ever acted beside another.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
    release_ms: int = 200
    halt_ms: int = 200
    silent: bool = False
    deaf_to_halt: bool = False
    unkillable: bool = False
    dies_at_start: bool = False
    lives: int = 0
    received: list[ToDriver] = field(default_factory=list)


class InProcessDriver:
    """One driver."""

    def __init__(self, clock: Clock, on_message: Callable[[FromDriver], None], behaviour: DriverBehaviour) -> None:
        self._clock, self._on_message, self._behaviour = clock, on_message, behaviour
        self.started_ms = self.last_message_ms = clock.boot_ms()
        self.ready: DriverReady | None = None
        self.failure = ""
        self.dead = asyncio.Event()
        self.runs: dict[str, RunSlot] = {}
        self.claims: dict[str, SlotClaims] = {}
        self._tasks = {asyncio.ensure_future(self._live())}

    # --- as the supervisor sees it

    def send(self, message: ToDriver) -> None:
        if self.dead.is_set():
            return
        self._behaviour.received.append(message)
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
                        self._behaviour.release_ms,
                        lambda: self._on_message(PartitionsReleased(slot=message.slot, epochs=left)),
                    )
            case HaltSlot():
                if not self._behaviour.deaf_to_halt:
                    self._later(self._behaviour.halt_ms, lambda: self._halt(message.slot))
            case QuitDriver():
                self._later(10, lambda: self._die("exit code 0"))

    def silent_ms(self) -> int:
        return self._clock.boot_ms() - self.last_message_ms

    def terminate(self, why: str) -> None:
        if not self.dead.is_set():
            self.failure = self.failure or why
            if not self._behaviour.unkillable:
                self._later(10, lambda: self._die(why))

    async def quit(self, *, within_ms: int) -> None:
        self.send(QuitDriver())
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

    def report(self, slot: str, *, batches: int, rows: int = 0, blocked: str = "", source_partitions: int = 0) -> None:
        epochs = self.claims[slot].epochs if slot in self.claims else {}
        partitions = {each: PartitionProgress(checkpoint=rows, end=rows) for each in epochs}
        self._on_message(
            SlotProgress(
                slot=slot,
                batches=batches,
                rows=rows,
                blocked=blocked,
                partitions=partitions,
                source_partitions=source_partitions,
            )
        )

    def fail(self, slot: str, reason: str, *, lasting: bool = False) -> None:
        del self.runs[slot]
        self._on_message(SlotFailed(slot=slot, reason=reason, lasting=lasting))

    def finish(self, slot: str) -> None:
        self._on_message(SlotFinished(slot=slot))

    # --- how

    async def _live(self) -> None:
        await self._clock.sleep_ms(self._behaviour.start_ms)
        if self._behaviour.dies_at_start:
            self._die("no Spark for you")
            return
        self.ready = DriverReady(spark_version="4.3.0-acted")
        self.last_message_ms = self._clock.boot_ms()
        self._on_message(self.ready)
        while not self.dead.is_set():
            if not self._behaviour.silent:
                self.last_message_ms = self._clock.boot_ms()
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
        self._on_message(SlotHalted(slot=slot))

    def _die(self, why: str) -> None:
        self.failure = self.failure or why
        self.claims.clear()
        self.dead.set()

    async def bury(self) -> None:
        self._die("its worker stopped")
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))


class DriverStage:
    """Makes the drivers of one worker, and knows the one that lives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.behaviour = DriverBehaviour()
        self.driver: InProcessDriver | None = None

    @asynccontextmanager
    async def start_driver(self, on_message: Callable[[FromDriver], None]) -> AsyncIterator[InProcessDriver]:
        self.behaviour.lives += 1
        self.driver = driver = InProcessDriver(self._clock, on_message, self.behaviour)
        try:
            yield driver
        finally:
            await driver.bury()
            self.driver = None
