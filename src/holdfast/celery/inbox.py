"""What the thread of leases hands to Kombu's: calls to make there, and a file descriptor that is readable while there are any.

The one rule: nothing is polled. A worker sleeps until a message is there.
"""

import os
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector


class Inbox:
    """Calls from any thread to one."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._receiver, self._sender = os.pipe()
        os.set_blocking(self._receiver, False)
        os.set_blocking(self._sender, False)
        self.close = weakref.finalize(self, _close, self._receiver, self._sender)
        """Calls that come later are not made."""

    def fileno(self) -> int:
        """Readable while there are calls."""
        return self._receiver

    def put(self, call: Callable[[], None]) -> None:
        """From any thread."""
        self._calls.append(call)
        self._wake()

    def run(self) -> int:
        """Make the calls; how many there were."""
        with suppress(BlockingIOError):
            while os.read(self._receiver, 4096):
                pass
        count = 0
        try:
            while self._calls:
                self._calls.popleft()()
                count += 1
        finally:
            if self._calls:  # one of them raised: it stays readable
                self._wake()
        return count

    def run_one(self, timeout: float | None) -> bool:
        """Make one call, waiting for it; whether there was one."""
        if not self._calls and not self._readable(timeout):
            return False
        with suppress(BlockingIOError):
            os.read(self._receiver, 1)
        if not self._calls:
            return False
        self._calls.popleft()()
        return True

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is readable
            if self.close.alive:
                os.write(self._sender, b"\0")

    def _readable(self, timeout: float | None) -> bool:
        with DefaultSelector() as selector:  # looked up now: gevent's lets other greenlets run
            selector.register(self._receiver, EVENT_READ)
            return bool(selector.select(timeout))


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
