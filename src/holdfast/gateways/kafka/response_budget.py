"""The memory of responses, over all connections: those that clients have not read, and those that are being read for them.

A fetch takes room before it is answered (`take`), and waits for it if there is none; room comes back as clients read. While one
waits, a connection that has read next to nothing for `unread_ms` is closed, the slowest first. Responses that cannot wait are only
counted: if they exceed the limit, the slowest connection is closed at once, whatever it has read.

Transports do not tell when they have sent something, so sizes are looked at (`refresh`): when there is no room, and in a sweep.
Until then they count as they were written. Time is an argument.
"""

import asyncio
from typing import Final, Protocol

from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.tasks import Notify

SMALL_BYTES: Final = 64 * KIB  # responses up to this size do not wait for room: a few records are always answered
COUNTED_BYTES_MIN: Final = 4 * KIB  # a connection that holds less is not worth the count
_PROGRESS_BYTES: Final = 16 * KIB  # less in `unread_ms` is not reading
_REFRESH_MS: Final = (
    5  # looking at thousands of connections for every one of thousands of fetches would be all that is done
)


class RespondingConnection(Protocol):
    """A connection that may hold responses."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that its client has not read."""
        ...

    def close_unread(self, reason: str) -> None:
        """Close at once: others need the memory."""
        ...


class _Unread:
    """What a connection holds. `progress_from`: the size from which its client has to read on to count as reading."""

    __slots__ = ("progress_from", "progressed_at_ms", "size")

    def __init__(self, now_ms: float) -> None:
        self.size = self.progress_from = 0
        self.progressed_at_ms = now_ms

    def added(self, size: int) -> None:
        """A response was written, and now so much is unsent."""
        self.progress_from += max(0, size - self.size)
        self.size = size

    def looked_at(self, size: int, now_ms: float) -> None:
        """So much is unsent now."""
        self.size = size
        if size <= self.progress_from - _PROGRESS_BYTES:
            self.progress_from, self.progressed_at_ms = size, now_ms


class ResponseBudget:
    """The memory of responses of one node."""

    def __init__(self, *, bytes_max: int, unread_ms: int) -> None:
        self.bytes_max = bytes_max
        self.closed = 0  # connections, for what they did not read
        self.wanted = Notify()  # there is not enough room: `relieve`
        self._unread_ms = unread_ms
        self._unread: dict[RespondingConnection, _Unread] = {}
        self._unsent_bytes = 0
        self._taken_bytes = 0
        self._refreshed_at_ms = 0.0
        self._waiting: dict[asyncio.Future[None], int] = {}  # for so many bytes, in order

    @property
    def used_bytes(self) -> int:
        """Unread responses, as far as is known, and room that was taken."""
        return self._unsent_bytes + self._taken_bytes

    def take(self, size: int, now_ms: float) -> bool:
        """Take room for a response; False: there is none."""
        if self.used_bytes + size > self.bytes_max and now_ms - self._refreshed_at_ms >= _REFRESH_MS:
            self.refresh(now_ms)
        if self.used_bytes + size > max(self.bytes_max, size):  # one alone always fits
            return False
        self._taken_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """What was taken is not needed, or counts as unread from now on."""
        self._taken_bytes -= size
        if self._waiting:
            self._wake()

    async def wait_for_room(self, size: int, wait_s: float) -> bool:
        """Whether there is room within `wait_s`. It may be gone again: take it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.resolve_with_room(size, waiter)
        try:
            async with asyncio.timeout(wait_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            self.forget(waiter)
        return True

    def resolve_with_room(self, size: int, waiter: "asyncio.Future[None]") -> None:
        """Resolve `waiter` once there is room for `size`."""
        self._waiting[waiter] = size
        self.wanted.notify()

    def forget(self, waiter: "asyncio.Future[None]") -> None:
        """It no longer waits for room."""
        self._waiting.pop(waiter, None)

    def written(self, connection: RespondingConnection, unsent_bytes: int, now_ms: float) -> None:
        """A response was written to the connection, which holds so much now."""
        unread = self._unread.get(connection)
        if unread is None:
            if not unsent_bytes:
                return
            unread = self._unread[connection] = _Unread(now_ms)
        self._unsent_bytes += unsent_bytes - unread.size
        unread.added(unsent_bytes)
        if self.used_bytes > self.bytes_max:
            self.wanted.notify()

    def left(self, connection: RespondingConnection) -> None:
        """The connection is closed."""
        unread = self._unread.pop(connection, None)
        if unread is not None:
            self._unsent_bytes -= unread.size
            self._wake()

    def unread_since_ms(self, connection: RespondingConnection) -> float | None:
        """Since when the client has read next to nothing of what is there for it; None: nothing is there."""
        unread = self._unread.get(connection)
        return None if unread is None else unread.progressed_at_ms

    def refresh(self, now_ms: float) -> None:
        """Look at what every connection holds."""
        self._refreshed_at_ms = now_ms
        for connection, unread in list(self._unread.items()):
            size = connection.unsent_bytes
            self._unsent_bytes += size - unread.size
            unread.looked_at(size, now_ms)
            if not size:
                del self._unread[connection]
        if self._waiting:
            self._wake()

    def relieve(self, now_ms: float) -> bool:
        """Go back to the limit, and make room for who waits, if it can be had; whether anybody still waits."""
        self.refresh(now_ms)
        self._close_slowest(self.bytes_max, now_ms, spared_from_ms=now_ms)
        if self._waiting:
            size = next(iter(self._waiting.values()))
            self._close_slowest(self.bytes_max - size, now_ms, spared_from_ms=now_ms - self._unread_ms)
            self._wake()
        return bool(self._waiting)

    def _close_slowest(self, bytes_max: int, now_ms: float, *, spared_from_ms: float) -> None:
        """Close connections until no more than `bytes_max` are used; not those that have read since `spared_from_ms`."""
        if self.used_bytes <= bytes_max:
            return
        slowest = sorted(self._unread.items(), key=lambda each: (each[1].progressed_at_ms, -each[1].size))
        for connection, unread in slowest:
            if self.used_bytes <= bytes_max or unread.progressed_at_ms > spared_from_ms:
                return
            self.closed += 1
            reason = (
                f"{unread.size} bytes of responses unread for {now_ms - unread.progressed_at_ms:.0f} ms, "
                f"{self.used_bytes} of at most {self.bytes_max} bytes in use"
            )
            self.left(connection)
            connection.close_unread(reason)

    def _wake(self) -> None:
        """Wake who waits, in order, as far as there is room."""
        room = self.bytes_max - self.used_bytes
        while self._waiting:
            waiter, size = next(iter(self._waiting.items()))
            if size > room and self.used_bytes:
                return
            room -= size
            del self._waiting[waiter]
            if not waiter.done():
                waiter.set_result(None)
