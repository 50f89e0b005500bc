"""A real HTTP server on a real socket, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from holdfast.contracts.store import Store
from holdfast.gateways.http.asgi import Application
from holdfast.gateways.http.backend import Backend
from holdfast.gateways.http.doors import Doors
from holdfast.gateways.http.guard import Guard
from holdfast.gateways.http.health import Check
from holdfast.gateways.http.metrics.exposition import Source
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.server import HttpServer, Make, serving_http
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.kafka.server import bind
from holdfast.pipeline.service import PipelineService
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealChance, RealClock

WAIT_S = 30.0


@dataclass
class Served:
    """A server that answers, and a client that talks to it."""

    server: HttpServer
    client: httpx.AsyncClient
    port: int

    @property
    def counters(self) -> RequestCounters:
        return self.server.backend.counters

    async def raw(self, sent: bytes) -> bytes:
        """Everything that comes back until the server hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(sent)
            await writer.drain()
            async with asyncio.timeout(WAIT_S):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    *,
    loopback: bool = True,
    checks: Sequence[Check] = (),
    metrics: Sequence[Source] = (),
    make: Make | None = None,
    store: Store | None = None,
    bootstrap: str = "",
    clickhouse: str = "",
    **settings: Any,
) -> AsyncIterator[Served]:
    """A server with these limits, for the body. Without a `store` it has one of its own, in memory."""
    clock, chance = RealClock(), RealChance()
    opened: list[Store] = []
    tuned = HttpSettings(**settings)
    counters = RequestCounters()
    backend = Backend(
        doors=Doors.of(tuned, loopback=loopback),
        checks=checks,
        metrics=[*metrics, counters.families],
        open_pipelines=lambda: PipelineService(
            opened[0], clock=clock, chance=chance, bootstrap=bootstrap, embedded=clickhouse
        ),
        clock=clock,
        chance=chance,
        settings=tuned,
        counters=counters,
    )
    sockets = bind("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    async with AsyncExitStack() as stack:
        for each in sockets:
            stack.callback(each.close)
        if store is None:
            store = await stack.enter_async_context(open_store("memory:", clock=clock, chance=chance))
        opened.append(store)
        server = await stack.enter_async_context(serving_http(backend, sockets, make=make))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S))
        await server.listening.wait()
        yield Served(server, client, port)


def guarded(answer: Callable[[Any, Any, Any], Awaitable[None]]) -> Make:
    """Everything around the routes, and in their place one function."""

    def make(backend: Backend, pipelines: PipelineService) -> Application:
        return Guard(
            answer,
            doors=backend.doors,
            counters=backend.counters,
            settings=backend.settings,
            clock=backend.clock,
            chance=backend.chance,
        )

    return make


async def plain(send: Any, body: bytes = b"{}", status: int = 200) -> None:
    """An answer."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def problem_of(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """The problem an answer is, which has everything RFC 9457 asks for."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = answer.json()
    assert said["type"] == f"urn:holdfast:problem:{name}"
    assert said["status"] == status
    assert said["title"]
    assert said["detail"]
    return said


async def until(condition: Callable[[], object], *, what: str) -> None:
    """Return once the condition holds."""
    clock = RealClock()
    deadline_ms = clock.boot_ms() + WAIT_S * 1000
    while not condition():
        assert clock.boot_ms() < deadline_ms, f"not within {WAIT_S} s: {what}"
        await clock.sleep_ms(5)
