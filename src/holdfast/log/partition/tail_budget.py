"""A budget of bytes for the tails of all partitions of an agent, so that a thousand partitions fit as well as one.

Frames that are kept of partitions not led now count, too. Nothing can be published of these, so they only leave less for the tails.
"""

from holdfast.vocabulary.settings import check_at_least
from holdfast.vocabulary.tasks import Notify


class TailBudget:
    """What the tails that share it, and kept frames, hold together. `freed` is notified when something was published or dropped."""

    def __init__(self, bytes_max: int) -> None:
        check_at_least("tail_bytes_max", bytes_max, 1)
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._kept_bytes = 0
        self.freed = Notify()

    @property
    def full(self) -> bool:
        """Whether appends should wait."""
        return self.used_bytes > self.bytes_max

    @property
    def excess_bytes(self) -> int:
        """How much should be published now: from half full on, down to half full."""
        room_bytes = max(0, self.bytes_max - self._kept_bytes)
        return max(0, self.used_bytes - self._kept_bytes - room_bytes // 2)

    def charge(self, change_bytes: int) -> None:
        """A tail has grown, or shrunk."""
        self.used_bytes += change_bytes
        if change_bytes < 0:
            self.freed.notify()

    def keep(self, change_bytes: int) -> None:
        """More, or less, is kept of partitions that are not led."""
        self._kept_bytes += change_bytes
        self.charge(change_bytes)
