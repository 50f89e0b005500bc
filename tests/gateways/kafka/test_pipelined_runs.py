"""Connections that send on while others of their requests are in flight: each is answered in order, whatever is cut or held up.

The disk reports when the test lets it, so that requests are in flight at every moment at which something can arrive.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.gateways.kafka.test_produce_runs import NO_ID, VERSION, framed, stored
from tests.support.kafka_wire import (
    API_VERSIONS,
    PRODUCE,
    KafkaGateway,
    WireClient,
    gateway_on,
    produce_request,
    request_frame,
)
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom

pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")

REQUESTS = 60
CLIENTS = 3


class HeldDisk:
    """The WAL's reports of groups, held back until they are let go."""

    def __init__(self, gateway: KafkaGateway) -> None:
        writer: Any = gateway.node.agent.wal._writer
        self._report = writer._reports.synced
        self._lock, self._holds, self._held = threading.Lock(), False, list[Any]()
        writer._reports = writer._reports._replace(synced=self._synced)

    def hold(self) -> None:
        self._holds = True

    def let_go(self) -> None:
        with self._lock:
            self._holds, held, self._held = False, self._held, []
            for group in held:
                self._report(group)

    def _synced(self, group: Any) -> None:
        with self._lock:  # what the WAL's thread reports while it is let go is neither lost nor too early
            if self._holds:
                self._held.append(group)
            else:
                self._report(group)


@contextmanager
def held_disk(gateway: KafkaGateway) -> Iterator[HeldDisk]:
    disk = HeldDisk(gateway)
    try:
        yield disk
    finally:
        disk.let_go()


class Sender:
    """What one client sends: requests of several kinds, each with the next correlation id."""

    def __init__(self, name: str, client: WireClient, random: Any) -> None:
        self.name, self.client, self.kinds, self.values = name, client, list[str](), {0: list[str](), 1: list[str]()}
        data = b""
        for number in range(REQUESTS):
            kind = random.choices(["plain", "acks=1", "both", "versions", "large"], [60, 10, 5, 5, 5])[0]
            self.kinds.append(kind)
            if kind == "versions":
                frame = request_frame(API_VERSIONS, 0, {}, correlation=number, client_id=name)
                data += len(frame).to_bytes(4, "big") + frame
                continue
            value, partition = f"{name}-{number}", random.random() < 0.2
            partitions = (0, 1) if kind == "both" else (int(partition),)
            for each in partitions:
                self.values[each].append(value)
            text = value + " " * (3_000 if kind == "large" else 0)
            given = produce_request(
                "orders", {each: batch(text) for each in partitions}, topic_id=NO_ID, acks=1 if kind == "acks=1" else -1
            )
            data += framed(VERSION, given, number, client_id=name)
        self.left, self.random = data, random

    async def send_some(self) -> None:
        size = self.random.choice([1, 3, 50, 150, 400, 2_000, 8_000])
        some, self.left = self.left[:size], self.left[size:]
        await self.client.send_bytes(some)

    async def receive_all(self) -> None:
        for number, kind in enumerate(self.kinds):
            body = await self.client.receive()
            assert body[0] == number, "in the order of the requests"
            if kind != "versions":
                answer = self.client.understood(PRODUCE, VERSION, number, body)
                for each in answer.responses[0].partition_responses:
                    assert each.error_code.value == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_requests_of_all_kinds_are_answered_in_order_while_the_disk_comes_and_goes(
    tmp_path: Path, seed: int
) -> None:
    random = SeededRandom(seed).random
    limits: dict[str, Any] = {
        "requests_in_flight_max": random.choice([2, 5, 64]),
        "in_flight_bytes_max": random.choice([2_000, 1 << 20]),
    }
    async with gateway_on(tmp_path, topics={"orders": 2}, **limits) as gateway:
        senders = [Sender(f"c{at}", await gateway.client(), random) for at in range(CLIENTS)]
        receiving = [asyncio.ensure_future(each.receive_all()) for each in senders]
        with held_disk(gateway) as disk:
            while any(each.left for each in senders):
                for each in senders:
                    await each.send_some()
                action = random.random()
                if action < 0.2:
                    disk.hold()
                elif action < 0.4:
                    disk.let_go()
                elif action < 0.7:
                    await RealClock().sleep_ms(0)  # a turn of the loop
        async with asyncio.timeout(60):
            await asyncio.gather(*receiving)
        await async_until(lambda: gateway.server.used_bytes == 0)
        assert [(each._bytes, each._requests, len(each._in_flight)) for each in gateway.server.connections] == [
            (0, 0, 0)
        ] * CLIENTS
        for partition in (0, 1):
            found = [value.strip() for value in await stored(gateway, partition)]
            for each in senders:
                assert [value for value in found if value.startswith(f"{each.name}-")] == each.values[partition]
            assert len(found) == sum(len(each.values[partition]) for each in senders)
