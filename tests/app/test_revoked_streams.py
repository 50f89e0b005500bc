"""What lasts at either of two real servers, some of it read from the other: it ends with the credentials that opened it."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import httpx
import pytest
from tests.support.kafka_security import SecureClient
from tests.support.kafka_wire import WireClient, fetch_request
from tests.support.secured_nodes import PARTITIONS, TOPIC, V1, Nodes, two_secured_nodes
from tests.support.secured_server import SecuredServer, allowed
from tests.support.text import TextClient
from tests.support.waiting import WAIT_S, async_until, until

from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation, ResourceType
from holdfast.v1 import fetch_service_pb2
from holdfast.v1 import heap_service_pb2 as heaps
from holdfast.v1.fetch_service_pb2_grpc import FetchServiceStub
from holdfast.v1.heap_service_pb2_grpc import HeapServiceStub

HEAP, LONG_MS = "jobs", 25_000
SERVERS = [0, 1]  # one of them leads what the other forwards
_names = itertools.count()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with two_secured_nodes(tmp_path_factory.mktemp("streams")) as both:
        answer = both.root[0].post("/v1/heaps", json={"topic": HEAP, "durability": "local"})
        assert answer.status_code == httpx.codes.CREATED, answer.text
        yield both


class Reader:
    """Somebody who may read the topic and the heap, with a key, at one of the servers."""

    def __init__(self, nodes: Nodes, number: int) -> None:
        self.nodes, self.node = nodes, nodes.both[number]
        self.name = f"reader-{next(_names)}"
        nodes.ann.administer(acls=allowed(self.name, (Operation.READ, ResourceType.TOPIC)))
        self.prefix, self.secret = nodes.ann.create_key(self.name)
        self.metadata = (("authorization", f"Bearer {self.secret}"),)
        with self.node.with_key(self.secret) as client:
            query = {"topic": TOPIC}
            until(lambda: client.get(f"{V1}/consume", params=query).status_code == httpx.codes.OK, what="it may read")

    def revoke(self) -> None:
        """At the first server, whichever it reads from."""
        assert self.nodes.root[0].delete(f"{V1}/keys/{self.prefix}").is_success

    def forbid(self) -> None:
        rule = {"principal": f"User:{self.name}", "operation": "read", "resourceType": "topic", "resourceName": "*"}
        assert self.nodes.root[0].post(f"{V1}/acls", json=[{**rule, "permission": "deny"}]).is_success

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.node.http, timeout=WAIT_S, headers=dict(self.metadata), verify=False)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        async with grpc.aio.insecure_channel(self.node.grpc) as channel:
            yield channel


@pytest.fixture
def reader(nodes: Nodes, number: int) -> Reader:
    """`number`: of the server."""
    return Reader(nodes, number)


def write(nodes: Nodes) -> None:
    """A record to each partition."""
    for partition in range(PARTITIONS):
        body = {"topic": TOPIC, "value": "x", "partition": partition}
        assert nodes.root[0].post(f"{V1}/produce", json=body).is_success


def partitions(nodes: Nodes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nodes.root[0].get(f"{V1}/topics/{TOPIC}/partitions").json()
    return found


def waits(nodes: Nodes, node: SecuredServer) -> int:
    lines = nodes.root[nodes.both.index(node)].get("/metrics").text.splitlines()
    return int(next(line for line in lines if line.startswith("holdfast_http_waits ")).split()[1])


async def ended(call: Any) -> grpc.StatusCode:
    """The status that a stream ends with; nothing more comes before."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        assert await call.read() is None
    return error.value.code()


@pytest.mark.parametrize("number", SERVERS)
@pytest.mark.parametrize("how", ["revoke", "forbid"])
async def test_streams_of_records_end_with_what_opened_them(nodes: Nodes, reader: Reader, how: str) -> None:
    idle = waits(nodes, reader.node)
    async with (
        reader.http() as client,
        reader.channel() as channel,
        client.stream("GET", f"{V1}/topics/{TOPIC}/tail") as tail,
    ):
        lines = tail.aiter_lines()
        assert (await anext(lines)).startswith("retry")
        asked = fetch_service_pb2.FetchRequest(topic=TOPIC, heartbeat_ms=LONG_MS)
        fetch = FetchServiceStub(channel).Fetch(asked, metadata=reader.metadata, timeout=WAIT_S)
        write(nodes)
        await _read_both(nodes, lines, fetch)
        query: dict[str, str | int] = {"topic": TOPIC, "offset": "latest", "waitMs": LONG_MS}
        polls = [
            asyncio.ensure_future(client.get(f"{V1}/consume", params={**query, "partition": each}))
            for each in range(PARTITIONS)
        ]
        await async_until(lambda: waits(nodes, reader.node) == idle + 1 + PARTITIONS)
        getattr(reader, how)()
        code = {"revoke": grpc.StatusCode.UNAUTHENTICATED, "forbid": grpc.StatusCode.PERMISSION_DENIED}[how]
        assert await ended(fetch) is code
        assert [line async for line in lines if line.startswith("data")] == []
        assert {each.status_code for each in await asyncio.gather(*polls)} == {httpx.codes.UNAUTHORIZED}
    write(nodes)


async def _read_both(nodes: Nodes, lines: AsyncIterator[str], fetch: Any) -> None:
    """Both streams have everything of both partitions, one of which the other server leads."""
    ends = {each["partition"]: each["endOffset"] for each in partitions(nodes)}
    tailed: dict[int, int] = {}
    while tailed != ends:
        line = await anext(lines)
        if line.startswith("data"):
            record = json.loads(line.removeprefix("data: "))
            tailed[record["partition"]] = record["offset"] + 1
    fetched: dict[int, int] = {}
    while fetched != ends:
        response = await fetch.read()
        fetched[response.partition] = response.records[-1].offset + 1


@pytest.mark.parametrize("number", SERVERS)
@pytest.mark.parametrize("how", ["revoke", "forbid"])
async def test_pops_that_wait_end_with_what_opened_them(nodes: Nodes, reader: Reader, how: str) -> None:
    idle, heap, root = waits(nodes, reader.node), f"jobs-of-{reader.name}", nodes.root[0]

    def enqueue() -> None:
        assert root.post("/v1/enqueue", json={"topic": heap, "payload": "x"}).is_success

    assert root.post("/v1/heaps", json={"topic": heap, "durability": "local"}).is_success
    async with reader.http() as client, reader.channel() as channel:
        stream = HeapServiceStub(channel).PopStream(metadata=reader.metadata, timeout=WAIT_S)
        await stream.write(heaps.PopStreamRequest(filter=heaps.PopFilter(topic=heap)))
        await stream.write(heaps.PopStreamRequest(flow_control=heaps.FlowControl(credits=100)))
        enqueue()
        assert len((await stream.read()).items) == 1
        pop = asyncio.ensure_future(client.post("/v1/pop", json={"topic": heap, "wait_ms": LONG_MS}))
        await async_until(lambda: waits(nodes, reader.node) == idle + 1)
        getattr(reader, how)()
        code = {"revoke": grpc.StatusCode.UNAUTHENTICATED, "forbid": grpc.StatusCode.PERMISSION_DENIED}[how]
        assert await ended(stream) is code
        assert (await pop).status_code == httpx.codes.UNAUTHORIZED
        enqueue()
        (found,) = root.get("/v1/stats", params={"topic": heap}).json()["heaps"]
        assert (found["ready"], found["inflight"]) == (1, 1), "nothing is leased to who may not have it"


@pytest.mark.parametrize("number", SERVERS)
async def test_connections_end_with_the_key_that_has_logged_in(nodes: Nodes, reader: Reader) -> None:
    """Also those that say nothing, and a fetch that waits for records longer than anybody would."""
    host, _, port = reader.node.kafka.rpartition(":")
    idle, fetching = [SecureClient(WireClient(*await asyncio.open_connection(host, int(port)))) for _ in range(2)]
    text = TextClient(reader.node.text)
    try:
        for each in (idle, fetching):
            assert await each.log_in("PLAIN", "token", reader.secret) is ErrorCode.NONE
        led, end = next(
            (each["partition"], each["endOffset"])
            for each in partitions(nodes)
            if each["leaderAddress"] == reader.node.kafka
        )
        await fetching.wire.send(ApiKey.FETCH, 11, fetch_request(TOPIC, {led: end}, wait_ms=LONG_MS))
        async with text:
            assert await text.one(f"AUTH {reader.secret}") == b"OK"
            reader.revoke()
            assert await text.reader.read() == b""
        for each in (idle, fetching):
            assert await each.wire.hung_up()
    finally:
        for each in (idle, fetching):
            each.wire.close()


@pytest.mark.parametrize("number", SERVERS)
async def test_a_stream_shows_nothing_to_who_may_not_read(nodes: Nodes, reader: Reader) -> None:
    """What is read at the other server is read by a node, which may read everything."""
    reader.forbid()
    node, secret = reader.node, reader.secret
    with node.with_key(secret) as client:
        query: dict[str, str | int] = {"topic": TOPIC}
        until(lambda: client.get(f"{V1}/consume", params=query).status_code == httpx.codes.FORBIDDEN)
        for partition in range(PARTITIONS):
            query |= {"partition": partition, "waitMs": LONG_MS}
            assert client.get(f"{V1}/consume", params=query).status_code == httpx.codes.FORBIDDEN
            tail = client.get(f"{V1}/topics/{TOPIC}/tail", params={"partition": partition})
            assert tail.status_code == httpx.codes.FORBIDDEN
        assert client.post("/v1/pop", json={"topic": HEAP}).status_code == httpx.codes.FORBIDDEN
    metadata = reader.metadata
    async with reader.channel() as channel:
        fetch = FetchServiceStub(channel).Fetch(fetch_service_pb2.FetchRequest(topic=TOPIC), metadata=metadata)
        assert await ended(fetch) is grpc.StatusCode.PERMISSION_DENIED
        stream = HeapServiceStub(channel).PopStream(metadata=metadata)
        with suppress(grpc.aio.AioRpcError):  # who may read no heap at all is refused before anything is read
            await stream.write(heaps.PopStreamRequest(filter=heaps.PopFilter(topic=HEAP)))
        assert await ended(stream) is grpc.StatusCode.PERMISSION_DENIED
