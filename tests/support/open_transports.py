"""Connections that a test leaves open are closed with its event loop, and reported as a warning of that very test.

Otherwise the garbage collector finds them during any later test, and that one fails. The loop's own table is not enough: it has one
connection per file descriptor, and nothing of TLS.
"""

import warnings
from asyncio.selector_events import BaseSelectorEventLoop, _SelectorTransport  # type: ignore[attr-defined]
from asyncio.sslproto import _SSLProtocolTransport
from typing import Any
from weakref import WeakSet


class OpenTransportWarning(UserWarning):
    """An event loop was closed before a connection of it."""


def close_with_loop() -> None:
    """From now on, in this process."""
    close = BaseSelectorEventLoop.close
    begin, begin_tls = _SelectorTransport.__init__, _SSLProtocolTransport.__init__
    sockets, tls = WeakSet[Any](), WeakSet[Any]()

    def note(transport: Any, *args: Any, **options: Any) -> None:
        try:
            begin(transport, *args, **options)
        except BaseException:  # its server was closed just after it had accepted it: asyncio forgets the socket
            if getattr(transport, "_sock", None) is not None:
                transport._sock.close()
                transport._sock = None
            raise
        sockets.add(transport)

    def note_tls(transport: Any, *args: Any, **options: Any) -> None:
        begin_tls(transport, *args, **options)
        tls.add(transport)

    def close_all(loop: Any) -> None:
        for transport in list(sockets):
            if transport._loop is loop and transport._sock is not None:
                warnings.warn(f"left open: {transport!r}", OpenTransportWarning, stacklevel=2)
                transport._sock.close()
                transport._sock, transport._closing = None, True
        for transport in list(tls):
            if transport._loop is loop:
                transport._closed = True
        close(loop)

    BaseSelectorEventLoop.close = close_all  # type: ignore[method-assign,assignment]
    _SelectorTransport.__init__ = note
    _SSLProtocolTransport.__init__ = note_tls  # type: ignore[method-assign,assignment]
