"""Quotas of IP addresses: whoever connects too often waits, then is closed after a second; nobody else notices."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.certificates import certificate
from tests.support.kafka_wire import METADATA, KafkaGateway, WireClient, gateway_on
from tests.support.waiting import async_until

from holdfast.cli.serve import fast_loop
from holdfast.gateways.http.metrics.kafka import kafka_metrics
from holdfast.gateways.kafka.connection import KafkaConnection
from holdfast.gateways.kafka.connection_throttle import ConnectionThrottle
from holdfast.security.client_quotas import DEFAULT, Quota, QuotaEntity
from holdfast.vocabulary.clock import FakeClock

BURST = 10  # of one connection per second
LONG_MS = 3_600_000
Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, fast_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_in_loop(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)  # type: ignore[arg-type]

    return run_in_loop


@asynccontextmanager
async def throttled_gateway(directory: Path, ip: str = "127.0.0.1", **settings: Any) -> AsyncIterator[KafkaGateway]:
    """A gateway for which time stands still, and that allows an address one connection per second."""
    async with gateway_on(directory, **settings) as gateway:
        quotas = gateway.backend.quotas
        await quotas.seen(await quotas.store.alter(QuotaEntity(ip=ip), {Quota.CONNECTIONS: 1}))
        throttle = ConnectionThrottle(gateway.backend.meters, FakeClock(), closing_max=5)
        gateway.server.throttle = throttle
        if gateway.server.tls is not None:
            gateway.server.tls._gate = throttle
        yield gateway


async def connected(
    gateway: KafkaGateway, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> WireClient:
    opening = asyncio.open_connection("127.0.0.1", gateway.port, local_addr=(host, 0), ssl=context)
    client = WireClient(*await opening)
    gateway._clients.append(client)
    return client


async def asked(client: WireClient) -> Any:
    return await client.ask(METADATA, 9, {"topics": None})


async def burst(gateway: KafkaGateway) -> None:
    """As many connections as are served at once."""
    for _ in range(BURST):
        await asked(await connected(gateway))


def test_a_connection_beyond_the_rate_is_served_later(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_ms: list[int] = []
    mute = KafkaConnection._mute

    def mute_for_long(connection: KafkaConnection, pause_ms: int) -> None:
        pauses_ms.append(pause_ms)
        mute(connection, LONG_MS)

    monkeypatch.setattr(KafkaConnection, "_mute", mute_for_long)

    async def body() -> None:
        async with throttled_gateway(tmp_path) as gateway:
            await burst(gateway)
            late = await connected(gateway)
            await late.send(METADATA, 9, {"topics": None})
            await async_until(lambda: pauses_ms == [1_000])
            await asked(await connected(gateway, "127.0.0.2"))  # it has no limit, and does not wait
            (muted,) = [each for each in gateway.server.connections if each._muted is not None]
            await async_until(lambda: len(muted._queued) == 1)
            muted._unmute()
            await late.receive()
            assert gateway.server.throttled_connections == {"delayed": 1, "closed": 0}

    run(body())


def test_a_connection_that_would_wait_longer_is_closed(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with throttled_gateway(tmp_path, ip=DEFAULT) as gateway:
            await burst(gateway)
            late = await connected(gateway)
            too_many = [await connected(gateway) for _ in range(3)]
            await async_until(lambda: gateway.server.throttled_connections["closed"] == 3)
            assert len(gateway.server.connections) == BURST + 1
            await asked(await connected(gateway, "127.0.0.2"))
            for each in too_many:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await asked(each)
            await asked(late)
            assert gateway.server.throttled_connections == {"delayed": 1, "closed": 3}
            assert [each.message for each in caplog.records if "per second" in each.message] == [
                "closing connections from 127.0.0.1: more than 1 per second"
            ]
            families = await kafka_metrics(gateway.server, (), gateway.backend.responses, ())()
            found = {each.name: each.samples for each in families}
            assert list(found["holdfast_kafka_throttled_connections_total"]) == [
                ({"outcome": "closed"}, 3),
                ({"outcome": "delayed"}, 1),
            ]
            assert ({"quota": "connection_creation_rate"}, 4) in found["holdfast_kafka_throttled_seconds_total"]

    run(body())


async def test_an_address_that_connects_all_the_time_keeps_nobody_out(tmp_path: Path) -> None:
    async with throttled_gateway(tmp_path, connections_max=BURST + 3) as gateway:
        await burst(gateway)
        for _ in range(50):
            await connected(gateway)
        await async_until(lambda: gateway.server.throttled_connections["closed"] == 49)
        assert gateway.server.throttle.closing <= 5
        await asked(await connected(gateway, "127.0.0.2"))


async def test_a_quota_that_is_removed_counts_no_longer(tmp_path: Path) -> None:
    async with throttled_gateway(tmp_path) as gateway:
        await burst(gateway)
        assert gateway.server.throttle.addresses == 1
        quotas = gateway.backend.quotas
        await quotas.seen(await quotas.store.alter(QuotaEntity(ip="127.0.0.1"), {Quota.CONNECTIONS: None}))
        for _ in range(5):
            await asked(await connected(gateway))
        assert gateway.server.throttled_connections == {"delayed": 0, "closed": 0}


def test_with_tls_it_is_decided_before_the_handshake(run: Run, tmp_path: Path) -> None:
    own, key = certificate(tmp_path, "node")
    context = ssl.create_default_context(cafile=str(own))

    async def body() -> None:
        async with throttled_gateway(tmp_path, tls_cert=str(own), tls_key=str(key)) as gateway:
            for _ in range(BURST):
                await asked(await connected(gateway, context=context))
            clock = gateway.server.throttle._clock
            assert isinstance(clock, FakeClock)
            late = asyncio.ensure_future(connected(gateway, context=context))
            await async_until(lambda: gateway.server.throttled_connections["delayed"] == 1)
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await connected(gateway, context=context)  # closed, after a second
            await asked(await connected(gateway, "127.0.0.2", context))
            assert not late.done()
            clock.advance_ms(1_000)
            await asked(await late)
            assert gateway.server.throttled_connections == {"delayed": 1, "closed": 1}

    run(body())


async def test_clients_get_through_beyond_the_rate(tmp_path: Path) -> None:
    async with gateway_on(tmp_path) as gateway:
        quotas = gateway.backend.quotas
        await quotas.seen(await quotas.store.alter(QuotaEntity(ip=DEFAULT), {Quota.CONNECTIONS: 1}))
        while not gateway.server.throttled_connections["closed"]:
            await gateway.client()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{gateway.port}"})
        assert (await asyncio.to_thread(admin.list_topics, timeout=60)).brokers
