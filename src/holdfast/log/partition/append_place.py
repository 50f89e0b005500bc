"""The order of a partition's appends.

A task that is to append begins a turn of the loop after it was made; what arrives in between must not be appended before it. So the
place is held when the batches arrive, and left when they have their offsets, or never will.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType


class AppendPlace:
    """A place among the appends of a partition, held before the task that appends has begun."""

    def __init__(self, on_left: Callable[[], None]) -> None:
        self._on_left: Callable[[], None] | None = on_left

    def leave(self) -> None:
        """Once is enough."""
        on_left, self._on_left = self._on_left, None
        if on_left is not None:
            on_left()


class AppendOrder:
    """A lock: first come, first served, and nobody passes one that was cancelled before it has noticed.

    asyncio's lets a newcomer pass if all that wait are cancelled. Here one that gives up has to note its batches as missed first:
    what follows them would otherwise be out of order, and an idempotent producer start over with batches that did come.
    """

    __slots__ = ("_locked", "_turns")

    def __init__(self) -> None:
        self._locked = False
        self._turns: list[asyncio.Future[None]] = []  # few: no deque, which is large

    def locked(self) -> bool:
        """Whether it is held."""
        return self._locked

    async def acquire(self) -> None:
        """Wait for all who came before."""
        if self._locked or self._turns:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            try:
                await turn
            except BaseException:
                self._turns.remove(turn)
                if not self._locked:
                    self._call_next()
                raise
            del self._turns[0]
        self._locked = True

    def release(self) -> None:
        """The next one's turn."""
        self._locked = False
        self._call_next()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _call_next(self) -> None:
        """One that was cancelled calls the one behind it when it notices."""
        if self._turns and not self._turns[0].done():
            self._turns[0].set_result(None)
