"""Slabs: memory that is taken once, kept warm and used again, for bytes on their way from the network to the disk.

`take` hands out a whole slab as a memoryview; slices of it may go anywhere. The one rule: a slab comes back by itself when the last
view of it is gone, so live data is never overwritten and nobody has to give anything back. That also means that a view of ten
bytes pins the whole slab, and the budget counts it so (SAFETY 19): copy small things out.
"""

import asyncio
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from holdfast.vocabulary.lending import lend
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabSettings:
    """Values an operator may tune."""

    slab_bytes: int = MIB
    bytes_max: int = 256 * MIB  # pinned and idle slabs together

    def __post_init__(self) -> None:
        check_between("slab_bytes", self.slab_bytes, 4 * KIB, 1024 * MIB)
        check_at_least("bytes_max", self.bytes_max, self.slab_bytes)


class Slabs:
    """A budget of slabs. Views may be dropped on any thread; everything else is called on the loop's."""

    def __init__(self, settings: SlabSettings | None = None) -> None:
        self._settings = settings or SlabSettings()
        self._idle: deque[bytearray] = deque()
        self._lent: dict[int, weakref.ref[object]] = {}
        self._made = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def bytes_max(self) -> int:
        """The budget."""
        return self._settings.bytes_max

    @property
    def pinned_bytes(self) -> int:
        """What is in use, whole slabs counted."""
        return len(self._lent) * self._settings.slab_bytes

    @property
    def idle_bytes(self) -> int:
        """What is kept warm for the next `take`."""
        return len(self._idle) * self._settings.slab_bytes

    def take(self) -> memoryview | None:
        """A slab nobody else sees, with whatever was in it; None if the budget is spent: `await room()`, then ask again."""
        if self._idle:
            memory = self._idle.pop()  # the one used last is warmest
        elif self._has_room():
            # Repeating writes every page now, so that no page fault comes while data is being received.
            memory = bytearray(b"\0") * self._settings.slab_bytes
            self._made += 1
        else:
            return None
        return self._lend(memory)

    async def room(self) -> None:
        """Return when `take` succeeds, first come, first served. Take right afterwards, without awaiting in between."""
        if self._has_room() and not self._waiters:
            return
        loop = self._loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        loop.call_soon(self._wake)  # a view may have been dropped on another thread since the look above
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            loop.call_soon(self._wake)  # after this one took its slab: perhaps there is one for the next

    def _has_room(self) -> bool:
        return bool(self._idle) or (self._made + 1) * self._settings.slab_bytes <= self._settings.bytes_max

    def _wake(self) -> None:
        if self._waiters and not self._waiters[0].done() and self._has_room():
            self._waiters[0].set_result(None)

    def _lend(self, memory: bytearray) -> memoryview:
        key = id(memory)
        view, self._lent[key] = lend(memory, lambda _: self._came_back(key, memory))
        return view

    def _came_back(self, key: int, memory: bytearray) -> None:
        """On whichever thread dropped the last view."""
        self._idle.append(memory)
        del self._lent[key]
        if self._waiters and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake)
