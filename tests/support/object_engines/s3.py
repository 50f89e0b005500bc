"""The harness of any S3 server: clients reach it through a fault proxy."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from tests.support.object_engines import NewObjectsHarness

from holdfast.contracts.objects import Objects
from holdfast.objects.urls import open_objects
from holdfast.testing.fault_proxy import FaultProxy
from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

BUCKET: Final = "holdfast"
_CREDENTIALS: Final = "region=us-east-1&access_key_id=any&secret_access_key=any"


def s3_url(port: int, path: str) -> str:
    """A URL of our bucket on a server of loopback."""
    return f"s3://{BUCKET}/{path}?endpoint=http://127.0.0.1:{port}&{_CREDENTIALS}"


class S3Harness:
    """Clients of one prefix."""

    def __init__(self, server: ServerProcess, proxy: FaultProxy, prefix: str) -> None:
        self.name = server.name
        self.server, self._proxy = server, proxy
        self.url = s3_url(proxy.port, prefix)

    def client(self, *, deadline_ms: int = 30_000) -> AbstractAsyncContextManager[Objects]:
        url = f"{self.url}&deadline_ms={deadline_ms}"
        return open_objects(url, clock=RealClock(), random=SystemRandom())

    def lose_answer_to(self, marker: str) -> None:
        self._proxy.lose_answer_to(marker)

    async def set_reachable(self, reachable: bool) -> None:
        await self._proxy.set_reachable(reachable)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.restart)


def harnesses(server: ServerProcess) -> NewObjectsHarness:
    """Harnesses of one running server, each with a prefix of its own."""
    numbers = itertools.count(1)

    @asynccontextmanager
    async def new() -> AsyncIterator[S3Harness]:
        async with FaultProxy.running("127.0.0.1", server.port, clock=RealClock()) as proxy:
            yield S3Harness(server, proxy, f"t{next(numbers)}")

    return new
