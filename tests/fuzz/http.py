"""HTTP requests, changed: `python -m tests.fuzz.http --inputs 100000`.

A real gateway with security on a real agent, in this process; connections are its own, fed without a socket. The corpus is a
request of every operation of our own OpenAPI document, with a body made of its schema, and a few that are HTTP alone.

Left out is what asks servers that somebody configured in a pipeline: none is there, and every such request waits for its timeout.
"""

import base64
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import httpx
from tests.fuzz.callers import Callers, known_callers
from tests.fuzz.campaign import Target, main
from tests.fuzz.mutations import mutated, random_of
from tests.fuzz.transport import DiscardingTransport
from tests.support.kafka_wire import KafkaGateway, gateway_on
from tests.support.waiting import async_until

from holdfast.agent.administration import ClusterAdministration
from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.gateways.http.access_policy import HostPolicy
from holdfast.gateways.http.backend import HttpBackend
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.security import HttpSecurity
from holdfast.gateways.http.server import HttpServer, serving_http
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.http.uvicorn_server import HttpConnection
from holdfast.gateways.log_access.backend import LogBackend
from holdfast.pipeline.service.service import PipelineService
from holdfast.security.bootstrap import BootstrapToken
from holdfast.security.confirmations import Confirmations
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.sockets import bind

TOPIC, HEAP, GROUP, NEIGHBOUR = "orders", "jobs", "shop", "theirs"
ELSEWHERE = (
    *("/infer", "/preview", "/sample", "/table", "/table-diff", "/migration", "/start", "/rewind", "/backfill"),
    *("/validate/{what}", "/dlq", "/dlq/count", "/dlq/replay", "/backfill/{generation}"),
    *("/clickhouse/databases", "/clickhouse/tables", "/clickhouse/schema"),
)
NOBODY = "127.0.0.1:9"
PATIENCE_MS, REQUEST_MS = 50, 5_000
SLOW_MAX, SLOW_MS = 200, 2 * REQUEST_MS
_LENGTH = b"content-length: "
_TEXTS = {"topic": TOPIC, "group": GROUP, "user": "ann", "prefix": "hfk", "agent": "ann", "what": "mapping"}
_PLAIN = (
    b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET / HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\r\n",
    b"OPTIONS /api/v1/topics HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\r\n",
    b"POST /api/v1/login HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"POST /api/v1/login HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
    b"GET /live HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


class Examples:
    """Values for the schemas of a document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas = document.get("components", {}).get("schemas", {})

    def of(self, schema: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
        """A value that the schema allows, or nearly."""
        if "$ref" in schema:
            return self.of(self._schemas[schema["$ref"].rsplit("/", 1)[1]], name, depth)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self.of(schema[choice][0], name, depth)
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type")
        match kind[0] if isinstance(kind, list) else kind:
            case "object":
                inner = schema.get("properties", {}) if depth < 4 else {}
                return {each: self.of(value, each, depth + 1) for each, value in inner.items()} or {"x": "y"}
            case "array":
                return [self.of(schema.get("items") or {}, name, depth + 1)] if depth < 4 else []
            case "integer":
                return 0 if name.startswith("partition") else max(1, schema.get("minimum", 1))
            case "number":
                return 1.5
            case "boolean":
                return True
            case "null":
                return None
        return _TEXTS.get(name, "x")


def corpus(document: Mapping[str, Any]) -> list[bytes]:
    """A request of every operation; those of heaps for a topic that is none, too."""
    examples, requests = Examples(document), list(_PLAIN)
    for path, operations in document["paths"].items():
        if path.endswith(ELSEWHERE):
            continue
        for method, operation in operations.items():
            requests += _requests(examples, method.upper(), path, operation)
    return requests


def _requests(examples: Examples, method: str, path: str, operation: Mapping[str, Any]) -> Iterator[bytes]:
    heap = path.startswith("/v1/")
    given = {
        where: {
            each["name"]: examples.of(each.get("schema", {}), each["name"])
            for each in operation.get("parameters", ())
            if each["in"] == where
        }
        for where in ("path", "query", "header")
    }
    content = operation.get("requestBody", {}).get("content", {})
    bodies = {kind: examples.of(value.get("schema", {})) for kind, value in content.items()} or {"": None}
    topics = (HEAP, TOPIC) if heap else (TOPIC,)
    for topic in topics if method != "DELETE" else ("gone",):  # the others are for what comes next
        for kind, body in bodies.items():
            for values in (*given.values(), *([body] if isinstance(body, dict) else ())):
                if "topic" in values:
                    values["topic"] = topic
            yield _request(method, path, given, kind, body)


def _request(method: str, path: str, given: Mapping[str, Mapping[str, Any]], kind: str, body: Any) -> bytes:
    for name, value in given["path"].items():
        path = path.replace(f"{{{name}}}", quote(str(value)))
    if given["query"]:
        path += "?" + urlencode(given["query"])
    head = [f"{method} {path} HTTP/1.1", "host: localhost"]
    head += [f"{name}: {value}" for name, value in given["header"].items()]
    sent = b""
    if kind:
        sent = json.dumps(body).encode()
        head += [f"content-type: {kind}", f"{_LENGTH.decode()}{len(sent)}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + sent


def with_length(request: bytes) -> bytes:
    """The request with the length that its body has."""
    head, end, body = request.partition(b"\r\n\r\n")
    lines = [
        _LENGTH + str(len(body)).encode() if each.lower().startswith(_LENGTH) else each for each in head.split(b"\r\n")
    ]
    return b"\r\n".join(lines) + end + body


class HttpTarget:
    """The gateway of one campaign."""

    def __init__(
        self, server: HttpServer, neighbour: httpx.AsyncClient, callers: Callers, requests: list[bytes], clock: Clock
    ) -> None:
        self._clock = clock
        self._slow: dict[Any, int] = {}  # and since when
        assert server._inner is not None
        self._inner, self._neighbour, self._requests = server._inner, neighbour, requests
        keys = {name: f"Bearer {key}".encode() for name, key in callers.keys.items()}
        self._root, self._ann = keys["root"], keys["ann"]
        self._wrong = [keys["ann"], b"Basic " + base64.b64encode(b"ann:wrong"), b"Bearer ", b"x"]

    def input(self, seed: int, number: int) -> bytes:
        random = random_of(seed, number)
        data = mutated(random.choice(self._requests), random, self._requests)
        if random.random() < 0.8:
            data = with_length(data)
        line, end, rest = data.partition(b"\r\n")
        data = line + end + b"authorization: " + self._authorization(number) + b"\r\n" + rest
        return data + (random.choice(self._requests) if random.random() < 0.1 else b"")

    def _authorization(self, number: int) -> bytes:
        if number % 32 == 0:
            random = random_of(0, number)
            return mutated(random.choice(self._wrong), random, self._wrong)
        return self._ann if number % 4 == 0 else self._root

    async def feed(self, inputs: Sequence[bytes], numbers: Sequence[int]) -> None:
        opened = [self._receive(data) for data in inputs]
        began_ms = self._clock.boot_ms()
        while any(connection._busy and not transport.closed for connection, transport in opened):
            if self._clock.boot_ms() - began_ms > PATIENCE_MS:
                break
            await self._clock.sleep_ms(1)
        for _, transport in opened:  # the client goes, whether it has its answer or not
            transport.close()
        await self._wait_for_slow()

    async def _wait_for_slow(self) -> None:
        """What is under way ends by itself, within the deadline of a request: the next inputs need not wait for a few."""
        while True:
            now_ms = self._clock.boot_ms()
            running = self._inner.server_state.tasks
            self._slow = {task: self._slow.get(task, now_ms) for task in running}
            oldest_ms = min(self._slow.values(), default=now_ms)
            if len(self._slow) < SLOW_MAX and now_ms - oldest_ms < SLOW_MS:
                return
            await self._clock.sleep_ms(5)

    def _receive(self, data: bytes) -> tuple[HttpConnection, DiscardingTransport]:
        connection = cast(HttpConnection, self._inner._connection())
        transport = DiscardingTransport(connection)
        connection.connection_made(transport)
        connection.data_received(data)
        return connection, transport

    async def neighbour_is_served(self) -> bool:
        answer = await self._neighbour.get("/api/v1/topics", headers={"authorization": self._root.decode()})
        return NEIGHBOUR in [each["name"] for each in answer.json()]


def _backend(kafka: KafkaGateway, callers: Callers, heaps: HeapCalls) -> HttpBackend:
    node, clock, random = kafka.node, kafka.backend.clock, kafka.backend.random
    settings, counters = HttpSettings(request_ms=REQUEST_MS, forward_ms=2_000, requests_max=1_000), RequestCounters()
    return HttpBackend(
        access_policy=HostPolicy.of(settings, loopback=True),
        checks=(),
        metrics=[counters.families],
        open_pipelines=lambda: PipelineService(node.store, clock=clock, random=random, bootstrap=NOBODY),
        confirmations=Confirmations(node.store, clock=clock, random=random),
        clock=clock,
        random=random,
        log=LogBackend(
            log=node.service,
            cluster=node.agent.cluster,
            administration=ClusterAdministration(node.store, clock=clock, random=random),
            bootstrap=f"127.0.0.1:{kafka.port}",
            clock=clock,
            random=random,
        ),
        heaps=heaps,
        security=HttpSecurity(
            authenticator=callers.authenticator,
            control=callers.control,
            audit=callers.audit,
            bootstrap=BootstrapToken(node.store, clock=clock, random=random),
        ),
        settings=settings,
        counters=counters,
    )


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Target]:
    """A topic, a heap and two callers. The neighbour has a connection with a socket."""
    async with AsyncExitStack() as stack:
        kafka = await stack.enter_async_context(gateway_on(folder, topics={TOPIC: 2, NEIGHBOUR: 1}))
        node, clock, random = kafka.node, kafka.backend.clock, kafka.backend.random
        callers = await stack.enter_async_context(known_callers(node.store, clock=clock, random=random))
        await node.agent.heaps.administration.create(HEAP, 2, {}, {"durability": "local"})
        await async_until(lambda: all(node.agent.heaps.serves(HEAP, number) for number in range(2)))
        heaps = HeapCalls(HeapBackend(heaps=node.agent.heaps, cluster=node.agent.cluster, clock=clock, random=random))
        stack.callback(heaps.close)
        sockets = bind("127.0.0.1", 0)
        for each in sockets:
            stack.callback(each.close)
        server = await stack.enter_async_context(serving_http(_backend(kafka, callers, heaps), sockets))
        await server.listening.wait()
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        neighbour = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))
        yield HttpTarget(server, neighbour, callers, corpus(await _document(neighbour)), clock)


async def _document(neighbour: httpx.AsyncClient) -> Any:
    """Whoever asks first has it generated, which on a busy machine may take longer than a request may."""
    while (response := await neighbour.get("/openapi.json")).status_code == HTTPStatus.GATEWAY_TIMEOUT:
        pass
    return response.raise_for_status().json()


if __name__ == "__main__":
    sys.exit(main("http", opened))
