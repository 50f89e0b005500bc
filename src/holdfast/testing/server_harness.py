"""What harnesses of TCP servers share: clients connect through a fault proxy, and the server can be killed and restored."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from holdfast.contracts.store import Store
from holdfast.stores.urls import open_store
from holdfast.testing.fault_proxy import FaultProxy
from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

S = TypeVar("S", bound=ServerProcess)
OpenClient = Callable[[str], AbstractAsyncContextManager[Store]]


class ServerHarness(Generic[S]):
    """Clients of one namespace of a server. `url` is direct, for other processes: the proxy ends with this one.

    `open_client` opens a client by URL; the default opens Holdfast's own engines.
    """

    name: str
    ttl_ms_min = 300

    def __init__(
        self, server: S, proxy: FaultProxy, *, url: str, proxied_url: str, open_client: OpenClient | None = None
    ) -> None:
        self.server, self.proxy, self.url, self.proxied_url = server, proxy, url, proxied_url
        self._open_client = open_client or _open_by_scheme

    def client(self) -> AbstractAsyncContextManager[Store]:
        return self._open_client(self.proxied_url)

    def lose_answer_to(self, marker: str) -> None:
        self.proxy.lose_answer_to(marker)

    def lose_request(self, marker: str) -> None:
        self.proxy.lose_request(marker)

    async def cut(self) -> None:
        await self.proxy.cut()

    async def set_reachable(self, reachable: bool) -> None:
        await self.proxy.set_reachable(reachable)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.restart)

    async def save(self) -> None:
        await asyncio.to_thread(self.server.save)

    async def restore_saved(self) -> None:
        await asyncio.to_thread(self.server.restore_saved)


def _open_by_scheme(url: str) -> AbstractAsyncContextManager[Store]:
    return open_store(url, clock=RealClock(), random=SystemRandom())
