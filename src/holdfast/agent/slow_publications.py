"""Publications that take too long, as lines for the log: that one does, that it goes on (ever more rarely), and that it is over.

While object storage does not answer, what was acknowledged is in the WAL and appends wait for room in the end; without a line
nobody would know what for. No I/O: times go in, lines come out.
"""

from typing import Final

_REPEAT_FACTOR: Final = 2  # the age at which it is said again, of that at which it was said


class SlowPublications:
    """The publications under way. `slow_ms`: what one may take before it is spoken of."""

    def __init__(self, slow_ms: int) -> None:
        self._slow_ms = self._say_ms = slow_ms
        self._begun_ms: dict[object, int] = {}
        self._since_ms: int | None = None  # when the one began that was spoken of

    def begin(self, publication: object, now_ms: int) -> None:
        """It is under way."""
        self._begun_ms[publication] = now_ms

    def end(self, publication: object) -> None:
        """It has ended, one way or the other."""
        self._begun_ms.pop(publication, None)

    def line(self, now_ms: int) -> str:
        """What is to be said now; empty: nothing."""
        oldest_ms = min(self._begun_ms.values(), default=now_ms)
        age_ms = now_ms - oldest_ms
        if age_ms >= self._say_ms:
            self._since_ms = oldest_ms if self._since_ms is None else min(oldest_ms, self._since_ms)
            self._say_ms = age_ms * _REPEAT_FACTOR
            return f"publishing has taken {age_ms} ms and goes on: object storage, or the store, does not answer"
        if self._since_ms is not None and age_ms < self._slow_ms:
            took_ms, self._since_ms, self._say_ms = now_ms - self._since_ms, None, self._slow_ms
            return f"publishing goes on again after {took_ms} ms"
        return ""
