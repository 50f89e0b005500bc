"""Accepting with TLS: handshakes count as connections and have a deadline, whichever event loop runs them."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.support.certificates import certificate
from tests.support.waiting import async_until

from holdfast.cli.serve import fast_loop
from holdfast.security.tls import CurrentContext, TlsFiles
from holdfast.security.tls_listener import TlsListener, accepting_tls
from holdfast.vocabulary.sockets import bind_one

HOST = "127.0.0.1"


class Echo(asyncio.Protocol):
    """Counts itself, and answers with what it gets."""

    def __init__(self, connections: "set[Echo]") -> None:
        self.connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport
        self.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.connections.discard(self)


class Listening:
    """A listener, and clients of it."""

    def __init__(self, listener: TlsListener, port: int, authority: Path, connections: set[Echo]) -> None:
        self.listener, self.port, self.connections = listener, port, connections
        self._authority = authority

    @contextmanager
    def silent(self, count: int) -> Iterator[list[socket.socket]]:
        """Clients that connect and say nothing."""
        made = [socket.create_connection((HOST, self.port)) for _ in range(count)]
        try:
            yield made
        finally:
            for each in made:
                each.close()

    async def ask(self) -> bytes:
        """What a client gets for its word."""
        context = ssl.create_default_context(cafile=str(self._authority))
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=context)
        try:
            writer.write(b"word")
            return await reader.readexactly(4)
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def listening(directory: Path, *, connections_max: int, handshake_ms: int = 60_000) -> AsyncIterator[Listening]:
    own, key = certificate(directory, "node")
    connections: set[Echo] = set()
    bound = bind_one(HOST, 0)
    listener = TlsListener(
        lambda: Echo(connections),
        CurrentContext(TlsFiles(certificate=str(own), key=str(key))),
        connections=lambda: len(connections),
        connections_max=connections_max,
        handshake_ms=handshake_ms,
    )
    async with accepting_tls(listener, [bound]):
        yield Listening(listener, bound.getsockname()[1], own, connections)
        for each in list(connections):
            each.transport.abort()  # type: ignore[attr-defined]
        await async_until(lambda: not connections)


@pytest.fixture(params=[asyncio.new_event_loop, fast_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def run_in_loop(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)  # type: ignore[arg-type]

    return run_in_loop


Run = Callable[[Awaitable[None]], None]


def test_clients_that_say_nothing_keep_nobody_out(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with listening(tmp_path, connections_max=3) as served:
            with served.silent(10):
                await async_until(lambda: served.listener.dropped == 7)
                assert served.listener.handshakes == 3
                assert await served.ask() == b"word"
                assert served.listener.dropped == 8, "the oldest of them gave way"

    run(body())


def test_handshakes_count_as_connections(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with listening(tmp_path, connections_max=2) as served:
            context = ssl.create_default_context(cafile=str(tmp_path / "node.pem"))
            clients = [await asyncio.open_connection(HOST, served.port, ssl=context) for _ in range(2)]
            await async_until(lambda: len(served.connections) == 2 and not served.listener.handshakes)
            with served.silent(1) as (refused,):
                await async_until(lambda: served.listener.dropped == 1)
                assert refused.recv(1) == b"", "it was closed"
            assert len(served.connections) == 2
            for _, writer in clients:
                writer.transport.abort()

    run(body())


def test_a_handshake_that_takes_too_long_is_dropped(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with listening(tmp_path, connections_max=2, handshake_ms=50) as served:
            with served.silent(1):
                await async_until(lambda: served.listener.failed == 1 and not served.listener.handshakes)
            with served.silent(1) as (client,):
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
                await async_until(lambda: served.listener.failed == 2)

    run(body())


def test_leaving_drops_the_handshakes_under_way(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with listening(tmp_path, connections_max=9) as served:
            with served.silent(2):
                await async_until(lambda: served.listener.handshakes == 2)
                served.listener.stop()
                await served.listener.stopped()
                assert not served.listener.accepting
                with pytest.raises(OSError, match="refused"):
                    socket.create_connection((HOST, served.port))

    run(body())
