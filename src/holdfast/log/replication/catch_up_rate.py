"""How fast replicas that are not members yet are sent the log, and in which order.

The rules: over any time, learners are sent no more than the rate allows in that time, a burst and one message. They take turns, one
message each, so that a busy partition holds up no other. Members are not limited: appends wait for them.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.vocabulary.clock import Clock

BURST_MS: Final = 100


class CatchUpRate:
    """Shared by all leaders of an agent."""

    def __init__(self, bytes_per_s: int, *, clock: Clock) -> None:
        self._bytes_per_ms, self._clock = bytes_per_s / 1_000, clock
        self._level, self._at_ms = 0.0, 0.0
        self._waiting: dict[Callable[[], int], None] = {}  # in their order
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self.bytes_sent = 0

    def ask(self, send: Callable[[], int]) -> None:
        """Have `send` called soon, in its turn: it sends a message and returns its size. Asked again before, it is called once."""
        self._waiting.setdefault(send)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._turn)

    def withdraw(self, send: Callable[[], int]) -> None:
        """Nothing is to be sent any more."""
        self._waiting.pop(send, None)

    def _turn(self) -> None:
        self._timer = None
        while self._waiting and self.wait_ms() <= 0:
            send = next(iter(self._waiting))
            del self._waiting[send]
            self.sent(send())
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(1.0, self.wait_ms()) / 1_000, self._turn)

    def wait_ms(self) -> float:
        """How long nothing may be sent; 0 or less: something may now."""
        now_ms = self._clock.boot_ms()
        drained = (now_ms - self._at_ms) * self._bytes_per_ms
        self._level, self._at_ms = max(0.0, self._level - drained), now_ms
        return self._level / self._bytes_per_ms - BURST_MS

    def sent(self, size_bytes: int) -> None:
        """So much was sent."""
        self._level += size_bytes
        self.bytes_sent += size_bytes
