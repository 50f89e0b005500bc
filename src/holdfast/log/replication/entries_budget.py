"""A budget of bytes for the entries of all replicas of an agent that other agents' leaders have sent. No I/O."""

from holdfast.vocabulary.tasks import Notify


class EntriesBudget:
    """What is kept. `freed` is notified when some of it was released."""

    __slots__ = ("bytes_max", "freed", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.used_bytes, self.freed = bytes_max, 0, Notify()

    def fits(self, size_bytes: int) -> bool:
        """Whether so many more may be kept; alone, a message always may."""
        return not self.used_bytes or self.used_bytes + size_bytes <= self.bytes_max

    def charge(self, change_bytes: int) -> None:
        """More is kept, or less."""
        self.used_bytes += change_bytes
        if change_bytes < 0:
            self.freed.notify()
