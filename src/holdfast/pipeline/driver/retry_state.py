"""What is in the way of a slot's partitions, and when each is tried again.

The one rule: nothing is given up. A partition that something went wrong with is taken over again after a pause that doubles; only
one that a newer epoch owns is left alone, until it is claimed under another epoch.
"""

from collections.abc import Sequence

from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random, backoff_ms

_EVERYTHING = -1


class RetryState:
    """Of one slot."""

    def __init__(self, settings: DriverSettings, *, clock: Clock, random: Random) -> None:
        self._settings, self._clock, self._random = settings, clock, random
        self._tries: dict[int, int] = {}
        self._not_before_ms: dict[int, int] = {}
        self._fenced: dict[int, int] = {}
        self.reason = ""

    def add(self, numbers: Sequence[int], reason: str) -> None:
        """Something went wrong with these partitions."""
        self.reason = reason
        for number in numbers:
            self._not_before_ms[number] = self._clock.boot_ms() + self._pause_ms(number)

    def back_off(self, reason: str) -> int:
        """Something is in the way of everything; when to try again."""
        self.reason = reason
        return self._clock.boot_ms() + self._pause_ms(_EVERYTHING)

    def lose(self, number: int, epoch: int) -> None:
        """A newer epoch owns the partition."""
        self._fenced[number] = epoch
        self.solve(number)

    def solve(self, number: int) -> None:
        """The partition is held, or not ours."""
        self._tries.pop(number, None)
        self._not_before_ms.pop(number, None)

    def turn_succeeded(self) -> None:
        """A whole turn went through; what single partitions suffer from stays."""
        self._tries.pop(_EVERYTHING, None)
        if not self._not_before_ms:
            self.reason = ""

    def may_try(self, number: int, epoch: int) -> bool:
        """Whether to take a partition over now."""
        if self._fenced.get(number) == epoch:
            return False
        return self._clock.boot_ms() >= self._not_before_ms.get(number, 0)

    def only(self, claims: dict[int, int]) -> None:
        """Forget what is not claimed any more."""
        for number in [number for number in self._not_before_ms if number not in claims]:
            self.solve(number)

    def _pause_ms(self, number: int) -> int:
        tries = self._tries[number] = self._tries.get(number, -1) + 1
        base_ms, max_ms = self._settings.retry_base_ms, self._settings.retry_max_ms
        return int(backoff_ms(tries, base_ms=base_ms, max_ms=max_ms, random=self._random))
