"""What a test leaves open fails no later one."""

import asyncio
import gc
import socket
import ssl
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from typing import Any

import pytest
from tests.support.open_transports import OpenTransportWarning


def test_a_tls_handshake_that_the_end_of_its_loop_overtakes_is_closed_with_it() -> None:
    ours, theirs = socket.socketpair()  # which never says anything
    ours.setblocking(False)
    loop: Any = asyncio.new_event_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    loop._make_ssl_transport(ours, asyncio.Protocol(), context, loop.create_future(), server_side=True)
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    del ours
    loop._transports.clear()  # it does not know of it any more
    with theirs:
        with pytest.warns(OpenTransportWarning, match="left open"):
            loop.close()
        gc.collect()
        assert theirs.recv(1) == b""  # it is closed


def test_a_connection_that_its_loop_knows_of_is_named_when_that_is_closed() -> None:
    ours, theirs = socket.socketpair()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(loop.connect_accepted_socket(asyncio.Protocol, ours))
    with theirs, pytest.warns(OpenTransportWarning, match="left open"):
        loop.close()


async def test_a_connection_whose_server_was_closed_as_it_was_accepted_is_closed() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    server.close()
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        with pytest.raises(AssertionError):
            _SelectorSocketTransport(loop, ours, asyncio.Protocol(), None, None, server)
        assert ours.fileno() == -1
