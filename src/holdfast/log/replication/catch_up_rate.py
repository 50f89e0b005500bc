"""How fast replicas that are not members yet are sent the log. Pure: time is an argument.

The one rule: over any time, learners are sent no more than the rate allows in that time, and one message. Members are not limited:
appends wait for them.
"""

from typing import Final

BURST_MS: Final = 100


class CatchUpRate:
    """Shared by all leaders of an agent."""

    __slots__ = ("_at_ms", "_bytes_per_ms", "_level", "bytes_sent")

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_ms = bytes_per_s / 1_000
        self._level, self._at_ms = 0.0, 0.0
        self.bytes_sent = 0

    def may_send(self, now_ms: float) -> bool:
        """Whether something more may be sent now."""
        drained = (now_ms - self._at_ms) * self._bytes_per_ms
        self._level, self._at_ms = max(0.0, self._level - drained), now_ms
        return self._level <= BURST_MS * self._bytes_per_ms

    def sent(self, size_bytes: int) -> None:
        """So much was."""
        self._level += size_bytes
        self.bytes_sent += size_bytes
