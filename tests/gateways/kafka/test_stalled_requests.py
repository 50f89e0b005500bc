"""Requests that were announced and do not arrive: they hold up nobody for long."""

import asyncio
import weakref
from pathlib import Path
from typing import Any, cast

from tests.support.kafka_wire import FETCH, PRODUCE, fetch_request, gateway_on, produce_request, request_frame
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.kafka.frames import FrameReceiver
from holdfast.gateways.kafka.stalled_requests import HeldMemory, StalledRequests
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.settings import KIB, MIB


def framed(key: int, version: int, given: dict[str, Any]) -> bytes:
    frame = request_frame(key, version, given, correlation=1, client_id="tests")
    return len(frame).to_bytes(4, "big") + frame


class Sender:
    """A connection on which a request arrives."""

    def __init__(self, size: int, filled: int = 8) -> None:
        self.held_memory: HeldMemory | None = HeldMemory(size, filled, 0)


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


async def test_requests_that_are_not_read_are_found_too(tmp_path: Path) -> None:
    """A long poll before them: while the memory is full nothing more was read of such a connection, as if it were not to blame."""
    async with gateway_on(tmp_path, topics={"orders": 1}, stalled_ms=100) as gateway:
        claims = [await gateway.client() for _ in range(3)]
        for claim in claims:
            poll = framed(FETCH, 12, fetch_request("orders", {0: 0}, wait_ms=200_000))
            await claim.send_bytes(poll + (100 * MIB).to_bytes(4, "big") + bytes(8))
        await async_until(lambda: gateway.server.full)
        for claim in claims:
            await claim.send_bytes(bytes(8))
        await async_until(lambda: all(each._filled == 16 for each in gateway.server.connections))
        neighbour = await gateway.client()
        async with asyncio.timeout(30):
            answer = await neighbour.ask(PRODUCE, 9, produce_request("orders", {0: batch("x" * 200_000)}))
        assert answer.responses[0].partition_responses[0].error_code.value == 0


async def test_a_client_that_sends_small_requests_one_behind_the_other_is_not_closed(tmp_path: Path) -> None:
    """There is always one that has begun and is not complete: it is another one each time."""
    async with gateway_on(tmp_path, topics={"orders": 1}, stalled_ms=200) as gateway:
        claims = [await gateway.client() for _ in range(3)]
        for claim in claims:
            await claim.send_bytes((100 * MIB).to_bytes(4, "big") + bytes(8))
        await async_until(lambda: gateway.server.full)
        waiting, busy = await gateway.client(), await gateway.client()
        await waiting.send(PRODUCE, 9, produce_request("orders", {0: batch("x" * 200_000)}))
        small = framed(PRODUCE, 9, produce_request("orders", {0: batch("x" * 2_000)}))
        await busy.send_bytes(small[:1_000])
        for _ in range(30):  # 20 ms each
            for claim in claims:
                await claim.send_bytes(bytes(20 * KIB))
            await busy.send_bytes(small[1_000:] + small[:1_000])
            await busy.receive()
            await RealClock().sleep_ms(20)
        assert gateway.server.full
        await busy.send_bytes(small[1_000:])
        await busy.receive()


async def test_those_that_wait_for_memory_get_it_in_their_order(tmp_path: Path) -> None:
    """Where each is followed by the next of its client, the same few would get it again and again."""
    served: list[int] = []
    async with gateway_on(tmp_path) as gateway:
        server = gateway.server

        class Waiting:
            waits_for_memory = True

            def __init__(self, number: int) -> None:
                self._number = number

            def memory_freed(self) -> None:
                if server.full:
                    server.queue_for_memory(cast(FrameReceiver, self))
                else:
                    served.append(self._number)
                    server.taken(server.bytes_max)

        waiting = [cast(FrameReceiver, Waiting(number)) for number in range(20)]
        server.taken(server.bytes_max)
        for each in waiting:
            server.queue_for_memory(each)
        for _ in range(40):
            server.released(server.bytes_max)
            server.queue_for_memory(waiting[served[-1]])
        server.released(server.bytes_max)
    assert served[:40] == [*range(20), *range(20)]


def test_those_that_stopped_first_are_found_and_as_many_as_it_takes() -> None:
    stalled = StalledRequests(100)
    first, second, arrives, idle = Sender(10 * MIB), Sender(50 * MIB), Sender(99 * MIB), Sender(1)
    idle.held_memory = None
    assert stalled.find([first], 0, 1_000) == []
    for now_ms in range(1_050, 1_200, 50):
        arrives.held_memory = HeldMemory(99 * MIB, now_ms * 100 * KIB, 0)
        found = stalled.find([idle, second, arrives, first], 0, now_ms)
    assert found == [first]
    assert stalled.find([second, arrives, first], 10 * MIB, 1_150) == [first, second]


def test_a_few_bytes_now_and_then_are_no_progress() -> None:
    stalled, dripping = StalledRequests(100), Sender(MIB)
    for now_ms in (0, 50):
        assert stalled.find([dripping], 0, now_ms) == []
        dripping.held_memory = HeldMemory(MIB, now_ms + 10, 0)
    assert stalled.find([dripping], 0, 100) == [dripping]
    dripping.held_memory = HeldMemory(MIB, 16 * KIB + 10, 0)
    assert stalled.find([dripping], 0, 150) == []


def test_time_in_which_nobody_looked_does_not_count() -> None:
    stalled, sender = StalledRequests(1_000), Sender(MIB)
    stalled.find([sender], 0, 0)
    assert stalled.find([sender], 0, 60_000) == []


def test_a_connection_that_is_gone_is_not_kept() -> None:
    stalled, sender = StalledRequests(1_000), Sender(MIB)
    stalled.find([sender], 0, 0)
    gone = weakref.ref(sender)
    del sender
    assert gone() is None


def test_requests_that_wait_come_after_those_that_do_not_arrive_and_the_largest_first() -> None:
    stalled, arriving = StalledRequests(100), Sender(10 * MIB)
    small, large = Sender(1), Sender(1)
    small.held_memory, large.held_memory = HeldMemory(MIB, None, 0), HeldMemory(8 * MIB, None, 50)
    for now_ms in range(1_000, 1_200, 50):
        found = stalled.find([small, large, arriving], 100 * MIB, now_ms)
    assert found == [arriving, large, small]
    assert stalled.find([small, large, arriving], 12 * MIB, 1_200) == [arriving, large]


def test_a_request_that_waits_is_another_one_once_those_before_it_are_answered() -> None:
    stalled, waiting = StalledRequests(100), Sender(1)
    for now_ms in range(1_000, 1_500, 50):
        waiting.held_memory = HeldMemory(MIB, None, now_ms)
        assert stalled.find([waiting], 100 * MIB, now_ms) == []
