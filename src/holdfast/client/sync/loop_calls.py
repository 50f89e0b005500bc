"""Calls of an asynchronous client from a thread without an event loop. The process's loop thread runs them.

The one rule: a client belongs to the process that opened it; after a fork it raises, and does not wait for threads that are gone.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.client import loop_thread
from holdfast.client.forks import ForkCheck

T = TypeVar("T")


class LoopCalls:
    """Runs the coroutines of one client."""

    def __init__(self, what: str) -> None:
        self._forked = ForkCheck(what)

    def check(self) -> None:
        """`UsageError` in a fork."""
        self._forked.check()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result. An interrupt cancels the work."""
        try:
            self.check()
        except BaseException:
            work.close()
            raise
        return loop_thread.run(work)
