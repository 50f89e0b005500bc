"""Reads for fetches that need object storage or the store: side by side, shared, and not lost when their fetch is answered first.

A fetch answers with what is ready. A read that is not goes on, and the next fetch of the same offset finds it, under way or done.
Their number is limited, and what they hold counts as responses do, up to half of what these may hold: an outage of object storage
leaves the other half to what is in memory. One that no fetch has waited for in a while is cancelled, with what it has read.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from holdfast.gateways.kafka.response_budget import ResponseBudget


class Sized(Protocol):
    """What is read."""

    size: int


T = TypeVar("T", bound=Sized)


class RemoteRead(Generic[T]):
    """One read. `fetches`: how many wait for it; `taken_bytes`: what it may read, or has read."""

    __slots__ = ("expiry", "fetches", "key", "taken_bytes", "task")

    def __init__(self, key: Hashable, task: "asyncio.Task[T]", taken_bytes: int) -> None:
        self.key, self.task, self.taken_bytes = key, task, taken_bytes
        self.fetches = 0
        self.expiry: asyncio.TimerHandle | None = None


class RemoteReads(Generic[T]):
    """The reads of one node, by what they read."""

    def __init__(self, *, count_max: int, kept_ms: int, budget: ResponseBudget) -> None:
        self._count_max, self._kept_s, self._budget = count_max, kept_ms / 1000, budget
        self._reads: dict[Hashable, RemoteRead[T]] = {}
        self._taken_bytes = 0
        self._waiting: dict[asyncio.Future[None], None] = {}  # for room, in order
        self.begun = 0  # since the start

    def __len__(self) -> int:
        return len(self._reads)

    def has_room(self, bytes_max: int) -> bool:
        """Whether there may be another read, of so many bytes."""
        return len(self._reads) < self._count_max and (
            self._taken_bytes + bytes_max <= self._budget.bytes_max // 2 or not self._taken_bytes
        )

    def resolve_with_room(self, waiter: "asyncio.Future[None]") -> None:
        """Resolve `waiter` once a read has given room back."""
        self._waiting[waiter] = None

    def stop_waiting(self, waiter: "asyncio.Future[None]") -> None:
        """It no longer waits for room."""
        self._waiting.pop(waiter, None)

    def find(self, key: Hashable) -> RemoteRead[T] | None:
        """The read of this, under way or done."""
        return self._reads.get(key)

    def begin(
        self, key: Hashable, reading: Callable[[], Coroutine[Any, Any, T]], bytes_max: int, now_ms: float
    ) -> RemoteRead[T] | None:
        """Read this; None: there are too many that somebody waits for, or there is no room for `bytes_max`."""
        while not self.has_room(bytes_max):
            unwanted = next((each for each in self._reads.values() if not each.fetches), None)
            if unwanted is None:
                return None
            self._drop(unwanted)
        if not self._budget.take(bytes_max, now_ms):
            return None
        self._taken_bytes += bytes_max
        read = self._reads[key] = RemoteRead(key, asyncio.ensure_future(reading()), bytes_max)
        read.task.add_done_callback(lambda _: self._done(read))
        self.begun += 1
        return read

    def join(self, read: RemoteRead[T]) -> None:
        """A fetch waits for this read."""
        read.fetches += 1
        if read.expiry is not None:
            read.expiry.cancel()
            read.expiry = None

    def leave(self, read: RemoteRead[T]) -> None:
        """A fetch waits no longer. The next one may join, for a while."""
        read.fetches -= 1
        if not read.fetches and self._reads.get(read.key) is read:
            read.expiry = asyncio.get_running_loop().call_later(self._kept_s, self._drop, read)

    def result(self, read: RemoteRead[T]) -> T:
        """What was read; it stays for others until it is forgotten. Raises what the read raised, once."""
        try:
            return read.task.result()
        except BaseException:
            self.forget(read)
            raise

    def forget(self, read: RemoteRead[T]) -> None:
        """What was read is answered: the next fetch reads anew."""
        if self._reads.get(read.key) is read:
            del self._reads[read.key]
            self._give_back(read, read.taken_bytes)
        if read.expiry is not None:
            read.expiry.cancel()
            read.expiry = None

    async def close(self) -> None:
        """Cancel every read."""
        reads = list(self._reads.values())
        for read in reads:
            self._drop(read)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*(read.task for read in reads), return_exceptions=True)

    def _drop(self, read: RemoteRead[T]) -> None:
        self.forget(read)
        read.task.cancel()

    def _done(self, read: RemoteRead[T]) -> None:
        """What was taken and not read is given back. A read that nobody takes may fail without a word."""
        failed = read.task.cancelled() or read.task.exception() is not None
        if self._reads.get(read.key) is read:
            size = 0 if failed else read.task.result().size
            self._give_back(read, read.taken_bytes - size)

    def _give_back(self, read: RemoteRead[T], size: int) -> None:
        read.taken_bytes -= size
        self._taken_bytes -= size
        self._budget.give_back(size)
        if self._waiting:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            if not waiter.done():
                waiter.set_result(None)
