"""A watermark: an offset that only grows, and what waits for it to be reached.

It does not track durability: its owner sets it.
"""

import asyncio
import heapq
from typing import Final

from holdfast.log.model import OnDurable
from holdfast.vocabulary.clock import Clock

_SWEEP_MIN: Final = 64


class ReachedCallback:
    """A callback that waits for a watermark. It is called once, or cancelled."""

    __slots__ = ("_mark", "_on_durable", "_value")

    def __init__(self, mark: "Watermark", value: int, on_durable: OnDurable) -> None:
        self._mark, self._value = mark, value
        self._on_durable: OnDurable | None = on_durable

    def __call__(self, error: BaseException | None) -> None:
        on_durable, self._on_durable = self._on_durable, None
        if on_durable is not None:
            on_durable(error)

    def cancel(self) -> None:
        """Nobody waits any more: let go of what the callback holds."""
        if self._on_durable is not None:
            self._on_durable = None
            self._mark.forget(self._value)

    def done(self) -> bool:
        """Whether it was called or cancelled."""
        return self._on_durable is None


class Watermark:
    """An offset and its waiters."""

    __slots__ = (
        "_gone",
        "_turn",
        "_waiters",
        "value",
    )

    def __init__(self, value: int) -> None:
        self.value = value
        self._turn = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None] | ReachedCallback]] = []  # a heap
        self._gone = 0  # waiters that gave up and are still in the heap

    def set(self, value: int) -> None:
        """Advance to `value`, if that is further than before."""
        if value <= self.value:
            return
        self.value = value
        while self._waiters and self._waiters[0][0] <= self.value:
            waiter = heapq.heappop(self._waiters)[2]
            if waiter.done():
                self._gone = max(0, self._gone - 1)
            elif isinstance(waiter, ReachedCallback):
                waiter(None)
            else:
                waiter.set_result(None)

    def fail_above(self, value: int, error: BaseException) -> None:
        """Fail every waiter for more than `value` with `error`."""
        failed = [each for each in self._waiters if each[0] > value]
        self._waiters = [each for each in self._waiters if each[0] <= value and not each[2].done()]
        heapq.heapify(self._waiters)
        self._gone = 0
        for _, _, waiter in failed:
            if isinstance(waiter, ReachedCallback):
                # Later in the loop: the callback must not run while the owner is still undoing appends.
                asyncio.get_running_loop().call_soon(waiter, error)
            elif not waiter.done():
                waiter.set_exception(error)

    def on_reached(self, value: int, on_durable: OnDurable) -> ReachedCallback | None:
        """Call `on_durable` with None once `value` is reached (now, if it is: None), or with the error of `fail_above`."""
        if self.value < value:
            waiter = ReachedCallback(self, value, on_durable)
            self._push(value, waiter)
            return waiter
        on_durable(None)
        return None

    async def reaches(self, value: int) -> None:
        """Return once `value` is reached; raises the error of `fail_above`."""
        if self.value < value:
            await self._wait(value, None)

    async def reaches_within(self, value: int, clock: Clock, wait_ms: float) -> bool:
        """Whether `value` is reached within `wait_ms`; raises the error of `fail_above`."""
        if self.value < value and wait_ms > 0:
            # The sleeping task is cancelled, not awaited: awaiting it here could swallow our own cancellation.
            sleep = asyncio.ensure_future(clock.sleep_ms(wait_ms))
            try:
                await self._wait(value, sleep)
            finally:
                sleep.cancel()
        return self.value >= value

    def resolve_at(self, value: int, waiter: "asyncio.Future[None]") -> None:
        """Resolve `waiter` once `value` is reached, or fail it. Several watermarks may share it: the first counts."""
        if self.value < value:
            self._push(value, waiter)
        elif not waiter.done():
            waiter.set_result(None)

    def forget(self, value: int) -> None:
        """A waiter for `value` has stopped waiting."""
        if self.value < value:
            self._gave_up()

    def _push(self, value: int, waiter: asyncio.Future[None] | ReachedCallback) -> None:
        self._turn += 1  # those for one offset are woken in the order in which they came
        heapq.heappush(self._waiters, (value, self._turn, waiter))

    async def _wait(self, value: int, sleep: asyncio.Future[None] | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._push(value, waiter)

        def wake(_: asyncio.Future[None]) -> None:
            if not waiter.done():
                waiter.set_result(None)

        if sleep is not None:
            sleep.add_done_callback(wake)
        try:
            await waiter
        finally:
            if self.value < value:
                self._gave_up()

    def _gave_up(self) -> None:
        """A quiet partition with many long polls must not collect those that ended without news."""
        self._gone += 1
        if self._gone >= _SWEEP_MIN and self._gone * 2 > len(self._waiters):
            self._waiters = [each for each in self._waiters if not each[2].done()]
            heapq.heapify(self._waiters)
            self._gone = 0
