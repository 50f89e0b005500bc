"""A real HTTP server on a real socket, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from holdfast.contracts.store import Store
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.http.access_policy import HostPolicy
from holdfast.gateways.http.asgi import Application
from holdfast.gateways.http.backend import HttpBackend
from holdfast.gateways.http.health import HealthCheck
from holdfast.gateways.http.metrics.exposition import MetricSource
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.middleware import RequestMiddleware
from holdfast.gateways.http.server import ApplicationFactory, HttpServer, serving_http
from holdfast.gateways.http.settings import HttpSettings
from holdfast.pipeline.service.service import PipelineService
from holdfast.security.confirmations import Confirmations, ConfirmationSettings
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.sockets import bind

WAIT_S = 30.0

SOURCE = {"topic": "orders"}
SINK = {"table": "orders"}
MAPPING = {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False}]}


@dataclass
class RunningHttpGateway:
    """A running server, and a client of it."""

    server: HttpServer
    client: httpx.AsyncClient
    port: int

    @property
    def counters(self) -> RequestCounters:
        return self.server.backend.counters

    async def raw(self, sent: bytes) -> bytes:
        """All bytes of the response until the server closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(sent)
            await writer.drain()
            async with asyncio.timeout(WAIT_S):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def running_http_gateway(
    *,
    loopback: bool = True,
    checks: Sequence[HealthCheck] = (),
    metrics: Sequence[MetricSource] = (),
    factory: ApplicationFactory | None = None,
    store: Store | None = None,
    bootstrap: str = "",
    clickhouse: str = "",
    confirmations: str = "",
    heaps: HeapCalls | None = None,
    **settings: Any,
) -> AsyncIterator[RunningHttpGateway]:
    """A server with these limits, for the body. Without a `store` it has one of its own, in memory."""
    clock, random = RealClock(), SystemRandom()
    tuned = HttpSettings(**settings)
    counters = RequestCounters()
    sockets = bind("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    async with AsyncExitStack() as stack:
        for each in sockets:
            stack.callback(each.close)
        opened: Store = (
            store
            if store is not None
            else await stack.enter_async_context(open_store("memory:", clock=clock, random=random))
        )
        backend = HttpBackend(
            access_policy=HostPolicy.of(tuned, loopback=loopback),
            checks=checks,
            metrics=[*metrics, counters.families],
            open_pipelines=lambda: PipelineService(
                opened, clock=clock, random=random, bootstrap=bootstrap, embedded=clickhouse
            ),
            confirmations=Confirmations(
                opened, clock=clock, random=random, settings=ConfirmationSettings(required=confirmations)
            ),
            clock=clock,
            random=random,
            heaps=heaps,
            settings=tuned,
            counters=counters,
        )
        server = await stack.enter_async_context(serving_http(backend, sockets, factory=factory))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S))
        await server.listening.wait()
        yield RunningHttpGateway(server, client, port)


def behind_middleware(answer: Callable[[Any, Any, Any], Awaitable[None]]) -> ApplicationFactory:
    """The middleware around one function instead of the routes."""

    def make(backend: HttpBackend, pipelines: PipelineService) -> Application:
        return RequestMiddleware(
            answer,
            access_policy=backend.access_policy,
            counters=backend.counters,
            settings=backend.settings,
            clock=backend.clock,
            random=backend.random,
        )

    return make


async def send_response(send: Any, body: bytes = b"{}", status: int = 200) -> None:
    """Send a response."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the request body."""
    message = await receive()
    await send_response(send, message["body"] or b"{}")


def problem_of(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """The problem of a response, with all members of RFC 9457."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = answer.json()
    assert said["type"] == f"urn:holdfast:problem:{name}"
    assert said["status"] == status
    assert said["title"]
    assert said["detail"]
    return said


async def create_pipeline(client: httpx.AsyncClient, name: str = "orders", **parts: Any) -> str:
    """Create a pipeline with these parts; its path."""
    answer = await client.post("/api/pipelines", json={"name": name, "description": "of the shop"})
    assert answer.status_code == 201, answer.text
    path = answer.headers["location"]
    if parts:
        saved = await client.put(f"{path}/parts", json=parts)
        assert saved.status_code == 200, saved.text
    return str(path)
