"""Back-pressure by bytes: an append that would put too much in flight waits, first come, first served.

The one rule: a caller appends right after `wait` returns, without awaiting in between; then the limit holds without reservations.
"""

import asyncio
from collections import deque


class InFlightLimit:
    """Counts the bytes that are not yet durable."""

    def __init__(self, bytes_max: int) -> None:
        self.in_flight_bytes = 0
        self.stalls = 0
        self._bytes_max = bytes_max
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None

    def enter(self, size: int) -> None:
        """`size` bytes more are in flight."""
        self.in_flight_bytes += size

    def leave(self, size: int) -> None:
        """`size` bytes are durable, or refused."""
        self.in_flight_bytes -= size
        self._wake()

    def fits(self, size: int) -> bool:
        """Whether `size` bytes more are allowed. A lone append always is, however large."""
        return not self.in_flight_bytes or self.in_flight_bytes + size <= self._bytes_max

    def is_free(self, size: int) -> bool:
        """Whether `size` bytes fit and no append waits."""
        return not self._waiters and self.fits(size)

    async def wait(self, size: int) -> None:
        """Return when `size` bytes fit; raise what `shut` was given if they never will."""
        if self._error is not None:
            raise self._error
        if self.is_free(size):
            return
        self.stalls += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (size, waiter)
        self._waiters.append(place)
        try:
            await waiter
        finally:
            if place in self._waiters:
                self._waiters.remove(place)
            # After the caller's append, not before: only then is known whether the next one fits.
            asyncio.get_running_loop().call_soon(self._wake)

    def shut(self, error: Exception) -> None:
        """Nothing fits any more."""
        self._error = error
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _wake(self) -> None:
        # One at a time: the next is woken when this one has appended.
        if self._waiters and not self._waiters[0][1].done() and self.fits(self._waiters[0][0]):
            self._waiters[0][1].set_result(None)
