"""The text protocol on one node: the verbs, what is refused, order and limits."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.partitions import batch
from tests.support.text import LENGTH, TextClient, TextCluster, TextNode, text_cluster
from tests.support.waiting import async_until

from holdfast.contracts.store import Put
from holdfast.cursors.keys import cursor_key
from holdfast.cursors.settings import CursorSettings
from holdfast.gateways.text.frames import encode_frames
from holdfast.gateways.text.settings import TextSettings
from holdfast.log.batches import parse_header
from holdfast.vocabulary.settings import KIB


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TextCluster]:
    async with text_cluster(tmp_path, "ann") as cluster:
        yield cluster


@pytest.fixture
def ann(cluster: TextCluster) -> TextNode:
    return cluster.text["ann"]


async def test_walrus_verbs(ann: TextNode) -> None:
    async with ann.client() as client:
        assert await client.one("REGISTER logs") == b"OK"
        assert await client.one("REGISTER logs") == b"OK"
        assert await client.one("GET logs") == b"EMPTY"
        assert await client.ask("PUT logs one", b"PUT logs \xff\x00 binary", "PUT logs ") == [b"OK"] * 3
        assert await client.ask(*["GET logs"] * 4) == [b"OK one", b"OK \xff\x00 binary", b"OK ", b"EMPTY"]
        state = json.loads(await client.one("STATE logs"))
        node = json.loads(await client.one("METRICS"))["node"]
        assert state == {
            "current_segment": 1,
            "leader_node": node,
            "last_sealed_entry_offset": 0,
            "sealed_segments": {},
            "segment_leaders": {"1": node},
        }


async def test_put_creates_the_topic_and_get_does_not(ann: TextNode) -> None:
    async with ann.client() as client:
        assert await client.one("GET logs") == b"ERR unknown topic logs"
        assert await client.one("STATE logs") == b"ERR unknown topic logs"
        assert await client.one("FETCH logs 0 0") == b"ERR unknown topic logs"
        assert await client.one("PUT logs one") == b"OK"
        assert ann.node.agent.topic("logs").partitions == 1  # type: ignore[union-attr]
        assert await client.one("PUT no/name x") == (
            b"ERR invalid topic name 'no/name': must be 1 to 249 letters, digits, . _ and -, but not . or .."
        )


async def test_put_creates_nothing_where_that_is_off(tmp_path: Path) -> None:
    async with (
        text_cluster(tmp_path, "ann", settings=TextSettings(auto_create_topics=False)) as cluster,
        cluster.text["ann"].client() as client,
    ):
        assert await client.one("PUT logs one") == b"ERR unknown topic logs"
        assert await client.ask("REGISTER logs", "PUT logs one") == [b"OK", b"OK"]


async def test_auth_says_that_there_is_no_security(ann: TextNode) -> None:
    async with ann.client() as client:
        assert await client.one("AUTH key") == b"ERR security is not configured: connections need no AUTH"
        assert await client.one("PUT logs one") == b"OK"


async def test_fetch_reads_any_partition_from_any_offset(ann: TextNode) -> None:
    await ann.node.service.create_topic("orders", 2)
    await async_until(lambda: ann.node.leads() == {0, 1})
    await ann.node.service.produce("orders", 1, batch("a", "b", "c"))
    async with ann.client() as client:
        assert await client.one("FETCH orders 1 0") == b"OK 1 a"
        assert await client.one("FETCH orders 1 2") == b"OK 3 c"
        assert await client.one("FETCH orders 1 3") == b"EMPTY"
        assert await client.one("FETCH orders 0 0") == b"EMPTY"
        assert await client.one("FETCH orders 1 4") == b"ERR offset out of range: 4 is not between 0 and 3"
        assert await client.one("FETCH orders 2 0") == b"ERR unknown topic orders:2"
        many = await client.one("FETCH orders 1 1 10")
        assert (
            many
            == b"OK 3 2 "
            + (1).to_bytes(8, "little")
            + LENGTH.pack(1)
            + b"b"
            + (2).to_bytes(8, "little")
            + LENGTH.pack(1)
            + b"c"
        )
        assert (await client.one("FETCH orders 1 0 2")).startswith(b"OK 2 2 ")
        for request in ("PUT orders x", "GET orders"):
            assert b"must be one of a single partition" in await client.one(request)


async def test_an_error_leaves_the_connection_usable(ann: TextNode) -> None:
    async with ann.client() as client:
        client.writer.write(LENGTH.pack(70_000) + bytes(70_000) + LENGTH.pack(0))
        client.send("NONSENSE", b"PUT \xff x", "PUT logs", "PUT logs fine")
        assert [await client.reply() for _ in range(6)] == [
            b"ERR invalid frame length",
            b"ERR invalid frame length",
            b"ERR unknown command",
            b"ERR invalid utf-8",
            b"ERR PUT requires a payload",
            b"OK",
        ]
        assert await client.one("GET logs") == b"OK fine"


async def test_the_largest_frame_is_a_setting(tmp_path: Path) -> None:
    async with (
        text_cluster(tmp_path, "ann", settings=TextSettings(frame_bytes_max=200 * KIB)) as cluster,
        cluster.text["ann"].client() as client,
    ):
        payload = bytes(200 * KIB - len("PUT logs "))
        assert await client.one(b"PUT logs " + payload) == b"OK"
        assert await client.one(b"PUT logs " + payload + b"x") == b"ERR invalid frame length"
        assert await client.one("GET logs") == b"OK " + payload


async def test_pipelined_requests_are_answered_in_their_order(ann: TextNode) -> None:
    async with ann.client() as client:
        requests = [f"PUT {topic} {number}" for number in range(200) for topic in ("a", "b")]
        requests += ["GET a", "GET b", "STATE a", "BAD"]
        replies = await client.ask(*requests)
        assert replies[:402] == [b"OK"] * 400 + [b"OK 0", b"OK 0"]
        assert replies[402].startswith(b"{")
        assert replies[403] == b"ERR unknown command"
        assert await client.ask(*["GET a"] * 200) == [b"OK %d" % number for number in range(1, 200)] + [b"EMPTY"]


async def test_pipelined_puts_become_few_batches(ann: TextNode) -> None:
    async with ann.client() as client:
        await client.one("PUT logs first")
        await client.ask(*(f"PUT logs {number}" for number in range(1_000)))
        fetched = await ann.node.service.fetch("logs", 0, 0, bytes_max=1 << 20)
        assert len(fetched.batches) < 100


async def test_one_payload_that_is_too_large_refuses_itself_alone(ann: TextNode) -> None:
    await ann.node.service.create_topic("small", 1, {"max_message_bytes": 1024})
    async with ann.client() as client:
        replies = await client.ask("PUT small a", b"PUT small " + bytes(2_000), "PUT small b")
        assert [reply.split(b" ")[0] for reply in replies] == [b"OK", b"ERR", b"OK"]
        assert await client.ask("GET small", "GET small", "GET small") == [b"OK a", b"OK b", b"EMPTY"]


async def test_a_record_whose_answer_was_not_written_is_delivered_again(tmp_path: Path) -> None:
    async with text_cluster(tmp_path, "ann", settings=TextSettings(frame_bytes_max=1 << 20)) as cluster:
        ann = cluster.text["ann"]
        counters = ann.node.agent.cursors.counters
        async with ann.client() as client:
            for number in range(100):
                assert await client.one(b"PUT logs %03d" % number + bytes(200_000)) == b"OK"
            dying = socket.create_connection(("127.0.0.1", int(ann.address.rpartition(":")[2])))
            with dying:  # it reads nothing, so that sooner or later an answer stays in this process
                dying.sendall(encode_frames([b"GET logs"] * 100))
                await async_until(lambda: any(not each._written.is_set() for each in ann.server.connections))
                assert counters.returned == 0
            await async_until(lambda: counters.returned)
            delivered = counters.delivered
            assert delivered < 100
            assert counters.redelivered == 0
            assert (await client.one("GET logs"))[:6] == b"OK %03d" % delivered
            assert counters.redelivered == 1


async def test_clients_share_one_cursor(ann: TextNode) -> None:
    async with ann.client() as first, ann.client() as second:
        await first.ask(*(f"PUT logs {number}" for number in range(100)))

        async def read(client: TextClient) -> list[int]:
            found = []
            while (reply := await client.one("GET logs")) != b"EMPTY":
                found.append(int(reply.removeprefix(b"OK ")))
            return found

        one, two = await asyncio.gather(read(first), read(second))
        assert sorted(one + two) == list(range(100))
        assert one == sorted(one)
        assert two == sorted(two)


async def test_a_cursor_outlives_its_owner_and_repeats_what_was_not_saved(tmp_path: Path) -> None:
    cluster = TextCluster(tmp_path)
    try:
        never = CursorSettings(shards=1, save_ms=600_000, unsaved_max=10)
        ann = await cluster.text_node("ann", cursors=never)
        async with ann.client() as client:
            await client.ask(*(f"PUT logs {number}" for number in range(100)))
            assert await client.ask(*["GET logs"] * 25) == [b"OK %d" % number for number in range(25)]
        await ann.drop()
        ann = await cluster.text_node("ann", cursors=never)
        async with ann.client() as client:
            first = int((await client.one("GET logs")).removeprefix(b"OK "))
            assert 15 <= first <= 25  # never skipped, and at most `unsaved_max` repeated
        await ann.stop()
        ann = await cluster.text_node("ann", cursors=never)
        async with ann.client() as client:
            assert await client.one("GET logs") == b"OK %d" % (first + 1)
    finally:
        await cluster.end()


async def test_the_cursor_of_a_deleted_topic_goes_and_a_new_one_starts_over(
    ann: TextNode, cluster: TextCluster
) -> None:
    async with ann.client() as client:
        await client.ask("PUT logs a", "PUT logs b", "GET logs")
        await async_until(lambda: _cursors(cluster))
        await ann.node.service.delete_topic("logs")
        await async_until(lambda: ann.node.agent.topic("logs") is None)
        await async_until(lambda: not _cursors(cluster))
        assert await client.ask("PUT logs c", "GET logs", "GET logs") == [b"OK", b"OK c", b"EMPTY"]


async def test_a_cursor_beyond_the_end_of_a_log_that_lost_its_tail_goes_on_at_its_end(tmp_path: Path) -> None:
    async with text_cluster(tmp_path, "ann") as cluster, cluster.text["ann"].client() as client:
        ann = cluster.text["ann"].node
        await client.ask("PUT logs a", "PUT logs b")
        shard, topic = await ann.agent.cursors.shard_of("logs"), await ann.service.topics.get("logs")
        position = b'{"topic_id":"%s","offset":50}' % topic.id.encode()
        await ann.store.commit(apply=(Put(cursor_key(shard, "logs"), position),))
        assert await client.one("GET logs") == b"EMPTY"
        assert await client.ask("PUT logs c", "GET logs", "GET logs") == [b"OK", b"OK c", b"EMPTY"]
        await async_until(lambda: b'"offset":3' in cluster.store._entries[cursor_key(shard, "logs")].value)


def _cursors(cluster: TextCluster) -> list[str]:
    return [key for key in cluster.store._entries if key.startswith("cursor/")]


async def test_reading_pauses_while_too_much_is_in_flight(tmp_path: Path) -> None:
    settings = TextSettings(requests_in_flight_max=10, in_flight_bytes_max=2_000)
    async with text_cluster(tmp_path, "ann", settings=settings) as cluster, cluster.text["ann"].client() as client:
        assert await client.ask(*(b"PUT logs " + bytes(500) for _ in range(200))) == [b"OK"] * 200


async def test_what_another_node_reads_at_once_is_limited_here(ann: TextNode) -> None:
    async with ann.client() as client:
        for _ in range(24):
            assert await client.one(b"PUT logs " + bytes(60_000)) == b"OK"
        reply = await client.one("VIA 9 READ logs 0 0 999999999999999999")
        assert reply.startswith(b"OK ")
        assert len(reply) < ann.server.backend.settings.fetch_bytes_max + 61_000


async def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async with (
        text_cluster(tmp_path, "ann", settings=TextSettings(connections_max=1)) as cluster,
        cluster.text["ann"].client() as first,
    ):
        assert await first.one("PUT logs a") == b"OK"
        async with cluster.text["ann"].client() as second:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await second.one("METRICS")
        assert json.loads(await first.one("METRICS"))["text"]["connections_refused"] == 1


async def test_a_frame_that_never_ends_and_a_silent_client_are_closed(tmp_path: Path) -> None:
    for settings, sent in ((TextSettings(frame_ms=1), b"\x05"), (TextSettings(idle_ms=1), b"")):
        async with text_cluster(tmp_path, "ann", settings=settings) as cluster, cluster.text["ann"].client() as client:
            client.writer.write(sent)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.reply()


async def test_puts_of_many_connections_become_few_batches_and_one_that_is_refused_is_refused_alone(
    ann: TextNode,
) -> None:
    await ann.node.service.create_topic("small", 1, {"max_message_bytes": 4096})
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ann.client()) for _ in range(30)]
        assert await clients[0].one("PUT small first") == b"OK"
        for client in clients:
            client.send(b"PUT small x" if client is not clients[7] else b"PUT small " + bytes(5_000))
        replies = [await client.reply() for client in clients]
        assert [at for at, reply in enumerate(replies) if reply != b"OK"] == [7]
        for client in clients:
            client.send("PUT small y")
        assert [await client.reply() for client in clients] == [b"OK"] * 30
        fetched = await ann.node.service.fetch("small", 0, 30, bytes_max=1 << 20)
        assert sum(parse_header(each).count for each in fetched.batches) == 30
        assert len(fetched.batches) < 30
