"""Requests that name much, partitions by the thousand: read and encoded on a thread, handled in turns of the event loop.

The one rule: whatever a request names, it holds up the loop no longer than a small one. What is small is done at once, where it is
faster. What large requests take of memory, far more than their bytes, is bounded by how many are handled at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.kafka.codec import decode, encode
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.tasks import LoopTurns

if TYPE_CHECKING:
    from holdfast.gateways.kafka.api import RequestContext

T = TypeVar("T")

SMALL_BYTES: Final = 16 * KIB  # of a request
_SMALL_ENTRIES: Final = 300  # of a response: each takes up to 10 µs


class LargeRequests:
    """Those of one node. `turns` are theirs: one of them goes on in each turn of the loop."""

    def __init__(self, *, entries_max: int, concurrency_max: int) -> None:
        self.turns = LoopTurns()
        self.entries_max = entries_max
        self._slots = asyncio.Semaphore(concurrency_max)
        self._thread: ThreadPoolExecutor | None = None

    @asynccontextmanager
    async def slot(self, call: "RequestContext", body: memoryview) -> AsyncIterator[None]:
        """One of the places for large requests, for the body or until `leave`; small ones need none."""
        if len(body) <= SMALL_BYTES:
            yield
            return
        with _not_begun(call):
            await self._slots.acquire()
        call.has_slot = True
        try:
            yield
        finally:
            self.leave(call)

    def leave(self, call: "RequestContext") -> None:
        """Leave its place, if it has one, to others: it has ended, or waits for what they may not need."""
        if call.has_slot:
            call.has_slot = False
            self._slots.release()

    async def decode(self, call: "RequestContext", body: memoryview) -> Any:
        """See `codec.decode`."""
        return await self.read(
            call, body, partial(decode, call.api.key, call.version, body, entries_max=self.entries_max)
        )

    async def encode(self, key: int, version: int, response: Mapping[str, object]) -> bytes:
        """See `codec.encode`."""
        return await self.run(
            partial(encode, key, version, response), large=_entries_left(response, _SMALL_ENTRIES) < 0
        )

    async def read(self, call: "RequestContext", body: memoryview, work: Callable[[], T]) -> T:
        """The result of reading a request. Raises what it raises."""
        if len(body) <= SMALL_BYTES:
            return work()
        with _not_begun(call):
            return await self.run(work, large=True)

    async def run(self, work: Callable[[], T], *, large: bool) -> T:
        """The result of `work`, which touches nothing that belongs to the loop. Raises what it raises."""
        if not large:
            return work()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-requests")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _not_begun(call: "RequestContext") -> Iterator[None]:
    call.begun = False
    try:
        yield
    finally:
        call.begun = True


def _entries_left(value: object, left: int) -> int:
    """What is left of so many entries after those in `value`; negative: not enough."""
    if isinstance(value, Mapping):
        for each in value.values():
            if isinstance(each, (list, tuple)):
                left = _entries_left(each, left)
    elif isinstance(value, (list, tuple)):
        left -= len(value)
        for each in value if left >= 0 else ():
            if not isinstance(each, Mapping):
                break  # numbers or names: the others are, too
            left = _entries_left(each, left)
            if left < 0:
                break
    return left
