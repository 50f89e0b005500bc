"""Ctrl-C and SIGTERM for commands that must finish something first: leave a group, wait for acknowledgements.

The first signal sets a flag that is checked between two steps, and interrupts a wait for input.
The second raises KeyboardInterrupt at once.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class StopRequested(Exception):  # noqa: N818 (a request, not an error)
    """A signal arrived while the command waited for input."""


class StopFlag:
    """Whether a signal asked this command to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._waiting = False

    @property
    def asked(self) -> bool:
        """Whether to stop after this step."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """128 + signal, as in a shell: 130 for Ctrl-C."""
        return 128 + (self.signal or 0)

    def wait(self, wait: Callable[[], T]) -> T:
        """`wait()`, without a timeout; a signal raises `StopRequested`."""
        self._waiting = True
        try:
            if self.asked:  # a signal arrived just before
                raise StopRequested
            return wait()
        finally:
            self._waiting = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if self.asked:
            raise KeyboardInterrupt
        self.signal = number
        if self._waiting:
            raise StopRequested


@contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """SIGINT and SIGTERM set the flag for the body."""
    stop_flag = StopFlag()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop_flag.on_signal) for number in numbers]
    try:
        yield stop_flag
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
