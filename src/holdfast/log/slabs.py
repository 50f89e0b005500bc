"""Slabs: memory that is taken once, kept warm and used again, for bytes on their way from the network to the disk.

`take` hands out a whole slab as a memoryview; slices of it may go anywhere. The one rule: a slab comes back by itself when the last
view of it is gone, so live data is never overwritten and nothing has to be returned. That also means that a view of ten
bytes pins the whole slab, and the budget counts it so (docs/safety.md, rule 19): copy small things out.
"""

import asyncio
import mmap
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between
from holdfast.vocabulary.tracked_memory import anonymous_mmap, tracked_view

_ARENA_BYTES: Final = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabSettings:
    """Values an operator may tune."""

    slab_bytes: int = MIB
    bytes_max: int = 256 * MIB  # pinned and idle slabs together

    def __post_init__(self) -> None:
        check_between("slab_bytes", self.slab_bytes, 4 * KIB, 1024 * MIB)
        check_at_least("bytes_max", self.bytes_max, self.slab_bytes)


class _Slab:
    """A part of an arena."""

    __slots__ = ("arena", "at")

    def __init__(self, arena: mmap.mmap, at: int) -> None:
        self.arena, self.at = arena, at


class Slabs:
    """A budget of slabs. Views may be dropped on any thread; everything else is called on the loop's."""

    def __init__(self, settings: SlabSettings | None = None) -> None:
        self._settings = settings or SlabSettings()
        self._idle: deque[_Slab] = deque()
        self._fresh: list[_Slab] = []  # of the arena that was taken last
        self._lent: dict[_Slab, weakref.ref[object]] = {}
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
        """A slab of its own, not cleared; None if the budget is spent: `await room()`, then try again."""
        if self._idle:
            slab = self._idle.pop()  # the one used last is warmest
        elif self._has_room():
            slab = self._make()
        else:
            return None
        return self._lend(slab)

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

    def _make(self) -> "_Slab":
        """A new slab. They come from arenas, so that large pages serve several."""
        size = self._settings.slab_bytes
        if not self._fresh:
            arena = anonymous_mmap(max(_ARENA_BYTES // size, 1) * size)
            self._fresh = [_Slab(arena, at) for at in range(0, len(arena), size)]
        self._made += 1
        return self._fresh.pop()

    def _lend(self, slab: "_Slab") -> memoryview:
        size = self._settings.slab_bytes
        view, self._lent[slab] = tracked_view(slab.arena, lambda _: self._came_back(slab), at=slab.at, size=size)
        return view

    def _came_back(self, slab: "_Slab") -> None:
        """On whichever thread dropped the last view."""
        self._idle.append(slab)
        del self._lent[slab]
        if self._waiters and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there are no waiters
                self._loop.call_soon_threadsafe(self._wake)
