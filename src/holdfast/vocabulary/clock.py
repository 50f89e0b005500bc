"""Time: the only home of clocks and sleeps.

Everything else takes a `Clock` as a component, so that the same code runs under a fake clock and in the simulator. Lint bans the
direct calls elsewhere (ruff TID251).
"""

import asyncio
import heapq
import itertools
import time
from typing import Final, Protocol

# A deadline must keep counting while a laptop sleeps; Linux names such a clock, elsewhere the monotonic clock comes closest.
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# A point in time, to be subtracted from another: for figures that people look at, never for a decision.
stopwatch_ns: Final = time.perf_counter_ns


def wall_ns() -> int:
    """The wall clock in nanoseconds, for spans that other programs show beside their own."""
    return time.time_ns()


class Clock(Protocol):
    """Where a component gets the time from."""

    def now_ms(self) -> int:
        """Wall clock, for people and records. Never for deadlines: it may step."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds on a clock that never steps back and runs through suspend. For deadlines."""
        ...

    async def sleep_ms(self, duration_ms: float) -> None:
        """Return after `duration_ms` on the boot clock."""
        ...


class RealClock:
    """The host's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000

    async def sleep_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(max(0.0, duration_ms) / 1000)


class SteadyClock:
    """A clock whose wall does not step: the wall clock of another one as it was when this was made, and the time since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.now_ms() - clock.boot_ms()

    def now_ms(self) -> int:
        return self._clock.boot_ms() + self._ahead_ms

    def boot_ms(self) -> int:
        return self._clock.boot_ms()

    async def sleep_ms(self, duration_ms: float) -> None:
        await self._clock.sleep_ms(duration_ms)


class FakeClock:
    """A clock that a test moves. Sleepers wake in the order of their deadlines."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_offset_ms = now_ms
        self._boot_ms = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._wall_offset_ms + self._boot_ms

    def boot_ms(self) -> int:
        return self._boot_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._boot_ms + max(0, round(duration_ms)), next(self._order), wake))
        await wake

    def advance_ms(self, duration_ms: int) -> None:
        """Move both clocks forward and wake every sleeper whose deadline has passed."""
        until_ms = self._boot_ms + duration_ms
        while self._sleepers and self._sleepers[0][0] <= until_ms:
            at_ms, _, wake = heapq.heappop(self._sleepers)
            self._boot_ms = max(self._boot_ms, at_ms)
            if not wake.done():
                wake.set_result(None)
        self._boot_ms = until_ms

    async def run_for_ms(self, duration_ms: int, *, step_ms: int = 100) -> None:
        """Advance in steps and let the tasks that woke run in between."""
        until_ms = self._boot_ms + duration_ms
        while self._boot_ms < until_ms:
            self.advance_ms(min(step_ms, until_ms - self._boot_ms))
            for _ in range(20):  # a woken task often wakes another; twenty turns settle the deepest chain we have
                await asyncio.sleep(0)

    def step_wall_ms(self, by_ms: int) -> None:
        """Step the wall clock, as an operator or NTP may; deadlines are not affected."""
        self._wall_offset_ms += by_ms
