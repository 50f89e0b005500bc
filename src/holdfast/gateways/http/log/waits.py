"""Reads that wait for records: how many there may be, and for how long somebody is there to get them.

The one rule: what waits takes no place of a request that works. It is counted apart (`http.waits_max`), and ends when its client
has gone or the server stops.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.vocabulary.errors import UnavailableError

T = TypeVar("T")
Receive = Callable[[], Awaitable[Mapping[str, object]]]


class Waits:
    """The waits of one node."""

    def __init__(self, counters: RequestCounters, *, count_max: int, stop: asyncio.Event) -> None:
        self._counters, self._count_max, self._stop = counters, count_max, stop

    @contextmanager
    def counted(self) -> Iterator[None]:
        """The body waits."""
        self._counters.waiting += 1
        try:
            yield
        finally:
            self._counters.waiting -= 1

    async def run(
        self,
        read: Coroutine[Any, Any, T],
        receive: Receive,
        ended: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> T | None:
        """What `read` returns; None: nobody waits for it any more, or may. `UnavailableError`: too many wait."""
        if self._counters.waiting >= self._count_max:
            read.close()
            raise UnavailableError("wait", f"{self._count_max} reads wait, which is the limit (http.waits_max)")
        with self.counted():
            reading = asyncio.ensure_future(read)
            ends = [asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(self._stop.wait())]
            if ended is not None:
                ends.append(asyncio.ensure_future(ended()))
            try:
                await asyncio.wait((reading, *ends), return_when=asyncio.FIRST_COMPLETED)
                return reading.result() if reading.done() else None
            finally:
                for each in (reading, *ends):
                    each.cancel()
                await asyncio.gather(reading, *ends, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
