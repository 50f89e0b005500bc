"""How many partitions large Fetch requests name at a time: decoded they take up to thirty times their bytes, while they wait, too.

The one rule: nobody is refused, and nobody waits for records at the expense of others. A request for which there is no room waits
as the bytes that it came in, in line; meanwhile those that wait for records end early, the oldest first, with what they have.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class FetchRoom:
    """The partitions of large fetches of one node."""

    def __init__(self, partitions_max: int) -> None:
        self.partitions_max = self.left = partitions_max
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()
        self._waiting: dict[Callable[[], None], int] = {}  # for records: how to end it, and what it holds

    @asynccontextmanager
    async def taken(self, count: int) -> AsyncIterator[None]:
        """Room for so many partitions, for the body; for all there is, if they are more."""
        count = min(count, self.partitions_max)
        if self._line or count > self.left:
            await self._in_line(count)
        else:
            self.left -= count
        try:
            yield
        finally:
            self._give_back(count)

    def may_end(self, end: Callable[[], None], count: int) -> None:
        """A fetch of so many partitions waits for records; `end` is called if others need its room."""
        self._waiting[end] = min(count, self.partitions_max)
        self._make_way()

    def forget(self, end: Callable[[], None]) -> None:
        """It waits no more."""
        self._waiting.pop(end, None)

    async def _in_line(self, count: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = turn, count
        self._line.append(place)
        self._make_way()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(count)
            else:
                self._line.remove(place)
                self._serve()
            raise

    def _give_back(self, count: int) -> None:
        self.left += count
        self._serve()

    def _serve(self) -> None:
        while self._line and self._line[0][1] <= self.left:
            turn, count = self._line.popleft()
            if turn.cancelled():
                continue
            self.left -= count
            turn.set_result(None)
        self._make_way()

    def _make_way(self) -> None:
        """End as many as it takes for the first in line."""
        if not self._line:
            return
        wanted = self._line[0][1] - self.left
        while self._waiting and wanted > 0:
            end = next(iter(self._waiting))
            wanted -= self._waiting.pop(end)
            end()
