"""How much was taken lately, and how long to wait until it is no more than a limit allows.

The one rule: over any time, no more is taken than the limit allows in that time and ten seconds: those are free, as with Kafka's
average over ten seconds, and what is beyond is waited for to the last byte. Kafka's samples forget what is eleven seconds old, paid
for or not; a bucket that drains at the limit does not. Pure: time and limit are arguments.
"""

import math
from typing import Final

BURST_MS: Final = 10_000
WAIT_MAX_MS: Final = 2**31 - 1  # an INT of Kafka's, as every response has it


class LeakyBucket:
    """What was taken and has not drained yet."""

    __slots__ = ("_at_ms", "_level")

    def __init__(self) -> None:
        self._level, self._at_ms = 0.0, 0

    def take(self, amount: float, limit_per_s: float, now_ms: int) -> int:
        """Something is taken: how long nothing more may be; 0: it is within the limit."""
        drained = (now_ms - self._at_ms) * limit_per_s / 1_000
        self._level, self._at_ms = max(0.0, self._level - drained) + amount, now_ms
        return max(0, math.ceil(min(WAIT_MAX_MS, self._level * 1_000 / limit_per_s - BURST_MS)))
