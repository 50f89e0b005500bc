"""Heap operations over the Kafka port: served at any node, errors as they are, many requests in flight."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast.client.addresses import BrokerAddress
from holdfast.client.heap_connection import HeapConnection, open_heap_connection
from holdfast.gateways.heap.node_connections import HeapNodeConnections
from holdfast.heap.errors import MessageNotFoundError, NotAHeapError
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.records import Origin
from holdfast.heap.wire import (
    AckRequest,
    CancelRequest,
    ConfirmRequest,
    DeadLettersRequest,
    EnqueueRequest,
    ExtendRequest,
    HeapRequest,
    LostLease,
    PeekRequest,
    PopRequest,
    PurgeRequest,
    StatsRequest,
)
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[KafkaGateway]]:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        yield [admin.gateway for admin in admins]


async def connected(node: KafkaGateway) -> HeapConnection:
    return await open_heap_connection(BrokerAddress("127.0.0.1", node.port), timeout_s=10)


async def heap(nodes: list[KafkaGateway], name: str, partitions: int = 1) -> None:
    agent = nodes[0].node.agent
    await agent.heaps.administration.create(name, partitions)
    await async_until(
        lambda: all(any(node.node.agent.heaps.serves(name, number) for node in nodes) for number in range(partitions))
    )


async def test_any_node_enqueues_pops_and_acknowledges(nodes: list[KafkaGateway]) -> None:
    await heap(nodes, "jobs")
    for node in nodes:
        calls, pops = await connected(node), await connected(node)
        sent = [NewMessage(payload=b"%d" % at, priority=5 - at) for at in range(3)]
        enqueued = await calls.call(EnqueueRequest(topic="jobs", messages=sent))
        assert [each.duplicate for each in enqueued] == [False] * 3
        popped = await pops.call(PopRequest(topic="jobs", consumer="c", max_messages=2))
        assert [each.payload for each in popped] == [b"2", b"1"]
        tokens = [each.lease_token for each in popped]
        assert all(
            isinstance(due, int)
            for due in await calls.call(ExtendRequest(topic="jobs", tokens=tokens, extension_ms=60_000))
        )
        assert await calls.call(AckRequest(topic="jobs", tokens=tokens)) == [None, None]
        lost = await calls.call(AckRequest(topic="jobs", tokens=tokens[:1]))
        assert isinstance(lost[0], LostLease)
        assert [each.payload for each in await calls.call(PeekRequest(topic="jobs"))] == [b"0"]
        token, _ = await calls.call(ConfirmRequest(topic="jobs", action="heap.purge"))
        assert await calls.call(PurgeRequest(topic="jobs", force=True, confirmation_token=token)) == 1
        calls.close()
        pops.close()


async def test_a_pop_that_waits_gets_what_comes_and_holds_nobody_up(nodes: list[KafkaGateway]) -> None:
    await heap(nodes, "late")
    calls, pops = await connected(nodes[1]), await connected(nodes[1])
    waiting = asyncio.ensure_future(pops.call(PopRequest(topic="late", consumer="c", wait_ms=60_000)))
    await calls.call(StatsRequest(topic="late"))
    await calls.call(EnqueueRequest(topic="late", messages=[NewMessage(payload=b"x")]))
    assert [each.payload for each in await waiting] == [b"x"]
    calls.close()
    pops.close()


async def test_messages_of_several_partitions_are_in_all_of_them_and_acked_together(nodes: list[KafkaGateway]) -> None:
    await heap(nodes, "wide", 4)
    calls, pops = await connected(nodes[0]), await connected(nodes[0])
    sent = [NewMessage(payload=b"%d" % at, partition_key=f"key-{at}") for at in range(12)]
    enqueued = await calls.call(EnqueueRequest(topic="wide", messages=sent))
    assert {each.partition for each in enqueued} == {0, 1, 2, 3}
    assert sum(each.ready for each in await calls.call(StatsRequest(topic="wide"))) == 12
    tokens: list[bytes] = []
    while len(tokens) < 12:
        popped = await pops.call(PopRequest(topic="wide", consumer="c", max_messages=5, wait_ms=60_000))
        tokens += [each.lease_token for each in popped]
    assert await calls.call(AckRequest(topic="wide", tokens=tokens)) == [None] * 12
    calls.close()
    pops.close()


async def test_errors_arrive_as_they_were_raised(nodes: list[KafkaGateway]) -> None:
    await heap(nodes, "jobs")
    await nodes[0].node.agent.service.create_topic("plain", 1, {})
    calls = await connected(nodes[0])
    with pytest.raises(UnknownTopicError):
        await calls.call(PeekRequest(topic="nothing"))
    with pytest.raises(NotAHeapError):
        await calls.call(PeekRequest(topic="plain"))
    with pytest.raises(InvalidError, match="limit"):
        await calls.call(PeekRequest(topic="jobs", limit=0))
    [enqueued] = await calls.call(EnqueueRequest(topic="jobs", messages=[NewMessage(payload=b"x")]))
    await calls.call(CancelRequest(topic="jobs", message_id=enqueued.message_id))
    with pytest.raises(MessageNotFoundError):
        await calls.call(CancelRequest(topic="jobs", message_id=enqueued.message_id))
    calls.close()


async def test_many_requests_are_in_flight_and_what_was_sent_when_the_connection_ends_is_unknown(
    nodes: list[KafkaGateway],
) -> None:
    await heap(nodes, "busy")
    calls = await connected(nodes[0])
    requests = (EnqueueRequest(topic="busy", messages=[NewMessage(payload=b"%d" % at)]) for at in range(200))
    found = await asyncio.gather(*map(calls.call, requests))
    assert len({each.message_id for [each] in found}) == 200
    pops = await connected(nodes[0])
    waiting = asyncio.ensure_future(pops.call(PopRequest(topic="busy", consumer="c", partition=0)))
    await asyncio.wait([waiting])
    pending = asyncio.ensure_future(calls.call(StatsRequest(topic="busy")))
    await asyncio.sleep(0)  # noqa: TID251 (it is on its way)
    calls.close()
    with pytest.raises(OutcomeUnknownError):
        await pending
    pops.close()


async def test_a_pop_that_was_forwarded_ends_with_its_client_and_with_its_heap(nodes: list[KafkaGateway]) -> None:
    await heap(nodes, "jobs")
    leader, other = sorted(nodes, key=lambda node: not node.node.agent.heaps.serves("jobs", 0))
    (view,) = (view for which, view in leader.node.agent.local_heaps.open.items() if which.topic == "jobs")
    request = PopRequest(topic="jobs", consumer="c", wait_ms=3_600_000)

    async def waiting() -> "tuple[HeapConnection, asyncio.Task[list[PoppedMessage]]]":
        pops = await connected(other)
        popping = asyncio.create_task(pops.call(request))
        await async_until(lambda: len(view._pops) == 1)
        return pops, popping

    pops, popping = await waiting()
    pops.close()
    await asyncio.wait({popping})
    await async_until(lambda: len(view._pops) == 0)
    pops, popping = await waiting()
    await leader.node.agent.heaps.administration.delete("jobs")
    with pytest.raises(UnknownTopicError):
        await popping
    pops.close()


async def test_what_is_done_with_many_dead_letters_holds_up_no_other_forwarded_request(
    nodes: list[KafkaGateway],
) -> None:
    connections = HeapNodeConnections(nodes[0].backend.cluster, None, nodes[0].cluster.clock)
    slow = await connections.to("bob", DeadLettersRequest(topic="jobs", action="replay"))
    assert slow is not None
    replaying = asyncio.ensure_future(slow.call(StatsRequest(topic="jobs")))
    assert await connections.to("bob", StatsRequest(topic="jobs")) is not slow
    await asyncio.wait({replaying})
    connections.close()


async def test_what_waits_for_the_spine_of_a_heap_holds_up_no_forwarded_request_of_another(
    nodes: list[KafkaGateway],
) -> None:
    connections = HeapNodeConnections(nodes[0].backend.cluster, None, nodes[0].cluster.clock)
    enqueues = [EnqueueRequest(topic=topic, partition=0, messages=[]) for topic in ("jobs", "others", "jobs")]
    first, other, again = [await connections.to("bob", each) for each in enqueues]
    assert first is again
    assert first is not other
    acks = await connections.to("bob", AckRequest(topic="jobs", partition=0, tokens=[]))
    assert acks not in (first, other)
    assert acks is await connections.to("bob", AckRequest(topic="jobs", partition=0, tokens=[]))
    assert acks is not await connections.to("bob", AckRequest(topic="others", partition=0, tokens=[]))
    connections.close()


async def test_a_node_that_is_about_to_open_a_partition_does_not_forward_to_itself(
    nodes: list[KafkaGateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    await heap(nodes, "jobs")
    leader = next(node for node in nodes if node.node.agent.heaps.serves("jobs", 0))
    local, forwarded, closed = leader.node.agent.local_heaps, [], 3

    def partition(topic: Topic, number: int) -> GrowingPartition:
        nonlocal closed
        closed -= 1
        if closed >= 0:
            raise NotLeaderError(topic.name, number, reason="it is being recovered")
        return type(local).partition(local, topic, number)

    async def to(self: HeapNodeConnections, agent: str, request: HeapRequest) -> None:
        forwarded.append(agent)

    monkeypatch.setattr(local, "partition", partition)
    monkeypatch.setattr(HeapNodeConnections, "to", to)
    calls = await connected(leader)
    [enqueued] = await calls.call(EnqueueRequest(topic="jobs", partition=0, messages=[NewMessage(payload=b"x")]))
    assert (enqueued.duplicate, forwarded) == (False, [])
    calls.close()


async def test_what_clients_may_not_say_is_refused(nodes: list[KafkaGateway]) -> None:
    await heap(nodes, "jobs")
    calls, pops = await connected(nodes[0]), await connected(nodes[0])
    forged = NewMessage(payload=b"x", origin=Origin("another", 0, b"", 0, ""))
    with pytest.raises(InvalidError, match="origin"):
        await calls.call(EnqueueRequest(topic="jobs", messages=[forged]))
    for wait_ms in (math.inf, math.nan, -1.0):
        with pytest.raises(InvalidError, match="wait_ms"):
            await pops.call(PopRequest(topic="jobs", consumer="c", wait_ms=wait_ms))
    calls.close()
    pops.close()
