"""Reading ahead: what a reader that goes through a partition will ask for next is read while its last answer is on its way.

The one rule: it is a guess, and costs nothing but a read. It is made only for who reads on where a read ended, there are at most so
many at a time, and one that was not used for a while gives way to the next, with what it read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_STALE_S: Final = 2.0


class ReadPosition(NamedTuple):
    """A place to read from."""

    topic_id: str
    number: int
    offset: int


class _Prefetch(Generic[T]):
    """A read that was begun, or what is left of one; `end` is where it ends, once that is known."""

    __slots__ = ("begun_at", "end", "read")

    def __init__(self, read: "asyncio.Future[T]") -> None:
        self.read = read
        self.begun_at = read.get_loop().time()
        self.end: int | None = None


class ReadAhead(Generic[T]):
    """Guesses of one process."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._expected: OrderedDict[ReadPosition, None] = OrderedDict()  # where reads ended
        self._guesses: OrderedDict[ReadPosition, _Prefetch[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._guesses)

    async def take(self, spot: ReadPosition) -> T | None:
        """What was read for this spot, when it is; None: nothing was, or it failed."""
        guess = self._guesses.pop(spot, None)
        if guess is None:
            return None
        if not guess.read.done():
            await asyncio.wait((guess.read,))
        return None if guess.read.cancelled() or guess.read.exception() is not None else guess.read.result()

    def peek(self, spot: ReadPosition) -> T | None:
        """What was read for this spot, if it is there already; it stays."""
        guess = self._guesses.get(spot)
        if guess is None or not guess.read.done() or guess.read.cancelled() or guess.read.exception() is not None:
            return None
        return guess.read.result()

    def discard(self, spot: ReadPosition) -> None:
        """What was read for this spot is used."""
        self._guesses.pop(spot, None)

    def put_back(self, spot: ReadPosition, rest: T) -> None:
        """What was read and not asked for yet begins here."""
        kept: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        kept.set_result(rest)
        self._keep(spot, _Prefetch(kept))

    def continues(self, spot: ReadPosition) -> bool:
        """Whether a read ended at this spot; asked once."""
        return self._expected.pop(spot, True) is None

    def expect(self, spot: ReadPosition) -> None:
        """A read ended here."""
        self._expected[spot] = None
        while len(self._expected) > self._count_max:
            self._expected.popitem(last=False)

    def begin(self, spot: ReadPosition, reading: Coroutine[Any, Any, T]) -> None:
        """Read on from here."""
        if spot in self._guesses or not self._has_room():
            reading.close()
            return
        read = asyncio.ensure_future(reading)
        read.add_done_callback(_seen)
        self._keep(spot, _Prefetch(read))

    def ends(self, spot: ReadPosition, end: int) -> None:
        """The read that was begun for this spot ends there."""
        if (guess := self._guesses.get(spot)) is not None:
            guess.end = end

    def end_of(self, spot: ReadPosition) -> int | None:
        """Where what is read for this spot ends: at the spot while that is not known; None: nothing is read for it."""
        guess = self._guesses.get(spot)
        if guess is None:
            return None
        return spot.offset if guess.end is None else guess.end

    async def close(self) -> None:
        """Drop every guess."""
        reads = [guess.read for guess in self._guesses.values()]
        self._guesses.clear()
        for read in reads:
            read.cancel()
        if reads:
            await asyncio.wait(reads)

    def _has_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        while len(self._guesses) >= self._count_max and self._guesses:
            spot, oldest = next(iter(self._guesses.items()))
            if now - oldest.begun_at < _STALE_S:
                return False  # its reader is about to read it itself
            del self._guesses[spot]
            oldest.read.cancel()
        return len(self._guesses) < self._count_max

    def _keep(self, spot: ReadPosition, guess: _Prefetch[T]) -> None:
        self._guesses[spot] = guess
        while len(self._guesses) > 2 * self._count_max:  # what is put back is there already, and needs no room
            self._guesses.popitem(last=False)[1].read.cancel()


def _seen(read: "asyncio.Future[Any]") -> None:
    """A failed read ahead is ignored: a reader that needs the bytes reads again, and gets the error."""
    if not read.cancelled():
        read.exception()
