"""How many partitions fetches read at a time: decoded they take up to thirty times their bytes, while they wait, too.

The one rule: nobody is refused, and nobody waits for records at the expense of others. A request for which there is no room waits
in line, before it is decoded or its session's partitions are listed; meanwhile those that wait for records end early, the oldest
first, with what they have.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class FetchPlace:
    """The room that one fetch has."""

    def __init__(self, room: "FetchRoom", count: int) -> None:
        self._room, self.count = room, count
        self.ends = False  # it will soon give back its room

    def may_end(self, end: Callable[[], None]) -> None:
        """It waits for records; `end` is called if others need its room."""
        self._room.may_end(self, end)

    def forget(self) -> None:
        """It waits no more."""
        self._room.forget(self)


class FetchRoom:
    """The partitions of large fetches of one node."""

    def __init__(self, partitions_max: int) -> None:
        self.partitions_max = self.left = partitions_max
        self._ending = 0  # of what is taken: will soon be given back
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()
        self._waiting: dict[FetchPlace, Callable[[], None]] = {}  # for records, and how to end it

    @asynccontextmanager
    async def taken(self, count: int) -> AsyncIterator[FetchPlace]:
        """Room for so many partitions, for the body; for all there is, if they are more."""
        place = FetchPlace(self, min(count, self.partitions_max))
        if self._line or place.count > self.left:
            await self._in_line(place.count)
        else:
            self.left -= place.count
        try:
            yield place
        finally:
            if place.ends:
                self._ending -= place.count
            self._give_back(place.count)

    def may_end(self, place: FetchPlace, end: Callable[[], None]) -> None:
        """See `FetchPlace`."""
        self._waiting[place] = end
        self._make_way()

    def forget(self, place: FetchPlace) -> None:
        """See `FetchPlace`."""
        self._waiting.pop(place, None)

    async def _in_line(self, count: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, count))
        self._make_way()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(count)
            else:
                self._serve()
            raise

    def _give_back(self, count: int) -> None:
        self.left += count
        self._serve()

    def _serve(self) -> None:
        while self._line and (self._line[0][0].cancelled() or self._line[0][1] <= self.left):
            turn, count = self._line.popleft()
            if not turn.cancelled():
                self.left -= count
                turn.set_result(None)
        self._make_way()

    def _make_way(self) -> None:
        """End as many as it takes for the first in line."""
        if not self._line:
            return
        wanted = self._line[0][1] - self.left - self._ending
        while self._waiting and wanted > 0:
            place = next(iter(self._waiting))
            end = self._waiting.pop(place)
            place.ends = True
            self._ending += place.count
            wanted -= place.count
            end()
