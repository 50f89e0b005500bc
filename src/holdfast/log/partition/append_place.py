"""The order of a partition's appends.

A task that is to append begins a turn of the loop after it was made; what arrives in between must not be appended before it. So the
place is held when the batches arrive, and left when they have their offsets, or never will.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

_CALLED_TOGETHER_MAX: Final = 1024


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

    __slots__ = ("_locked", "_together", "_turns")

    def __init__(self) -> None:
        self._locked = False
        self._together = _CALLED_TOGETHER_MAX
        self._turns: list[asyncio.Future[None]] = []  # few: no deque, which is large

    def locked(self) -> bool:
        """Whether it is held."""
        return self._locked

    async def acquire(self) -> None:
        """Wait for all who came before."""
        if self._locked or self._turns:
            turn = _new_turn()
            self._turns.append(turn)
            try:
                await turn
                while self._locked or self._turns[0] is not turn:  # called early, and one before it took longer
                    self._together = 1
                    again = _new_turn()
                    self._turns[self._turns.index(turn)] = turn = again
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
        """One that was cancelled calls the one behind it when it notices.

        Several are called: most append without waiting, all in one turn of the loop. One a turn would be slower than requests come
        once a few of them wait, and then they would wait for ever. Where each waits, for room in the WAL, they are called one by
        one: to call all of them for each would take more time the more of them wait.
        """
        if not self._turns or self._turns[0].done():
            return  # those that were called go on
        for turn in self._turns[: self._together]:
            if not turn.done():
                turn.set_result(None)
        self._together = min(4 * self._together, _CALLED_TOGETHER_MAX)


def _new_turn() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()
