"""Reading ahead: what a reader that goes through a segment will ask for next is read while its last answer is on its way.

The one rule: it is a guess, and costs nothing but a read. It is made only for who reads on where a read ended, there are at most so
many at a time, and one that nobody comes for is dropped with what it read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Spot(NamedTuple):
    """A place in a segment: the object, where the segment begins in it, and the offset to read from."""

    object: str
    start: int
    offset: int


class ReadAhead(Generic[T]):
    """Guesses of one process."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._expected: OrderedDict[Spot, None] = OrderedDict()  # where reads ended
        self._guesses: OrderedDict[Spot, asyncio.Task[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._guesses)

    def take(self, spot: Spot) -> "asyncio.Task[T] | None":
        """The read that was begun for this spot, if there is one."""
        return self._guesses.pop(spot, None)

    def continues(self, spot: Spot) -> bool:
        """Whether a read ended at this spot; asked once."""
        return self._expected.pop(spot, True) is None

    def expect(self, spot: Spot) -> None:
        """A read ended here."""
        self._expected[spot] = None
        while len(self._expected) > self._count_max:
            self._expected.popitem(last=False)

    def begin(self, spot: Spot, reading: Coroutine[Any, Any, T]) -> None:
        """Read on from here."""
        if spot in self._guesses or not self._count_max:
            reading.close()
            return
        guess = asyncio.ensure_future(reading)
        guess.add_done_callback(_seen)
        self._guesses[spot] = guess
        while len(self._guesses) > self._count_max:
            self._guesses.popitem(last=False)[1].cancel()

    async def close(self) -> None:
        """Drop every guess."""
        guesses = list(self._guesses.values())
        self._guesses.clear()
        for guess in guesses:
            guess.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*guesses, return_exceptions=True)


def _seen(guess: "asyncio.Task[Any]") -> None:
    """A guess that failed and that nobody came for harms nobody: whoever needs the bytes reads again, and is told."""
    if not guess.cancelled():
        guess.exception()
