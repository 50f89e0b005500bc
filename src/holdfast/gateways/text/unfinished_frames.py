"""The memory of frames that have not arrived whole, of all connections. Pure: the server closes what this names.

The one rule: over the limit the frame that began first goes, and of those that wait for answers none while there are others. So
clients that send slowly make room for those that do not, and one that sends alone is never closed for the size of its frame.
"""

from typing import Generic, Protocol, TypeVar


class FrameSender(Protocol):
    """A connection."""

    @property
    def busy(self) -> bool:
        """Whether a request of it is not answered."""
        ...


S = TypeVar("S", bound=FrameSender)


class UnfinishedFrames(Generic[S]):
    """Bytes by connection, in the order in which their frames began."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[S, int] = {}
        self.size_bytes = 0

    def update(self, sender: S, held_bytes: int, *, began: bool) -> S | None:
        """A connection holds so many bytes of a frame, which `began` just now; whom to close, if there is too much."""
        if began or not held_bytes:
            self.forget(sender)
        if held_bytes:
            self.size_bytes += held_bytes - self._held.get(sender, 0)
            self._held[sender] = held_bytes
        if self.size_bytes <= self._bytes_max or len(self._held) < 2:
            return None
        first = next((each for each in self._held if not each.busy), next(iter(self._held)))
        self.forget(first)
        return first

    def forget(self, sender: S) -> None:
        """Its frame has arrived, or its connection is gone."""
        self.size_bytes -= self._held.pop(sender, 0)
