"""Single flight: concurrent callers of the same work share one execution."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiters = 0


class SingleFlight(Generic[T]):
    """Running work, by name."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}
        self.joined = 0  # callers that found the work running

    async def join(self, name: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`, started now or by an earlier caller. It is cancelled with its last waiter."""
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda _: self._remove(name, flight))
        else:
            self.joined += 1
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._remove(name, flight)  # at once: no caller may join cancelled work
                flight.task.cancel()
                await asyncio.wait({flight.task})

    def _remove(self, name: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(name) is flight:
            del self._flights[name]
