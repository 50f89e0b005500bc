"""PendingSend: the outcome of what was sent, for threads. One condition serves all of a producer.

`concurrent.futures.Future` has a lock, a condition and three lists for each record, which costs more than to send it.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast.vocabulary.errors import HoldfastError

T = TypeVar("T")


class PendingSend(Generic[T]):
    """A record, or many, that were sent; `result` waits for the acknowledgement."""

    __slots__ = ("_callbacks", "_changed", "_outcome")

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._outcome: Any = None
        self._callbacks: list[Callable[[PendingSend[T]], None]] | None = None

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._outcome is not None

    def result(self, timeout_s: float | None = None) -> T:
        """The metadata, or the error; `TimeoutError` if there is neither in time."""
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        outcome: T = self._outcome
        return outcome

    def exception(self, timeout_s: float | None = None) -> HoldfastError | None:
        """The error; None: it was acknowledged. `TimeoutError`."""
        if self._outcome is None:
            with self._changed:
                if not self._changed.wait_for(self.done, timeout_s):
                    raise TimeoutError(f"not acknowledged within {timeout_s} s")
        return self._outcome if isinstance(self._outcome, HoldfastError) else None

    def add_done_callback(self, callback: "Callable[[PendingSend[T]], None]") -> None:
        """Call it with this object once there is an outcome, on whichever thread learns of it."""
        with self._changed:
            if self._outcome is None:
                self._callbacks = [*(self._callbacks or ()), callback]
                return
        callback(self)

    def _resolve(self, outcome: Any) -> bool:
        """Under the lock of the condition; True: there are callbacks to run, without it."""
        self._outcome = outcome
        return self._callbacks is not None

    def _run_callbacks(self) -> None:
        for callback in self._callbacks or ():
            callback(self)
