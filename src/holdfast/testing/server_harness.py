"""What every harness with a TCP server has in common: clients go through a fault proxy, and the server can be hurt."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from holdfast.contracts.store import Store
from holdfast.stores.urls import open_store
from holdfast.testing.fault_proxy import FaultProxy
from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

S = TypeVar("S", bound=ServerProcess)


class ServerHarness(Generic[S]):
    """Clients of one namespace of a server. `url` is direct, for other processes: the proxy ends with this one."""

    name: str
    ttl_ms_min = 300

    def __init__(self, server: S, proxy: FaultProxy, *, url: str, proxied_url: str) -> None:
        self.server, self.proxy, self.url, self.proxied_url = server, proxy, url, proxied_url

    def client(self) -> AbstractAsyncContextManager[Store]:
        return open_store(self.proxied_url, clock=RealClock(), random=SystemRandom())

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
