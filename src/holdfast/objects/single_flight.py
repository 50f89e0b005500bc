"""Flights: work that several callers want at the same time is done once for all of them."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiters = 0


class SingleFlight(Generic[T]):
    """Work under way, by name."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}
        self.joined = 0  # callers who found the work already under way

    async def join(self, name: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`, begun now or by an earlier caller. It is cancelled when its last waiter is."""
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda _: self._land(name, flight))
        else:
            self.joined += 1
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._land(name, flight)  # at once: nobody may join what is being cancelled
                flight.task.cancel()
                await asyncio.wait({flight.task})

    def _land(self, name: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(name) is flight:
            del self._flights[name]
