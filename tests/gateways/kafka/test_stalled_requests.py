"""Requests that were announced and do not arrive: they hold up nobody for long."""

import asyncio
from pathlib import Path

from tests.support.kafka_wire import PRODUCE, gateway_on, produce_request
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.kafka.stalled_requests import StalledRequests
from holdfast.vocabulary.settings import KIB, MIB


class Sender:
    """A connection on which a request arrives."""

    def __init__(self, size: int, filled: int = 8) -> None:
        self.arriving: tuple[int, int] | None = (size, filled)


async def test_a_large_request_is_answered_though_others_were_announced_and_do_not_arrive(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, stalled_ms=100) as gateway:
        for _ in range(3):
            claim = await gateway.client()
            await claim.send_bytes((100 * MIB).to_bytes(4, "big") + bytes(8))
        await async_until(lambda: gateway.server.full)
        neighbour = await gateway.client()
        large = produce_request("orders", {0: batch("x" * 200_000)})
        async with asyncio.timeout(30):
            answer = await neighbour.ask(PRODUCE, 9, large)
        assert answer.responses[0].partition_responses[0].error_code.value == 0
        assert len(gateway.server.connections) >= 3  # no more of them are closed than it takes


def test_those_that_stopped_first_are_found_and_as_many_as_it_takes() -> None:
    stalled = StalledRequests(100)
    first, second, arrives, idle = Sender(10 * MIB), Sender(50 * MIB), Sender(99 * MIB), Sender(1)
    idle.arriving = None
    assert stalled.find([first], 0, 1_000) == []
    for now_ms in range(1_050, 1_200, 50):
        arrives.arriving = (99 * MIB, now_ms * 100 * KIB)
        found = stalled.find([idle, second, arrives, first], 0, now_ms)
    assert found == [first]
    assert stalled.find([second, arrives, first], 10 * MIB, 1_150) == [first, second]


def test_a_few_bytes_now_and_then_are_no_progress() -> None:
    stalled, dripping = StalledRequests(100), Sender(MIB)
    for now_ms in (0, 50):
        assert stalled.find([dripping], 0, now_ms) == []
        dripping.arriving = (MIB, now_ms + 10)
    assert stalled.find([dripping], 0, 100) == [dripping]
    dripping.arriving = (MIB, 16 * KIB + 10)
    assert stalled.find([dripping], 0, 150) == []


def test_time_in_which_nobody_looked_does_not_count() -> None:
    stalled, sender = StalledRequests(1_000), Sender(MIB)
    stalled.find([sender], 0, 0)
    assert stalled.find([sender], 0, 60_000) == []
