"""A simulated process and its clocks.

The one rule: whatever wakes code of a process (a timer, an answer, a watch) comes through its `deliver`. That is how a pause
holds everything back while all clocks continue, and how death is final: no clean-up of a dead process has an effect.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from holdfast.sim.loop import SimLoop

WALL_START_MS: Final = 1_700_000_000_000  # what wall clocks showed when the world began
_WAITS_MIN: Final = 256


class SimProcess:
    """Running, paused, or dead."""

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name = name
        self.paused = self.dead = False
        self.paused_ms = 0.0  # in all pauses that have ended
        self._paused_at_ms = 0.0
        self._loop = loop
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._waits: list[asyncio.Future[Any]] = []
        self.on_death: list[Callable[[], object]] = []  # what the system does for it then, as closing its files
        self._waits_max = _WAITS_MIN  # then those that have ended are let go of

    def wait(self) -> "asyncio.Future[Any]":
        """The future that code of this process awaits for anything outside of it. A dead process is cancelled instead."""
        if self.dead:
            raise asyncio.CancelledError
        future = self._loop.create_future()
        self._waits.append(future)
        if len(self._waits) >= self._waits_max:
            self._waits = [each for each in self._waits if not each.done()]
            self._waits_max = 2 * len(self._waits) + _WAITS_MIN
        return future

    def deliver(self, callback: Callable[..., object], *args: Any) -> None:
        """Call back now; after the pause, if there is one; never, if dead."""
        if self.dead:
            return
        if self.paused:
            self._held.append((callback, args))
        else:
            callback(*args)

    def deliver_in(self, delay_ms: float, callback: Callable[..., object], *args: Any) -> None:
        """`deliver`, after a while."""
        self._loop.post_at(self._loop.now_ms + delay_ms, self.deliver, callback, *args)

    def settle(self, future: "asyncio.Future[Any]", outcome: Any, error: Exception | None) -> None:
        """End a wait, under the same conditions; one whose reader was cancelled is over already."""
        if self.paused:
            self._held.append((self.settle, (future, outcome, error)))
        elif future.done():  # so are all of a dead process
            return
        elif error is None:
            future.set_result(outcome)
        else:
            future.set_exception(error)

    def pause(self) -> None:
        """Pause, as under SIGSTOP or a long garbage collection."""
        if not self.paused and not self.dead:
            self.paused = True
            self._paused_at_ms = self._loop.now_ms

    def resume(self, shuffle: Callable[[list[Any]], None]) -> None:
        """Continue. Everything held back is delivered at once, in any order, as a real loop may."""
        if not self.paused:
            return
        self.paused = False
        self.paused_ms += self._loop.now_ms - self._paused_at_ms
        held, self._held = self._held, []
        shuffle(held)
        for callback, args in held:
            self.deliver(callback, *args)

    def die(self) -> None:
        """Die, as under SIGKILL. Requests already sent stay in flight; no more are sent.

        Every wait is cancelled, not just the task at the root: a task group that is already aborting would not pass it on.
        """
        self.dead = True
        self.paused = False
        self._held.clear()
        for future in self._waits:
            future.cancel()
        self._waits.clear()
        on_death, self.on_death = self.on_death, []
        for callback in on_death:
            callback()


RUNNING: ContextVar[SimProcess | None] = ContextVar("RUNNING", default=None)
"""The process whose code runs now, where a world has set it."""


class SimClock:
    """The clocks of one process: its own rate and offsets, stepping walls, boot time that runs through pauses."""

    def __init__(
        self,
        loop: SimLoop,
        process: SimProcess,
        *,
        rate: float = 1.0,
        boot_offset_ms: float = 0.0,
        wall_offset_ms: float = 0.0,
        runs_through_pauses: bool = True,
    ) -> None:
        self._loop, self._process = loop, process
        self.rate, self._boot_offset_ms, self.wall_offset_ms = rate, boot_offset_ms, wall_offset_ms
        self._runs_through_pauses = runs_through_pauses

    def now_ms(self) -> int:
        return int(WALL_START_MS + self.wall_offset_ms + self._loop.now_ms * self.rate)

    def boot_ms(self) -> int:
        if self._runs_through_pauses:
            return int(self._boot_offset_ms + self._loop.now_ms * self.rate)
        return int(self._boot_offset_ms + (self._loop.now_ms - self._process.paused_ms) * self.rate)

    async def sleep_ms(self, duration_ms: float) -> None:
        process, loop = self._process, self._loop
        wake = process.wait()
        loop.post_at(loop.now_ms + duration_ms / self.rate, process.settle, wake, None, None)
        await wake

    def step_wall_ms(self, by_ms: float) -> None:
        """Step the wall clock, as an operator or NTP may."""
        self.wall_offset_ms += by_ms
