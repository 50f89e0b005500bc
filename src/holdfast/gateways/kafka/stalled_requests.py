"""Requests that have stopped arriving, while others wait for the memory that they hold. Time is an argument.

A request counts from its first bytes on, so that it can always be received as a whole; whoever announces a large one and sends no
more would hold up those of everybody else. Time in which nobody looked does not count: this process may have been busy, not the
client.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

_PROGRESS_BYTES: Final = 16 * 1024  # less in `stalled_ms` is not sending
_LOOK_MS_MAX: Final = 200  # what one look counts at most


class ArrivingRequest(NamedTuple):
    """A request of which `filled` bytes are here."""

    size: int
    filled: int
    begun_at_ms: float


class ReceivingConnection(Protocol):
    """A connection on which a request may be arriving."""

    @property
    def arriving(self) -> ArrivingRequest | None:
        """The request that its client should be sending; None: there is none."""
        ...


class _Progress(NamedTuple):
    """What was here of a request, and since when."""

    begun_at_ms: float  # another one, however much of it is here, is progress
    filled: int
    since_ms: float


C = TypeVar("C", bound=ReceivingConnection)


class StalledRequests:
    """The arriving requests of one node, as they were looked at."""

    def __init__(self, stalled_ms: int) -> None:
        self._stalled_ms = stalled_ms
        self._looked_at_ms = self._time_ms = 0.0
        self._seen: WeakKeyDictionary[ReceivingConnection, _Progress] = WeakKeyDictionary()

    def find(self, connections: Collection[C], excess_bytes: int, now_ms: float) -> list[C]:
        """Those whose requests have stalled, the slowest first, as many as it takes to free `excess_bytes`."""
        self._time_ms += min(now_ms - self._looked_at_ms, _LOOK_MS_MAX)
        self._looked_at_ms = now_ms
        seen, self._seen = self._seen, WeakKeyDictionary()
        stalled: list[tuple[float, int, C]] = []
        for connection in connections:
            arriving = connection.arriving
            if arriving is None:
                continue
            size, filled, begun_at_ms = arriving
            progress = seen.get(connection)
            if (
                progress is None
                or progress.begun_at_ms != begun_at_ms
                or not progress.filled <= filled < progress.filled + _PROGRESS_BYTES
            ):
                progress = _Progress(begun_at_ms, filled, self._time_ms)
            self._seen[connection] = progress
            if self._time_ms - progress.since_ms >= self._stalled_ms:
                stalled.append((progress.since_ms, size, connection))
        stalled.sort(key=lambda each: (each[0], -each[1]))
        found: list[C] = []
        for _, size, connection in stalled:
            if excess_bytes < 0:
                break
            found.append(connection)
            excess_bytes -= size
        return found
