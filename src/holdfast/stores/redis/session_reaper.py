"""Reaper: ends overdue sessions when nobody's commit does, so that watchers hear of it.

It sleeps until the first session it has heard of is due, plus a little chance, so that of many processes one comes first; that one
rings the doorbell and the others find nothing to do. Renewals cost it nothing: it looks again when it wakes.
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
    """Knows when the next session is due, by what the server said last."""

    def __init__(self, *, clock: Clock, random: Random) -> None:
        self._clock, self._random = clock, random
        self._due_at_ms = math.inf
        self._wakes_at_ms = math.inf
        self._sooner = Notify()

    def note(self, due_in_ms: int) -> None:
        """The server said when the next session is due; negative: there is none."""
        self._due_at_ms = math.inf if due_in_ms < 0 else self._clock.boot_ms() + due_in_ms
        if self._due_at_ms + 2 * _SPREAD_MS < self._wakes_at_ms:
            self._wakes_at_ms = self._due_at_ms  # one ring is enough
            self._sooner.notify()

    async def run(self, reap: Callable[[], Awaitable[object]]) -> None:
        """Call `reap` whenever a session is due. Its answer is expected to reach `note`."""
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
