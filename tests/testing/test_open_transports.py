"""What asyncio leaves open is closed before the garbage collector finds it in somebody else's test."""

import asyncio
import socket
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]

import pytest


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
