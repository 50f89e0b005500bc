"""Session reaper: ends overdue sessions when no commit does, so that watchers are notified.

It sleeps until the next known deadline plus a random delay, so that of many processes one comes first; that one notifies the
others, which find nothing to do. Renewals cost nothing: the deadline is checked again on waking.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

_SPREAD_MS: Final = 30.0  # the mean of what is added to a deadline


class SessionReaper:
    """Tracks when the next session is due, by the server's last response."""

    def __init__(self, *, clock: Clock, random: Random) -> None:
        self._clock, self._random = clock, random
        self._due_at_ms = math.inf
        self._wakes_at_ms = math.inf
        self._sooner = Notify()

    def update_due(self, due_in_ms: int) -> None:
        """Set the time until the next session is due; negative: there is none."""
        self._due_at_ms = math.inf if due_in_ms < 0 else self._clock.boot_ms() + due_in_ms
        if self._due_at_ms + 2 * _SPREAD_MS < self._wakes_at_ms:
            self._wakes_at_ms = self._due_at_ms  # one notification is enough
            self._sooner.notify()

    async def run(self, reap: Callable[[], Awaitable[object]]) -> None:
        """Call `reap` whenever a session is due. Its response must reach `update_due`."""
        failures = 0
        while True:
            if self._due_at_ms == math.inf:
                self._wakes_at_ms = math.inf
                await self._sooner.wait()
                continue
            self._wakes_at_ms = self._due_at_ms + self._random.jitter(_SPREAD_MS, share=0.9)
            await self._sooner.wait_ms(self._clock, self._wakes_at_ms - self._clock.boot_ms())
            if self._clock.boot_ms() < self._due_at_ms:
                continue
            try:
                await reap()
                failures = 0
            except UnavailableError:
                await self._clock.sleep_ms(backoff_ms(failures, base_ms=100, max_ms=2_000, random=self._random))
                failures += 1
            except CorruptError:
                return
