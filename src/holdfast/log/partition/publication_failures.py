"""Publications that fail, as lines for the log: they began to, they still do (ever more rarely), they work again.

No I/O: times go in, lines come out.
"""

from collections.abc import Hashable, Iterable
from typing import Final

_REPEAT_MS: Final = 10_000  # logged again after so long, then at twice the age
_REPEAT_MAX_MS: Final = 600_000


class PublicationFailures:
    """The partitions whose last publication failed."""

    def __init__(self) -> None:
        self._failing: set[Hashable] = set()
        self._reasons: set[type[Exception]] = set()  # what was logged
        self._since_ms = self._log_at_ms = 0
        self._attempts = 0

    def failed(self, partitions: Iterable[Hashable], error: Exception, now_ms: int) -> str:
        """They were not published. What is to be logged now; empty: nothing."""
        if not self._failing:
            self._since_ms, self._log_at_ms, self._attempts = now_ms, now_ms + _REPEAT_MS, 0
            self._reasons.clear()
        self._failing.update(partitions)
        self._attempts += 1
        count = f"{len(self._failing)} partition{'s' if len(self._failing) != 1 else ''}"
        if type(error) not in self._reasons:
            self._reasons.add(type(error))
            return f"publishing {count} failed, retrying: {error}"
        if now_ms < self._log_at_ms:
            return ""
        age_ms = now_ms - self._since_ms
        self._log_at_ms = now_ms + min(age_ms, _REPEAT_MAX_MS)
        return f"publishing {count} has failed for {age_ms // 1000} s ({self._attempts} attempts), retrying: {error}"

    def ended(self, partitions: Iterable[Hashable], now_ms: int) -> str:
        """They were published, or are no longer ours to publish. What is to be logged now; empty: nothing."""
        if not self._failing:
            return ""
        self._failing.difference_update(partitions)
        return "" if self._failing else f"publishing works again, after {now_ms - self._since_ms} ms"
