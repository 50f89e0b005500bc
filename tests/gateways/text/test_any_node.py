"""Any node answers: requests reach the leader, or the cursor's owner, over one hop, whatever happens in between."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.text import TextClient, TextCluster, TextNode, text_cluster
from tests.support.waiting import async_until

from holdfast.cursors.keys import shard_resource
from holdfast.gateways.text.settings import TextSettings
from holdfast.kernel.placement_requests import assign_partitions


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TextCluster]:
    async with text_cluster(tmp_path, "ann", "bob", "cid") as cluster:
        yield cluster


async def move(cluster: TextCluster, topic: str, to: str) -> None:
    await assign_partitions(cluster.store, topic, {0: [to]}, clock=cluster.clock, random=cluster.random)
    await async_until(lambda: all(_leader(each, topic) == to for each in cluster.text.values()))
    await async_until(lambda: cluster.text[to].node.service.is_serving(topic, 0))


def _leader(node: TextNode, topic: str) -> str:
    held = node.node.agent.cluster.leader(topic, 0)
    return "" if held is None else held.holder


async def owner_of(cluster: TextCluster, topic: str) -> TextNode:
    ann = cluster.text["ann"].node.agent
    shard = await ann.cursors.shard_of(topic)
    await async_until(lambda: ann.cluster.holder(shard_resource(shard)))
    held = ann.cluster.holder(shard_resource(shard))
    assert held is not None
    return cluster.text[held.holder]


async def test_every_node_answers_every_request(cluster: TextCluster) -> None:
    async with (
        cluster.text["ann"].client() as ann,
        cluster.text["bob"].client() as bob,
        cluster.text["cid"].client() as cid,
    ):
        assert await ann.one("REGISTER logs") == b"OK"
        for number in range(30):
            client = (ann, bob, cid)[number % 3]
            assert await client.one(f"PUT logs {number}") == b"OK"
        states = [json.loads(await client.one("STATE logs")) for client in (ann, bob, cid)]
        assert states[0]["leader_node"]
        assert states[0] == states[1] == states[2]
        for number in range(30):
            client = (cid, ann, bob)[number % 3]
            assert await client.one(f"FETCH logs 0 {number}") == b"OK %d %d" % (number + 1, number)
            assert await client.one("GET logs") == b"OK %d" % number
        assert [await client.one("GET logs") for client in (ann, bob, cid)] == [b"EMPTY"] * 3


async def test_pipelined_puts_are_forwarded_together_and_in_order(cluster: TextCluster) -> None:
    async with cluster.text["bob"].client() as bob, cluster.text["cid"].client() as cid:
        assert await bob.one("PUT logs first") == b"OK"
        await move(cluster, "logs", "ann")
        assert await bob.ask(*(b"PUT logs %d" % number for number in range(500))) == [b"OK"] * 500
        assert cluster.text["bob"].server.backend.counters.forwarded >= 500
        expected = [b"OK first", *(b"OK %d" % number for number in range(500)), b"EMPTY"]
        assert await cid.ask(*["GET logs"] * 502) == expected
        refused = await bob.ask("PUT logs a", b"PUT logs " + bytes(60_000), "PUT logs b")
        assert refused == [b"OK"] * 3


async def test_a_payload_that_the_leader_refuses_is_refused_alone(cluster: TextCluster) -> None:
    await cluster.text["ann"].node.service.create_topic("small", 1, {"max_message_bytes": 1024})
    async with cluster.text["bob"].client() as bob:
        assert await bob.one("PUT small first") == b"OK"
        await move(cluster, "small", "ann")
        replies = await bob.ask("PUT small a", b"PUT small " + bytes(2_000), "PUT small b")
        assert [reply.split(b" ")[0] for reply in replies] == [b"OK", b"ERR", b"OK"]
        assert await bob.ask(*["GET small"] * 4) == [b"OK first", b"OK a", b"OK b", b"EMPTY"]


async def test_the_largest_frame_is_forwarded(cluster: TextCluster) -> None:
    async with cluster.text["bob"].client() as bob:
        await bob.one("PUT logs first")
        await move(cluster, "logs", "ann")
        payload = bytes(64 * 1024 - len("PUT logs "))
        assert await bob.one(b"PUT logs " + payload) == b"OK"
        assert await bob.one(b"PUT logs " + payload + b"x") == b"ERR invalid frame length"


async def test_a_forwarded_request_is_never_forwarded_again(cluster: TextCluster) -> None:
    async with cluster.text["bob"].client() as bob:
        await bob.one("PUT logs first")
        await move(cluster, "logs", "ann")
        reply = await bob.one("VIA 9 PUT logs second")
        assert reply.startswith(b"ERR NotLeaderForPartition: ")
        owner = await owner_of(cluster, "logs")
        other = next(each for each in cluster.text.values() if each is not owner)
        async with other.client() as client:
            assert (await client.one("VIA 9 TAKE logs 1")).startswith(b"ERR NotLeaderForPartition: ")
        assert await bob.ask("GET logs", "GET logs") == [b"OK first", b"EMPTY"]


async def test_a_forwarded_get_is_delivered_again_if_its_client_is_gone(cluster: TextCluster) -> None:
    owner = await owner_of(cluster, "logs")
    async with owner.client() as client, owner.client() as node:
        await client.ask("PUT logs a", "PUT logs b", "PUT logs c")
        # As a node that has taken records for its client, and then loses the client, or dies.
        assert (await node.one("VIA 9 TAKE logs 2")).startswith(b"OK ")
        assert await node.one("VIA 9 SETTLE 1") == b"OK"
        assert await client.one("GET logs") == b"OK b"
        assert (await node.one("VIA 9 TAKE logs 2")).startswith(b"OK ")
        node.writer.transport.abort()
        await async_until(lambda: owner.node.agent.cursors.counters.returned == 2)
        assert await client.ask("GET logs", "GET logs") == [b"OK c", b"EMPTY"]


async def test_a_node_that_never_settles_gives_its_records_back(cluster: TextCluster) -> None:
    owner = await owner_of(cluster, "logs")
    async with owner.client() as client, owner.client() as node:
        await client.one("PUT logs a")
        # As a node that lost its power: the connection stays, and nothing more comes.
        assert (await node.one("VIA 9 TAKE logs 1")).startswith(b"OK ")
        assert await client.one("GET logs") == b"EMPTY"
        await async_until(lambda: any(each.busy for each in owner.server.connections))
        (taker,) = (each for each in owner.server.connections if each.busy)
        settings = owner.server.backend.settings
        settle_ms = settings.write_ms + settings.request_ms  # longer than the other node waits for its client
        assert taker.close_reason(taker.taken_at_ms + settle_ms) is None
        reason = taker.close_reason(taker.taken_at_ms + settle_ms + 1)
        assert reason is not None
        taker.abort(reason)
        await async_until(lambda: owner.node.agent.cursors.counters.returned == 1)
        assert await client.one("GET logs") == b"OK a"


async def test_puts_go_on_while_leadership_moves(cluster: TextCluster) -> None:
    stop = asyncio.Event()
    written: list[int] = []

    async def write(client: TextClient) -> None:
        while not stop.is_set():
            assert await client.one(b"PUT logs %d" % len(written)) == b"OK"
            written.append(len(written))

    async with cluster.text["ann"].client() as ann, cluster.text["bob"].client() as bob:
        await ann.one("REGISTER logs")
        writing = asyncio.ensure_future(write(ann))
        for to in ("bob", "cid", "ann", "cid"):
            await move(cluster, "logs", to)
            seen = len(written)
            await async_until(lambda seen=seen: len(written) > seen)  # type: ignore[misc]
        stop.set()
        await writing
        assert await bob.ask(*["GET logs"] * len(written)) == [b"OK %d" % number for number in written]
        assert await bob.one("GET logs") == b"EMPTY"


async def test_a_cursor_moves_with_its_position(cluster: TextCluster) -> None:
    owner = await owner_of(cluster, "logs")
    reader = next(each for each in cluster.text.values() if each is not owner)
    async with reader.client() as client:
        await client.ask(*(b"PUT logs %d" % number for number in range(20)))
        assert await client.ask(*["GET logs"] * 10) == [b"OK %d" % number for number in range(10)]
        if owner is not cluster.text["ann"]:
            await move(cluster, "logs", reader.node.name)
        await owner.stop()
        assert await client.ask(*["GET logs"] * 11) == [b"OK %d" % number for number in range(10, 20)] + [b"EMPTY"]


async def test_without_a_leader_a_request_gets_an_error_in_time(tmp_path: Path) -> None:
    async with (
        text_cluster(tmp_path, "ann", settings=TextSettings(request_ms=50)) as cluster,
        cluster.text["ann"].client() as client,
    ):
        await cluster.text["ann"].node.service.create_topic("logs", 1, {"agent_group": "nobody"})
        assert await client.one("PUT logs a") == (
            b"ERR forward append failed: NotLeaderForPartition: partition logs:0 is not led here: it has no leader yet"
        )
        assert (await client.one("GET logs")).startswith(b"ERR NotLeaderForPartition: ")


@pytest.mark.parametrize("request_", ["PUT logs b", "GET logs"])
async def test_a_leader_that_serves_no_text_is_named(tmp_path: Path, request_: str) -> None:
    cluster = TextCluster(tmp_path)
    try:
        node = await cluster.node("ann")
        await node.service.create_topic("logs", 1)
        await async_until(lambda: node.leads() == {0})
        bob = await cluster.text_node("bob", TextSettings(request_ms=50))
        async with bob.client() as client:
            reply = await client.one(request_)
            assert reply.startswith(b"ERR ")
            if request_.startswith("PUT"):
                assert reply.endswith(b"its leader ann serves no text")
    finally:
        await cluster.end()
