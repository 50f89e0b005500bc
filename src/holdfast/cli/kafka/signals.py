"""Ctrl-C and SIGTERM for commands that must finish something first: leave a group, wait for acknowledgements.

The first signal is a wish, looked at between two steps; while the command only waits for input it interrupts the wait.
The second one does not wait any more: KeyboardInterrupt, wherever the command is.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class StopRequested(Exception):  # noqa: N818 (a wish, not an error)
    """The wish came while the command waited for input."""


class StopFlag:
    """Whether somebody asked this command to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._waiting = False

    @property
    def asked(self) -> bool:
        """Whether to stop after this step."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """As a shell says that a signal ended a program: 130 for Ctrl-C."""
        return 128 + (self.signal or 0)

    def wait(self, wait: Callable[[], T]) -> T:
        """`wait()`, for as long as it takes; raises Stopped when somebody does not want to wait any longer."""
        self._waiting = True
        try:
            if self.asked:  # it came just before
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
def stopping() -> Iterator[StopFlag]:
    """Signals become wishes for the body."""
    stop_flag = StopFlag()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop_flag.on_signal) for number in numbers]
    try:
        yield stop_flag
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
