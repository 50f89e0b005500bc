"""Requests that wait, behind others or for records, keep the memory of the server from nobody for long."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import certificate
from tests.support.kafka_wire import (
    FETCH,
    PRODUCE,
    KafkaGateway,
    WireClient,
    fetch_request,
    gateway_on,
    produce_request,
    request_frame,
)
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.security.client_quotas import Quota, QuotaEntity
from holdfast.vocabulary.settings import MIB

LONG_MS = 200_000
ORDERS = {"orders": 1}


def framed(key: int, version: int, given: dict[str, Any], *, padding: int = 0) -> bytes:
    frame = request_frame(key, version, given, correlation=1, client_id="tests") + bytes(padding)
    return len(frame).to_bytes(4, "big") + frame


def long_poll(*, padding: int = 0) -> bytes:
    return framed(FETCH, 12, fetch_request("orders", {0: 0}, wait_ms=LONG_MS), padding=padding)


def large_produce(size: int = 1_000_000) -> bytes:
    return framed(PRODUCE, 9, produce_request("orders", {0: batch("x" * size)}))


def send_on(client: WireClient, data: bytes) -> None:
    """Send as much as is read."""
    client.writer.write(data)


async def is_served(gateway: KafkaGateway) -> bool:
    """Whether another client's large request is answered."""
    client = await gateway.client()
    client.client_id = "neighbour"
    async with asyncio.timeout(20):
        answer = await client.ask(PRODUCE, 9, produce_request("orders", {0: batch("x" * 200_000)}))
    return bool(answer.responses[0].partition_responses[0].error_code.value == 0)


def unread(gateway: KafkaGateway) -> int:
    return sum(each._read_paused for each in gateway.server.connections)


async def throttle(gateway: KafkaGateway, client_id: str) -> None:
    quotas = gateway.backend.quotas
    await quotas.seen(await quotas.store.alter(QuotaEntity(None, client_id), {Quota.PRODUCE: 100.0}))


async def test_little_is_read_behind_a_long_poll(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics=ORDERS, requests_bytes_max=8 * MIB, stalled_ms=60_000) as gateway:
        for _ in range(4):
            send_on(await gateway.client(), long_poll() + 10 * large_produce())
        await async_until(lambda: unread(gateway) == 4)
        assert gateway.server.used_bytes < 8 * MIB
        assert await is_served(gateway)


async def test_what_is_not_read_behind_a_long_poll_is_read_after_it(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics=ORDERS) as gateway:
        client = await gateway.client()
        send_on(client, long_poll() + 10 * large_produce())
        await async_until(lambda: unread(gateway) == 1)
        assert await is_served(gateway)  # a record for the long poll
        async with asyncio.timeout(20):
            for _ in range(11):
                await client.receive()
        await async_until(lambda: gateway.server.used_bytes == 0)


async def test_large_long_polls_give_way(tmp_path: Path) -> None:
    """Those of consumers, which are small, do not."""
    async with gateway_on(tmp_path, topics=ORDERS, requests_bytes_max=8 * MIB, stalled_ms=100) as gateway:
        consumers = [await gateway.client() for _ in range(5)]
        for each in consumers:
            await each.send_bytes(long_poll())
        for _ in range(9):
            await (await gateway.client()).send_bytes(long_poll(padding=MIB))
        await async_until(lambda: gateway.server.full)
        assert await is_served(gateway)
        async with asyncio.timeout(20):
            for each in consumers:
                await each.receive()
        assert len(gateway.server.connections) >= 5 + 7  # no more of them are closed than it takes


async def test_a_long_poll_does_not_keep_the_memory_of_its_request(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics=ORDERS) as gateway:
        client = await gateway.client()
        await client.send_bytes(long_poll(padding=MIB))
        await async_until(lambda: gateway.server.requests == 1)
        (connection,) = gateway.server.connections
        await async_until(lambda: len(connection._in_flight[0].body) == 0)  # type: ignore[union-attr]


async def test_a_client_in_a_pause_begins_no_large_request(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics=ORDERS, requests_bytes_max=8 * MIB, stalled_ms=60_000) as gateway:
        await throttle(gateway, "tests")
        for _ in range(3):
            client = await gateway.client()
            await client.send_bytes(large_produce(50_000) + (95 * MIB).to_bytes(4, "big") + bytes(8))
            await client.receive()
        assert sum(each._muted is not None for each in gateway.server.connections) == 3
        assert await is_served(gateway)
        assert len(gateway.server.connections) == 4


async def test_a_large_request_is_taken_when_the_pause_is_over(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics=ORDERS) as gateway:
        await throttle(gateway, "tests")
        client = await gateway.client()
        send_on(client, large_produce(50_000) + large_produce())
        await client.receive()
        (connection,) = gateway.server.connections
        assert connection._held is not None
        connection._unmute()
        async with asyncio.timeout(20):
            await client.receive()


async def test_a_request_that_has_begun_to_arrive_before_a_pause_is_read_on_or_found(tmp_path: Path) -> None:
    """Not read, it would keep its memory, and its client could not be told from one that sends."""
    async with gateway_on(tmp_path, topics=ORDERS, stalled_ms=100) as gateway:
        await throttle(gateway, "tests")
        whole, partial = await gateway.client(), await gateway.client()
        await whole.send_bytes(large_produce()[:500_000])
        await partial.send_bytes((255 * MIB // 3).to_bytes(4, "big") + bytes(8))
        await async_until(lambda: sum(each._frame is not None for each in gateway.server.connections) == 2)
        for each in gateway.server.connections:
            each._mute(LONG_MS)
            each._update_flow_control()
        await whole.send_bytes(large_produce()[500_000:])
        await async_until(lambda: sum(each._frame is not None for each in gateway.server.connections) == 1)
        for _ in range(2):
            await (await gateway.client()).send_bytes((99 * MIB).to_bytes(4, "big") + bytes(8))
        await async_until(lambda: gateway.server.full)
        assert await is_served(gateway)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_a_client_that_is_gone_is_noticed_though_it_is_not_read(tmp_path: Path, tls: bool) -> None:
    settings: dict[str, Any] = {}
    context: ssl.SSLContext | None = None
    if tls:
        trusted, key = certificate(tmp_path, "node")
        settings = {"tls_cert": str(trusted), "tls_key": str(key)}
        context = ssl.create_default_context(cafile=str(trusted))
    async with gateway_on(tmp_path, topics=ORDERS, **settings) as gateway:
        clients = [WireClient(*await asyncio.open_connection("127.0.0.1", gateway.port, ssl=context)) for _ in range(2)]
        for each in clients:
            await each.send_bytes(long_poll() + large_produce(2 * MIB) + large_produce(50_000))
        await async_until(lambda: unread(gateway) == 2)
        gateway.server.close_gone()
        clients[0].writer.transport.abort()

        def left() -> int:
            gateway.server.close_gone()
            return len(gateway.server.connections)

        await async_until(lambda: left() == 1)
        assert gateway.server.used_bytes < 3 * MIB
        clients[1].close()


async def test_what_a_client_has_sent_before_it_closed_is_handled_after_a_pause(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics=ORDERS) as gateway:
        await throttle(gateway, "tests")
        client = await gateway.client()
        unanswered = framed(PRODUCE, 9, produce_request("orders", {0: batch("x" * 5_000)}, acks=0))
        await client.send_bytes(unanswered)
        await async_until(lambda: unread(gateway) == 1)
        await client.send_bytes(unanswered)
        client.close()
        await client.writer.wait_closed()
        (connection,) = gateway.server.connections
        for _ in range(2):
            gateway.server.close_gone()
            if connection._muted is not None:
                connection._unmute()
            await async_until(lambda: not gateway.server.connections or connection._muted is not None)
        await async_until(lambda: end_of_orders(gateway) == 2)


def end_of_orders(gateway: KafkaGateway) -> int:
    found = gateway.backend.log.read_now("orders", 0, 0, bytes_max=MIB)
    return 0 if found is None else found.high_watermark
