"""Publications that take too long, as lines for the log: one is slow, it is still slow (ever more rarely), it has ended.

While object storage does not respond, acknowledged records are in the WAL and appends wait in the end; the lines say why. No I/O:
times go in, lines come out.
"""

from typing import Final

_REPEAT_FACTOR: Final = 2  # a slow publication is logged again at twice the age


class SlowPublications:
    """The publications under way. `slow_ms`: what one may take before it is logged."""

    def __init__(self, slow_ms: int) -> None:
        self._slow_ms = self._log_at_ms = slow_ms
        self._begun_ms: dict[object, int] = {}
        self._since_ms: int | None = None  # when the one that was logged began

    def begin(self, publication: object, now_ms: int) -> None:
        """It is under way."""
        self._begun_ms[publication] = now_ms

    def end(self, publication: object) -> None:
        """It has ended, one way or the other."""
        self._begun_ms.pop(publication, None)

    def line(self, now_ms: int) -> str:
        """What is to be logged now; empty: nothing."""
        oldest_ms = min(self._begun_ms.values(), default=now_ms)
        age_ms = now_ms - oldest_ms
        if age_ms >= self._log_at_ms:
            self._since_ms = oldest_ms if self._since_ms is None else min(oldest_ms, self._since_ms)
            self._log_at_ms = age_ms * _REPEAT_FACTOR
            return f"publishing has taken {age_ms} ms so far: object storage, or the store, does not answer"
        if self._since_ms is not None and age_ms < self._slow_ms:
            took_ms, self._since_ms, self._log_at_ms = now_ms - self._since_ms, None, self._slow_ms
            return f"publishing resumed after {took_ms} ms"
        return ""
