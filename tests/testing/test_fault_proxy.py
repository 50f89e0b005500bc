"""The proxy that tests put between clients and servers: what it forwards, holds, refuses and answers by itself."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.waiting import async_until

from holdfast.testing.fault_proxy import FaultProxy
from holdfast.vocabulary.clock import RealClock

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest_asyncio.fixture
async def received() -> list[bytes]:
    """What the server behind the proxy was sent."""
    return []


@pytest_asyncio.fixture
async def proxy(received: list[bytes]) -> AsyncIterator[FaultProxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(100):
                received.append(chunk)
                writer.write(b"<" + chunk)
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, FaultProxy.running("127.0.0.1", server.sockets[0].getsockname()[1], clock=RealClock()) as proxy:
        yield proxy


async def connected(proxy: FaultProxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def asked(streams: Streams, text: bytes) -> bytes:
    streams[1].write(text)
    return await streams[0].read(1_000)


async def test_what_is_held_one_way_arrives_when_it_is_released(proxy: FaultProxy, received: list[bytes]) -> None:
    ann = await connected(proxy)
    assert await asked(ann, b"ann") == b"<ann"
    proxy.hold(answers=True)
    ann[1].write(b"1")
    await async_until(lambda: b"1" in received)
    assert not ann[0]._buffer  # type: ignore[attr-defined]
    proxy.hold(requests=True)
    proxy.release()
    assert await ann[0].read(100) == b"<1"
    assert await asked(ann, b"2") == b"<2"
    ann[1].close()


async def test_connections_are_held_by_what_they_began_with(proxy: FaultProxy, received: list[bytes]) -> None:
    ann, bob = await connected(proxy), await connected(proxy)
    assert await asked(ann, b"I am ann") == b"<I am ann"
    assert await asked(bob, b"I am bob") == b"<I am bob"
    proxy.hold(requests=True, opening="ann")
    ann[1].write(b"from ann")
    assert await asked(bob, b"from bob") == b"<from bob"
    assert b"from ann" not in received
    proxy.release()
    assert await ann[0].read(100) == b"<from ann"
    for streams in (ann, bob):
        streams[1].close()


async def test_a_port_where_nobody_listens_refuses(proxy: FaultProxy) -> None:
    ann = await connected(proxy)
    assert await asked(ann, b"1") == b"<1"
    port = proxy.port
    await proxy.set_listening(False)
    assert await ann[0].read(100) == b""
    with pytest.raises(ConnectionRefusedError):
        await connected(proxy)
    await proxy.set_listening(True)
    assert proxy.port == port
    bob = await connected(proxy)
    assert await asked(bob, b"2") == b"<2"
    for streams in (ann, bob):
        streams[1].close()


async def test_it_answers_in_the_place_of_the_server(proxy: FaultProxy, received: list[bytes]) -> None:
    proxy.respond(b"HTTP/1.1 503 Slow Down\r\n\r\n")
    ann = await connected(proxy)
    assert (await asked(ann, b"PUT /")).startswith(b"HTTP/1.1 503")
    assert (await ann[0].read(100), received) == (b"", [])
    proxy.respond(None)
    bob = await connected(proxy)
    assert await asked(bob, b"PUT /") == b"<PUT /"
    for streams in (ann, bob):
        streams[1].close()
