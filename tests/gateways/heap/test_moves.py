"""Dead letters between agents: moved to the leader wherever it is, once; replayed with one limit and rate for all partitions."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast.client.addresses import BrokerAddress
from holdfast.client.heap_connection import open_heap_connection
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.heap.inspection import stats
from holdfast.gateways.kafka.api import ClientInfo
from holdfast.gateways.kafka.heaps import APIS, heap
from holdfast.heap import dead_letters as dead_letters_module
from holdfast.heap.model import NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.records import Origin, ProducerSequence
from holdfast.heap.wire import (
    AckRequest,
    DeadLettersRequest,
    DeliverRequest,
    Denied,
    EnqueueRequest,
    HeapRequest,
    MoveRequest,
    NackRequest,
    PeekRequest,
    PopRequest,
    decode_response,
    encode_request,
)
from holdfast.log.errors import NotLeaderError
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import OutcomeUnknownError

PARTITIONS = 4


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[KafkaGateway]]:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        yield [admin.gateway for admin in admins]


def calls_of(node: KafkaGateway) -> HeapCalls:
    assert node.server.backend.heaps is not None
    return node.server.backend.heaps


async def split_heap(nodes: list[KafkaGateway]) -> str:
    """A heap of which one agent leads a partition, and the other one its dead letters."""
    services = [node.node.agent.heaps for node in nodes]
    for name in (f"jobs{at}" for at in range(8)):
        await services[0].administration.create(name, PARTITIONS, {"max_retries": 0})

        def all_served(name: str = name) -> bool:
            return all(
                any(service.serves(topic, number) for service in services)
                for topic in (name, name + ".dlq")
                for number in range(PARTITIONS)
            )

        await async_until(all_served)
        for service in services:
            if any(service.serves(name, n) and not service.serves(name + ".dlq", n) for n in range(PARTITIONS)):
                return name
    pytest.fail("every heap has its dead letters beside it")


async def test_dead_letters_arrive_once_at_whichever_agent_leads_them_and_are_replayed(
    nodes: list[KafkaGateway],
) -> None:
    topic, calls = await split_heap(nodes), calls_of(nodes[0])
    payloads = sorted(b"%d" % at for at in range(8))
    await calls.call(EnqueueRequest(topic=topic, messages=[NewMessage(payload=each) for each in payloads]))
    for _ in payloads:
        [popped] = await calls.call(PopRequest(topic=topic, consumer="c", wait_ms=60_000))
        assert await calls.call(NackRequest(topic=topic, tokens=[popped.lease_token], reason="no")) == [None]

    def dead() -> int:
        here = [each for node in nodes for each in node.node.agent.local_heaps.open.items()]
        return sum(view.stats().ready for which, view in here if which.topic == topic + ".dlq")

    await async_until(lambda: dead() == len(payloads))
    assert (await stats(calls, topic)).dlq == len(payloads)
    letters = await calls.call(DeadLettersRequest(topic=topic, action="list"))
    assert sorted(each.payload for each in letters) == payloads
    assert {each.origin.topic for each in letters} == {topic}

    tried = await calls.call(DeadLettersRequest(topic=topic, action="replay", limit=3, dry_run=True))
    assert (tried.matched, tried.changed) == (3, 0)
    paced = await calls.call(DeadLettersRequest(topic=topic, action="replay", limit=3, rate_per_s=1_000))
    assert (paced.matched, paced.changed) == (3, 3)
    rest = await calls.call(DeadLettersRequest(topic=topic, action="replay"))
    assert rest.changed == len(payloads) - 3
    back: list[bytes] = []
    while len(back) < len(payloads):
        [popped] = await calls.call(PopRequest(topic=topic, consumer="c", wait_ms=60_000))
        back.append(popped.payload)
        await calls.call(AckRequest(topic=topic, tokens=[popped.lease_token]))
    assert sorted(back) == payloads


async def test_a_move_that_is_sent_again_is_a_duplicate(nodes: list[KafkaGateway]) -> None:
    topic = await split_heap(nodes)
    origin = Origin(topic, 0, bytes(16), 1, "no")
    moved = NewMessage(payload=b"x", producer=ProducerSequence("~move/ff/0", 0, 7), origin=origin)
    request = DeliverRequest(topic=topic + ".dlq", partition=0, messages=[moved])
    found = []
    for node in nodes:  # whichever leads it
        connection = await open_heap_connection(BrokerAddress("127.0.0.1", node.port), timeout_s=10)
        found += await connection.call(request)
        connection.close()
    assert [each.duplicate for each in found] == [False, True]
    assert found[0].message_id == found[1].message_id


class Refused:
    """The context of a request of somebody who may do nothing; keeps what was asked for."""

    def __init__(self) -> None:
        self.api, self.peer = APIS[0], ClientInfo("", 0)
        self.asked: list[tuple[Operation, ResourceType, str]] = []

    def allows(self, *asked: Any) -> bool:
        self.asked.append(asked)
        return False


@pytest.mark.parametrize(
    ("request_", "needed"),
    [
        (
            DeliverRequest(topic="jobs.dlq", messages=[]),
            (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME),
        ),
        (PeekRequest(topic="jobs"), (Operation.READ, ResourceType.TOPIC, "jobs")),
    ],
)
async def test_moves_are_for_nodes_and_payloads_for_readers(request_: HeapRequest, needed: tuple[object, ...]) -> None:
    context: Any = Refused()
    [answer] = await heap(context, memoryview(encode_request(request_)))
    with pytest.raises(Denied):
        decode_response(request_, bytes(answer))
    assert context.asked == [needed]


async def dead_letters(nodes: list[KafkaGateway], topic: str, count: int) -> HeapCalls:
    """So many messages of a heap that go to its dead letters at once, whenever they fail."""
    calls = calls_of(nodes[0])
    await calls.call(EnqueueRequest(topic=topic, messages=[NewMessage(payload=b"%d" % at) for at in range(count)]))
    await fail(calls, topic, count)
    await async_until(lambda: waiting(nodes, topic + ".dlq") == count)
    return calls


async def fail(calls: HeapCalls, topic: str, count: int) -> None:
    for _ in range(count):
        [popped] = await calls.call(PopRequest(topic=topic, consumer="c", wait_ms=60_000))
        await calls.call(NackRequest(topic=topic, tokens=[popped.lease_token], reason="no"))


def waiting(nodes: list[KafkaGateway], topic: str) -> int:
    here = [each for node in nodes for each in node.node.agent.local_heaps.open.items()]
    return sum(view.stats().ready for which, view in here if which.topic == topic)


async def test_letters_that_fail_again_are_not_replayed_again(nodes: list[KafkaGateway]) -> None:
    """A replay at a rate would never end."""
    topic = await split_heap(nodes)
    calls = await dead_letters(nodes, topic, 8)
    failing = asyncio.ensure_future(fail(calls, topic, 1_000))
    async with asyncio.timeout(60):
        report = await calls.call(DeadLettersRequest(topic=topic, action="replay", rate_per_s=50))
    assert (report.matched, report.changed) == (8, 8)
    await async_until(lambda: waiting(nodes, topic + ".dlq") == 8)
    failing.cancel()


async def test_a_replay_at_a_rate_ends_with_its_client(nodes: list[KafkaGateway]) -> None:
    topic = await split_heap(nodes)
    calls = await dead_letters(nodes, topic, 20)
    connection = await open_heap_connection(BrokerAddress("127.0.0.1", nodes[0].port), timeout_s=10)
    request = DeadLettersRequest(topic=topic, action="replay", rate_per_s=10)
    replay = asyncio.ensure_future(connection.call(request))
    await async_until(lambda: waiting(nodes, topic + ".dlq") < 20)
    connection.close()
    with pytest.raises(OutcomeUnknownError):
        await replay
    await RealClock().sleep_ms(300)
    left = waiting(nodes, topic + ".dlq")
    await RealClock().sleep_ms(500)
    assert waiting(nodes, topic + ".dlq") == left > 0
    await calls.call(DeadLettersRequest(topic=topic, action="replay"))


@pytest.mark.parametrize("action", ["replay", "delete"])
async def test_a_limit_holds_although_another_agent_fails_half_way(
    nodes: list[KafkaGateway], monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    topic, method = await split_heap(nodes), "cancel" if action == "delete" else "move"
    leaders = [node.node.agent.heaps.serves(topic + ".dlq", 0) for node in nodes]
    calls = calls_of(nodes[leaders.index(False)])
    messages = [NewMessage(payload=b"%d" % at) for at in range(150)]
    made = await calls.call(EnqueueRequest(topic=topic, partition=0, messages=messages))
    for each in made:
        await calls.call(MoveRequest(topic=topic, message_id=each.message_id))
    await async_until(lambda: waiting(nodes, topic + ".dlq") == 150)
    monkeypatch.setattr(dead_letters_module, "_TOGETHER", 20)  # so that a step has several appends
    change, done = getattr(HeapPartition, method), 0

    async def failing(view: HeapPartition, *args: Any, **more: Any) -> Any:
        nonlocal done
        if view.rules.topic == topic + ".dlq":
            done += 1
            if done % 2 == 0:
                raise NotLeaderError(topic + ".dlq", 0)
        return await change(view, *args, **more)

    monkeypatch.setattr(HeapPartition, method, failing)
    report = await calls.call(DeadLettersRequest(topic=topic, action=action, limit=110, force=True))
    assert (report.matched, report.changed) == (110, 110)
    assert waiting(nodes, topic + ".dlq") == 40
