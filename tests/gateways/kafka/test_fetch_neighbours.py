"""A fetch of many partitions while object storage does not answer: who needs it waits, and nobody else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_wire import FETCH, WireClient, fetch_request
from tests.support.partitions import batch, records
from tests.support.stalled_gateway import stalled_gateway
from tests.support.waiting import async_until

from holdfast.gateways.kafka import fetch_reader
from holdfast.kafka.error_codes import ErrorCode

PATIENCE_S = 5  # far below the 30 s for which a stalled read would hold up a fetch


async def fetched(client: WireClient, offsets: dict[int, int], **limits: Any) -> list[tuple[int, list[str]]]:
    """Partitions in the order of the answer, with the values of their records."""
    async with asyncio.timeout(PATIENCE_S):
        answer = await client.ask(FETCH, 12, fetch_request("orders", offsets, **limits))
    found = []
    for each in answer.responses[0].partitions:
        assert each.error_code.value == ErrorCode.NONE
        found.append((each.partition_index, [v for _, v in records([each.records])] if each.records else []))
    return found


async def read_on(client: WireClient, expected: dict[int, list[str]]) -> dict[int, list[str]]:
    """What one fetch after the other brings, until it is as much as expected: what comes too late for one is left to the next."""
    found: dict[int, list[str]] = {number: [] for number in expected}
    while sum(map(len, found.values())) < sum(map(len, expected.values())):
        offsets = {number: len(values) for number, values in found.items()}
        for number, values in await fetched(client, offsets, wait_ms=30_000):
            found[number] += values
    return found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches that have enough wait for the reads under way, and not for a moment only, which is short on a busy machine."""
    monkeypatch.setattr(fetch_reader, "_GRACE_S", 30)


async def test_records_in_memory_are_read_while_object_storage_does_not_answer(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 2) as world:
        await world.publish(0, "old")
        world.stall(0)
        await world.log.produce("orders", 1, batch("new"))
        client = await world.gateway.client()
        assert await fetched(client, {0: 0, 1: 0}, wait_ms=30_000) == [(0, []), (1, ["new"])]


async def test_an_object_that_does_not_answer_costs_the_partition_that_needs_it_alone(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 3) as world:
        for number in range(3):
            await world.publish(number, f"old {number}")
        world.stall(1)
        client = await world.gateway.client()
        expected = {0: ["old 0"], 1: [], 2: ["old 2"]}
        assert await read_on(client, expected) == expected


@pytest.mark.slow
async def test_reads_that_do_not_answer_keep_no_other_read_from_beginning(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 3, segment_reads_max=1) as world:
        for number in range(3):
            await world.publish(number, f"old {number}")
        world.stall(0, 1)
        client = await world.gateway.client()
        assert await fetched(client, dict.fromkeys(range(3), 0), wait_ms=30_000) == [(0, []), (1, []), (2, ["old 2"])]


async def test_a_fetch_waits_for_object_storage_no_longer_than_it_asked_for(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 1, fetch_read_ms=50) as world:
        await world.publish(0, "old")
        world.stall(0)
        client = await world.gateway.client()
        assert await fetched(client, {0: 0}, wait_ms=100) == [(0, [])]
        assert await fetched(client, {0: 0}, wait_ms=0) == [(0, [])]


@pytest.mark.slow
async def test_the_next_fetch_gets_what_was_read_too_late_without_another_read(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 1, fetch_read_kept_ms=60_000) as world:
        await world.publish(0, "old")
        world.stall(0)
        client = await world.gateway.client()
        for _ in range(3):
            assert await fetched(client, {0: 0}, wait_ms=50) == [(0, [])]
        gets = world.objects.gets
        world.objects.resume()
        assert await fetched(client, {0: 0}, wait_ms=30_000) == [(0, ["old"])]
        assert world.objects.gets == gets


@pytest.mark.usefixtures("patient")
async def test_a_fetch_without_a_wait_still_reads_object_storage(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 2, fetch_read_ms=30_000) as world:
        for number in range(2):
            await world.publish(number, f"old {number}")
        client = await world.gateway.client()
        assert await fetched(client, {1: 0, 0: 0}, wait_ms=0) == [(1, ["old 1"]), (0, ["old 0"])]


async def test_reads_that_nobody_waits_for_end(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 2, fetch_read_kept_ms=100) as world:
        for number in range(2):
            await world.publish(number, "old")
        world.stall(0, 1)
        client = await world.gateway.client()
        await client.send(FETCH, 12, fetch_request("orders", {0: 0, 1: 0}, wait_ms=30_000))
        reads = world.gateway.backend.remote_reads
        await async_until(lambda: len(reads) == 2)
        client.writer.transport.abort()
        await async_until(lambda: len(reads) == 0)
        await async_until(lambda: world.objects.waiting == 0)
        await async_until(lambda: world.gateway.backend.responses.used_bytes == 0)


async def test_reads_of_object_storage_are_limited_and_one_that_is_waited_for_stays(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 4, fetch_reads_max=2) as world:
        for number in range(4):
            await world.publish(number, f"old {number}")
        world.stall(0, 1, 2)
        client = await world.gateway.client()
        reads = world.gateway.backend.remote_reads
        assert await fetched(client, dict.fromkeys(range(3), 0), wait_ms=50) == [(0, []), (1, []), (2, [])]
        assert len(reads) == 2
        assert await fetched(client, {3: 0}, wait_ms=30_000) == [(3, ["old 3"])]  # those that nobody waits for give way


async def test_a_read_begins_when_another_has_ended(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 2, fetch_reads_max=1) as world:
        for number in range(2):
            await world.publish(number, f"old {number}")
        world.stall(0)
        first, second = await world.gateway.client(), await world.gateway.client()
        stalled = asyncio.ensure_future(fetched(first, {0: 0}, wait_ms=30_000))
        await async_until(lambda: world.objects.waiting == 1)
        waiting = asyncio.ensure_future(fetched(second, {1: 0}, wait_ms=30_000))
        await async_until(lambda: world.gateway.backend.remote_reads._waiting)
        world.objects.resume()
        assert await stalled == [(0, ["old 0"])]
        assert await waiting == [(1, ["old 1"])]


async def test_large_answers_from_memory_go_on_while_many_wait_for_object_storage(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 5, responses_bytes_max=4_000_000) as world:
        for number in range(4):
            await world.publish(number, "old")
        world.stall(0, 1, 2, 3)
        clients = [await world.gateway.client() for _ in range(4)]
        for number, client in enumerate(clients):  # each may read a million bytes
            await client.send(FETCH, 12, fetch_request("orders", {number: 0}, wait_ms=30_000))
        await async_until(lambda: world.objects.waiting >= 2)
        value = "x" * 300_000
        for _ in range(3):
            await world.log.produce("orders", 4, batch(value))
        assert await fetched(await world.gateway.client(), {4: 0}, wait_ms=1_000) == [(4, [value] * 3)]


@pytest.mark.parametrize("sequential", [False, True])
async def test_what_is_in_memory_is_read_without_a_task(tmp_path: Path, sequential: bool) -> None:
    async with stalled_gateway(tmp_path, 1) as world:
        client = await world.gateway.client()
        reads = world.gateway.backend.remote_reads
        if not sequential:
            await world.log.produce("orders", 0, batch("new"))
            assert await fetched(client, {0: 0}) == [(0, ["new"])]
            assert reads.begun == 0
            return
        value = "x" * 300_000
        for _ in range(3):  # a segment each
            await world.publish(0, value, value, value)
        for offset in range(0, 9, 3):
            found = await fetched(client, {0: offset}, wait_ms=30_000, partition_bytes_max=1_000_000)
            assert found == [(0, [value] * 3)]
            # What follows is being read ahead.
            await async_until(lambda: all(each.read.done() for each in world.log._reading._ahead._guesses.values()))
        assert reads.begun == 1


@pytest.mark.usefixtures("patient")
async def test_limits_hold_for_what_is_read_from_object_storage(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 4) as world:
        for number in range(4):
            await world.publish(number, "x" * 1000, "y" * 1000)
        client = await world.gateway.client()
        offsets = dict.fromkeys(range(4), 0)
        found = await fetched(client, offsets, wait_ms=30_000, partition_bytes_max=10)
        assert [len(values) for _, values in found] == [
            1,
            0,
            0,
            0,
        ]  # the first batch is an exception, for the first alone
        found = await fetched(client, offsets, wait_ms=30_000, bytes_max=3_500)
        assert sum(len(values) for _, values in found) == 3
        assert [number for number, _ in found] == [0, 1, 2, 3]
        seen: dict[int, int] = dict(offsets)
        everything = dict.fromkeys(range(4), 2)
        for _ in range(10):  # a reader that goes on reads everything
            if seen == everything:
                break
            for number, values in await fetched(client, seen, wait_ms=30_000, bytes_max=3_500):
                seen[number] += len(values)
        assert seen == everything


async def test_min_bytes_are_made_up_of_object_storage_and_what_comes_meanwhile(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 1) as world:
        await world.publish(0, "old")
        client = await world.gateway.client()
        given = fetch_request("orders", {0: 0}, wait_ms=30_000, bytes_min=2 * len(batch("old")))
        correlation = await client.send(FETCH, 12, given)
        await async_until(lambda: world.led(0)._visible._waiters)
        calls = 0
        original = world.log.read_now

        def counted(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return original(*args, **options)

        world.log.read_now = counted  # type: ignore[method-assign]
        await world.log.produce("orders", 0, batch("new"))
        async with asyncio.timeout(PATIENCE_S):
            answer = client.understood(FETCH, 12, correlation, await client.receive())
        assert [value for _, value in records([answer.responses[0].partitions[0].records])] == ["old", "new"]
        assert calls < 5  # it waits, and does not look again and again


async def test_new_records_do_not_cost_those_that_object_storage_has_brought(tmp_path: Path) -> None:
    async with stalled_gateway(tmp_path, 1) as world:
        await world.publish(0, "old")
        client = await world.gateway.client()
        enough = sum(len(batch(value)) for value in ("old", "new", "newer"))
        given = fetch_request("orders", {0: 0}, wait_ms=30_000, bytes_min=enough)
        correlation = await client.send(FETCH, 12, given)
        await async_until(lambda: world.led(0)._visible._waiters)
        world.stall(0)  # another read would find nothing
        for value in ("new", "newer"):
            await world.log.produce("orders", 0, batch(value))
        async with asyncio.timeout(PATIENCE_S):
            answer = client.understood(FETCH, 12, correlation, await client.receive())
        assert [value for _, value in records([answer.responses[0].partitions[0].records])] == ["old", "new", "newer"]


async def test_partitions_that_cannot_be_read_keep_no_other_from_being_read_however_many_they_are(
    tmp_path: Path,
) -> None:
    async with stalled_gateway(tmp_path, 40) as world:
        for number in range(40):
            await world.publish(number, f"old {number}")
        lost = [each.object for number in range(36) for each in world.led(number).segments.recent]
        await world.objects.delete(lost)
        client = await world.gateway.client()
        found: set[int] = set()

        async def all_are_read() -> bool:
            answer = await client.ask(FETCH, 12, fetch_request("orders", dict.fromkeys(range(40), 0), wait_ms=100))
            found.update(each.partition_index for each in answer.responses[0].partitions if each.records)
            return len(found) == 4

        await async_until(all_are_read)
        assert found == set(range(36, 40))
