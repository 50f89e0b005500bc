"""Requests that hold memory which others wait for, and make no progress. Time is an argument.

A request counts from its first bytes on, so that it can always be received as a whole; whoever announces a large one and sends no
more would hold up those of everybody else. So would whoever sends them where they have to wait: behind a long poll, in a pause for
a quota, or as a long poll themselves. Time in which nobody looked does not count: this process may have been busy, not the client.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from holdfast.vocabulary.settings import KIB

HELD_BYTES_MIN: Final = 4 * KIB  # less is not looked at: all connections together hold little of it
_PROGRESS_BYTES: Final = 16 * KIB  # less in `stalled_ms` is not sending
_LOOK_MS_MAX: Final = 200  # what one look counts at most


class HeldMemory(NamedTuple):
    """Memory of requests on which the server does not work.

    `filled`: how many bytes have arrived of one that is arriving; None: those that have arrived wait. `begun_at_ms`: when the
    first of them began.
    """

    size: int
    filled: int | None
    begun_at_ms: float


class ReceivingConnection(Protocol):
    """A connection whose requests may hold memory."""

    @property
    def held_memory(self) -> HeldMemory | None:
        """What its requests hold without work of this server; None: hardly anything, or work is done."""
        ...


class _Progress(NamedTuple):
    """What was here of a request, and since when."""

    begun_at_ms: float  # another one, however much of it is here, is progress
    filled: int  # -1: it waits
    since_ms: float


C = TypeVar("C", bound=ReceivingConnection)


class StalledRequests:
    """The requests of one node that hold memory, as they were looked at."""

    def __init__(self, stalled_ms: int) -> None:
        self._stalled_ms = stalled_ms
        self._looked_at_ms = self._time_ms = 0.0
        self._seen: WeakKeyDictionary[ReceivingConnection, _Progress] = WeakKeyDictionary()

    def find(self, connections: Collection[C], excess_bytes: int, now_ms: float) -> list[C]:
        """Those whose requests have stalled, as many as it takes to free `excess_bytes`.

        Requests that are not sent on come first, the slowest before others; then those that wait, the largest first.
        """
        self._time_ms += min(now_ms - self._looked_at_ms, _LOOK_MS_MAX)
        self._looked_at_ms = now_ms
        seen, self._seen = self._seen, WeakKeyDictionary()
        stalled: list[tuple[bool, float, int, C]] = []
        for connection in connections:
            held = connection.held_memory
            if held is None:
                continue
            size, begun_at_ms = held.size, held.begun_at_ms
            filled, waits = (-1, True) if held.filled is None else (held.filled, False)
            progress = seen.get(connection)
            if (
                progress is None
                or progress.begun_at_ms != begun_at_ms
                or not progress.filled <= filled < progress.filled + _PROGRESS_BYTES
            ):
                progress = _Progress(begun_at_ms, filled, self._time_ms)
            self._seen[connection] = progress
            if self._time_ms - progress.since_ms >= self._stalled_ms:
                stalled.append((waits, 0 if waits else progress.since_ms, size, connection))
        stalled.sort(key=lambda each: (*each[:2], -each[2]))
        found: list[C] = []
        for *_, size, connection in stalled:
            if excess_bytes < 0:
                break
            found.append(connection)
            excess_bytes -= size
        return found
