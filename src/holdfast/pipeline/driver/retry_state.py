"""Which partitions of a slot wait for a retry, until when, and why.

The one rule: a failed partition is always retried, after a pause that doubles. Only one that a newer epoch owns is left alone,
until it is claimed under another epoch.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random, backoff_ms

_WHOLE_SLOT: Final = -1


class RetryState:
    """Of one slot. `reason` is the last failure that is not over yet."""

    def __init__(self, settings: DriverSettings, *, clock: Clock, random: Random) -> None:
        self._settings, self._clock, self._random = settings, clock, random
        self._attempts: dict[int, int] = {}
        self._not_before_ms: dict[int, int] = {}
        self._fenced: dict[int, int] = {}
        self.reason = ""

    def retry_later(self, numbers: Sequence[int], reason: str) -> None:
        """These partitions failed."""
        self.reason = reason
        for number in numbers:
            self._not_before_ms[number] = self._clock.boot_ms() + self._pause_ms(number)

    def back_off(self, reason: str) -> int:
        """The whole slot failed; when to try again."""
        self.reason = reason
        return self._clock.boot_ms() + self._pause_ms(_WHOLE_SLOT)

    def fenced(self, number: int, epoch: int) -> None:
        """A newer epoch owns the partition."""
        self._fenced[number] = epoch
        self.clear(number)

    def clear(self, number: int) -> None:
        """The partition works again, or is no longer ours."""
        self._attempts.pop(number, None)
        self._not_before_ms.pop(number, None)

    def turn_succeeded(self) -> None:
        """A whole turn went through; failures of single partitions stay."""
        self._attempts.pop(_WHOLE_SLOT, None)
        if not self._not_before_ms:
            self.reason = ""

    def may_try(self, number: int, epoch: int) -> bool:
        """Whether to take a partition over now."""
        if self._fenced.get(number) == epoch:
            return False
        return self._clock.boot_ms() >= self._not_before_ms.get(number, 0)

    def keep_only(self, claims: dict[int, int]) -> None:
        """Drop partitions that are no longer claimed."""
        for number in [number for number in self._not_before_ms if number not in claims]:
            self.clear(number)

    def _pause_ms(self, number: int) -> int:
        attempt = self._attempts[number] = self._attempts.get(number, -1) + 1
        base_ms, max_ms = self._settings.retry_base_ms, self._settings.retry_max_ms
        return int(backoff_ms(attempt, base_ms=base_ms, max_ms=max_ms, random=self._random))
