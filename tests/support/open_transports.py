"""Connections that a test leaves open are closed with its event loop, and reported as a warning of that very test.

Otherwise the garbage collector finds them during any later test, and that one fails.
"""

import warnings
from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any


class OpenTransportWarning(UserWarning):
    """An event loop was closed before a connection of it."""


def close_with_loop() -> None:
    """From now on, in this process."""
    close = BaseSelectorEventLoop.close

    def close_all(loop: Any) -> None:
        for transport in list(loop._transports.values()):
            if transport._sock is not None:
                warnings.warn(f"left open: {transport!r}", OpenTransportWarning, stacklevel=2)
                transport._sock.close()
                transport._sock, transport._closing = None, True
        close(loop)

    BaseSelectorEventLoop.close = close_all  # type: ignore[method-assign,assignment]
