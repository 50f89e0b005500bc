"""Requests to a node that is frozen: its connections open, and no answer comes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.gateways.text.errors import LostAnswerError
from holdfast.gateways.text.node_connections import NodeConnections
from holdfast.gateways.text.settings import TextSettings
from holdfast.vocabulary.errors import UnavailableError


@pytest_asyncio.fixture
async def frozen() -> AsyncIterator[str]:
    """The address of a node that accepts connections and answers nothing."""
    writers = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in writers:
        writer.transport.abort()
    server.close()


async def test_a_request_that_is_not_answered_in_time_has_an_unknown_outcome(frozen: str) -> None:
    nodes = NodeConnections(TextSettings(request_ms=20), node=1)
    async with nodes.connection(frozen) as connection:
        with pytest.raises(LostAnswerError, match=f"no answer from {frozen} in 20 ms"):
            await connection.ask(b"PUT logs a")
        assert not connection.usable  # its answer would be taken for that of the next request
    nodes.close()


async def test_a_request_that_gets_no_connection_in_time_was_not_sent(frozen: str) -> None:
    nodes = NodeConnections(TextSettings(request_ms=20, forward_connections_max=1), node=1)
    held = await nodes.acquire(frozen)
    with pytest.raises(UnavailableError, match="no connection was free in 20 ms"):
        await nodes.acquire(frozen)
    nodes.release(held)
    assert await nodes.acquire(frozen) is held
    nodes.close()
