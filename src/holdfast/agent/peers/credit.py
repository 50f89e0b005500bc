"""Byte credit: how much of what was sent may be unanswered. Both ends count the same bytes, so neither has to ask the other."""


class CreditWindow:
    """A credit. One message always fits an unused one, however large: otherwise it could never be sent."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.used_bytes = limit_bytes, 0

    def fits(self, size: int) -> bool:
        """Whether `size` bytes may be sent now."""
        return not self.used_bytes or self.used_bytes + size <= self.limit_bytes

    def use(self, size: int) -> None:
        """They were sent."""
        self.used_bytes += size

    def release(self, size: int) -> None:
        """They were answered."""
        self.used_bytes -= size
