"""Leadership rotation over the text protocol: sealed once, at the true end; reads span sealed and active without a gap."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.text import TextClient, TextCluster, text_cluster
from tests.support.waiting import async_until

from holdfast.gateways.text.settings import TextSettings
from holdfast.kernel.placement_requests import assign_partitions
from holdfast.log.rotation.record import RotationRecord, read_rotation

pytestmark = pytest.mark.slow

EVERY_TEN = TextSettings(request_ms=60_000, rotation_entries=10)


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TextCluster]:
    async with text_cluster(tmp_path, "ann", "bob", "cid", settings=EVERY_TEN) as cluster:
        yield cluster


async def state(client: TextClient, topic: str = "logs") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await client.one(f"STATE {topic}"))
    return found


async def until_segment(client: TextClient, segment: int) -> dict[str, Any]:
    """Until the segment is the current one, and somebody else than the one before leads it."""

    async def reached() -> bool:
        now = await state(client)
        leaders = now["segment_leaders"]
        return now["current_segment"] >= segment and leaders[str(segment)] not in (None, leaders[str(segment - 1)])

    await async_until(reached)
    return await state(client)


def contiguous(record: RotationRecord) -> bool:
    starts = [each.start for each in record.sealed]
    ends = [each.end for each in record.sealed]
    return starts == [0, *ends[:-1]] and record.start == ends[-1] and starts < ends


async def test_rollover_reads_six_sealed_segments_and_three_leaders(cluster: TextCluster) -> None:
    async with cluster.text["ann"].client() as ann, cluster.text["bob"].client() as bob:
        now: dict[str, Any] = {}
        for segment in range(1, 7):
            for number in range(10):
                assert await ann.one(b"PUT logs %d" % (10 * (segment - 1) + number)) == b"OK"
            now = await until_segment(bob, segment + 1)
        assert now["current_segment"] == 7
        assert now["last_sealed_entry_offset"] == 60
        assert now["sealed_segments"] == {str(segment): 10 for segment in range(1, 7)}
        leaders = [now["segment_leaders"][str(segment)] for segment in range(1, 8)]
        assert len(set(leaders)) == 3
        assert leaders[:4] == [leaders[0], leaders[1], leaders[2], leaders[0]]  # round robin
        assert await bob.ask(*["GET logs"] * 61) == [b"OK %d" % number for number in range(60)] + [b"EMPTY"]
        for number in range(60):
            assert await bob.one(f"FETCH logs 0 {number}") == b"OK %d %d" % (number + 1, number)


async def test_segments_seal_once_at_their_true_end_while_many_write(cluster: TextCluster) -> None:
    names = ("ann", "bob", "cid")

    async def write(name: str, writer: int, first: int) -> None:
        async with cluster.text[name].client() as client:
            for number in range(first, first + 60):
                assert await client.one(f"PUT logs {writer}:{number}") == b"OK"

    async with cluster.text["ann"].client() as client:
        await client.one("REGISTER logs")
        await asyncio.gather(*(write(name, at, 0) for at, name in enumerate(names * 2)))
        topic = cluster.text["ann"].node.agent.topic("logs")
        assert topic is not None
        await async_until(lambda: _moved(cluster))
        await asyncio.gather(*(write(name, at, 60) for at, name in enumerate(names * 2)))

        async def sealed_by_two() -> bool:
            found = await read_rotation(cluster.store, "logs", topic.id, 0)
            return len({each.epoch for each in found.sealed}) > 1

        await async_until(sealed_by_two)
        record = await read_rotation(cluster.store, "logs", topic.id, 0)
        assert contiguous(record)
        assert all(each.end - each.start >= 10 for each in record.sealed)
        read: list[str] = []
        while (reply := await client.one("GET logs")) != b"EMPTY":
            read.append(reply.decode().removeprefix("OK "))
        assert len(read) == len(set(read)) == 720
        for writer in range(6):
            mine = [int(each.split(":")[1]) for each in read if each.startswith(f"{writer}:")]
            assert mine == list(range(120))


def _moved(cluster: TextCluster) -> bool:
    held = cluster.text["ann"].node.agent.cluster.leader("logs", 0)
    return held is not None and held.epoch > 1


async def test_rotation_by_bytes_and_none_where_it_is_off(cluster: TextCluster) -> None:
    service = cluster.text["ann"].node.service
    await service.create_topic("logs", 1, {"rotation_bytes": 10_000})
    await service.create_topic("still", 1)
    async with cluster.text["bob"].client() as client:
        await client.ask(*(b"PUT still " + bytes(1_000) for _ in range(20)))
        await client.ask(*(b"PUT logs " + bytes(1_000) for _ in range(20)))
        now = await until_segment(client, 2)
        assert now["sealed_segments"]["1"] >= 10
        assert (await state(client, "still"))["current_segment"] == 1


async def test_an_operators_assignment_keeps_the_leader_and_segments_are_sealed(cluster: TextCluster) -> None:
    async with cluster.text["ann"].client() as client:
        await client.one("REGISTER logs")
        await assign_partitions(cluster.store, "logs", {0: ["bob"]}, clock=cluster.clock, random=cluster.random)
        await async_until(lambda: cluster.text["bob"].node.service.is_serving("logs", 0))
        await client.ask(*(f"PUT logs {number}" for number in range(10)))
        await async_until(lambda: cluster.store._entries.get("rotation/partition/logs/00000") is not None)
        assert cluster.text["bob"].node.service.is_serving("logs", 0)


async def test_a_topic_that_stops_rotating_asks_for_nobody(cluster: TextCluster) -> None:
    async with cluster.text["ann"].client() as client:
        await client.ask(*(f"PUT logs {number}" for number in range(10)))
        await until_segment(client, 2)
        topic = await cluster.text["ann"].node.service.topics.alter("logs", {"rotation_entries": 0})

        async def asks_for_nobody() -> bool:
            return not (await read_rotation(cluster.store, "logs", topic.id, 0)).target

        await async_until(asks_for_nobody)


async def test_a_single_agent_seals_and_stays_the_leader(tmp_path: Path) -> None:
    async with (
        text_cluster(tmp_path, "ann", settings=EVERY_TEN) as cluster,
        cluster.text["ann"].client() as client,
    ):
        sent = 0

        async def sealed() -> bool:
            """Writers are not held back, so a segment may be longer than ten by the time it is sealed: they go on until then."""
            nonlocal sent
            assert await client.one(f"PUT logs {sent}") == b"OK"
            sent += 1
            return bool((await state(client))["last_sealed_entry_offset"] >= 30)

        await async_until(sealed)
        assert set((await state(client))["segment_leaders"].values()) == {1}
        read = await client.ask(*["GET logs"] * (sent + 1))
        assert read == [b"OK %d" % number for number in range(sent)] + [b"EMPTY"]
