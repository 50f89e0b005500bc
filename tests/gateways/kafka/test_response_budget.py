"""Responses that clients do not read: what they hold is limited, per connection and in total, and the slowest are closed."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    KafkaGateway,
    WireClient,
    fetch_request,
    gateway_on,
    request_frame,
)
from tests.support.waiting import async_until

from holdfast.log.batches import Record, encode
from holdfast.vocabulary.settings import MIB

BUDGET = 16 * MIB
VALUE_BYTES = 900_000


def unsent(gateway: KafkaGateway) -> int:
    """The bytes of responses in this process."""
    transports = (each._transport for each in gateway.server.connections)
    return sum(each.get_write_buffer_size() for each in transports if each is not None)


@asynccontextmanager
async def filled_gateway(directory: Path, **settings: Any) -> AsyncIterator[KafkaGateway]:
    """A gateway with more than 8 MiB of records in memory."""
    async with asyncio.timeout(60), gateway_on(directory, topics={"orders": 1}, **settings) as gateway:
        for _ in range(10):
            await gateway.backend.log.produce("orders", 0, encode([Record(0, 1, None, bytes(VALUE_BYTES))]))
        yield gateway


EVERYTHING = fetch_request("orders", {0: 0}, partition_bytes_max=8 * MIB, wait_ms=20)


class Sleeper:
    """A client that sends requests and reads nothing."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setblocking(False)

    async def send(self, gateway: KafkaGateway, key: int, version: int, given: dict[str, Any], count: int = 1) -> None:
        loop = asyncio.get_running_loop()
        if self.socket.getsockname()[1] == 0:
            await loop.sock_connect(self.socket, ("127.0.0.1", gateway.port))
        frame = request_frame(key, version, given, correlation=1, client_id="sleeper")
        await loop.sock_sendall(self.socket, (len(frame).to_bytes(4, "big") + frame) * count)


@asynccontextmanager
async def sleepers(gateway: KafkaGateway, count: int) -> AsyncIterator[list[Sleeper]]:
    """Clients that have asked for 8 MiB each and read nothing."""
    made = [Sleeper() for _ in range(count)]
    try:
        for each in made:
            await each.send(gateway, FETCH, 12, EVERYTHING)
        yield made
    finally:
        for each in made:
            each.socket.close()


async def read_everything(client: WireClient) -> int:
    answer = await client.ask(FETCH, 12, EVERYTHING)
    return len(answer.responses[0].partitions[0].records or b"")


async def test_clients_that_do_not_read_hold_no_more_than_the_budget(tmp_path: Path) -> None:
    async with filled_gateway(tmp_path, responses_bytes_max=BUDGET, unread_ms=300) as gateway:
        async with sleepers(gateway, 12):
            await async_until(lambda: gateway.server.requests >= 12)
            most = 0
            for _ in range(50):
                most = max(most, unsent(gateway))
                await gateway.backend.clock.sleep_ms(10)
            assert 0 < most <= BUDGET
        await async_until(lambda: not gateway.server.connections)
        await async_until(lambda: gateway.backend.responses.used_bytes == 0)


async def test_the_slowest_are_closed_for_those_who_read_and_that_is_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with filled_gateway(tmp_path, responses_bytes_max=BUDGET, unread_ms=200) as gateway:
        reader = await gateway.client()
        await reader.ask(API_VERSIONS, 0, {})
        with caplog.at_level(logging.WARNING, logger="holdfast.gateways.kafka"):
            async with sleepers(gateway, 6):
                await async_until(lambda: gateway.server.requests >= 7)
                for _ in range(20):
                    if await read_everything(reader) > 8 * VALUE_BYTES:
                        break
                else:
                    pytest.fail("the reader got nothing")
        assert gateway.backend.responses.closed >= 1
        lines = [each.getMessage() for each in caplog.records if "unread" in each.getMessage()]
        assert len(lines) == gateway.backend.responses.closed
        assert await read_everything(reader) > 8 * VALUE_BYTES  # who reads is not closed


async def test_small_answers_do_not_wait_for_room(tmp_path: Path) -> None:
    async with filled_gateway(tmp_path, responses_bytes_max=BUDGET, unread_ms=60_000) as gateway, sleepers(gateway, 6):
        await async_until(lambda: unsent(gateway) > BUDGET // 4)
        client = await gateway.client()
        end = gateway.backend.log._serving("orders", 0)
        assert end is not None
        await gateway.backend.log.produce("orders", 0, encode([Record(0, 1, None, b"small")]))
        async with asyncio.timeout(5):
            answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 10}, wait_ms=20_000))
        assert answer.responses[0].partitions[0].records
        assert gateway.backend.responses.closed == 0


@pytest.mark.slow
async def test_answers_without_records_count_too(tmp_path: Path) -> None:
    async with asyncio.timeout(60), gateway_on(tmp_path, responses_bytes_max=MIB, buffered_bytes_max=MIB) as gateway:
        for number in range(30):
            await gateway.backend.log.create_topic(f"a-rather-long-name-for-a-topic-{number}", 100)
        await async_until(lambda: len(list(gateway.backend.cluster.topics)) == 30)  # before that, answers are small
        everything = {"topics": None}
        made = [Sleeper() for _ in range(10)]
        for each in made:
            await each.send(gateway, METADATA, 12, everything, count=120)  # more than the kernel buffers
        await async_until(lambda: gateway.backend.responses.closed > 0)
        assert unsent(gateway) <= 2 * MIB
        for each in made:
            each.socket.close()


async def test_a_connection_with_unread_responses_has_a_reason_to_be_closed(tmp_path: Path) -> None:
    async with filled_gateway(tmp_path) as gateway, sleepers(gateway, 1):
        await async_until(lambda: unsent(gateway) > 0)
        (connection,) = gateway.server.connections
        now_ms = gateway.backend.clock.boot_ms()
        gateway.backend.responses.refresh(now_ms)
        assert connection.close_reason(now_ms) is None
        assert connection.close_reason(now_ms + 121_000) == "responses unread for 120000 ms"


async def test_a_connection_has_a_limited_number_of_requests_in_flight(tmp_path: Path) -> None:
    async with asyncio.timeout(60), gateway_on(tmp_path, topics={"orders": 1}, requests_in_flight_max=8) as gateway:
        client = await gateway.client()
        poll = request_frame(
            FETCH, 12, fetch_request("orders", {0: 0}, wait_ms=60_000), correlation=0, client_id="tests"
        )
        stream = len(poll).to_bytes(4, "big") + poll
        for number in range(1, 501):
            frame = request_frame(API_VERSIONS, 0, {}, correlation=number, client_id="tests")
            stream += len(frame).to_bytes(4, "big") + frame
        await client.send_bytes(stream)
        await async_until(lambda: gateway.server.requests == 1)
        (connection,) = gateway.server.connections
        assert len(connection._queued) + len(connection._in_flight) == 8
        await gateway.backend.log.produce("orders", 0, encode([Record(0, 1, None, b"ends the poll")]))
        assert [(await client.receive())[0] for _ in range(501)] == list(range(501))
