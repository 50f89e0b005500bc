"""What a client asks for at the same time leaves together, and to the leader: whoever asked gets what is theirs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.heaps.test_client import bootstrap, create
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast import heaps
from holdfast.client.heap_connection import HeapConnection
from holdfast.heap.wire import AckRequest, EnqueueRequest, HeapRequest, PopRequest
from holdfast.heaps import NewMessage
from holdfast.heaps.enqueue_lanes import message_bytes
from holdfast.heaps.nodes import HeapNodes
from holdfast.vocabulary.errors import InvalidError


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[KafkaGateway]]:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        yield [admin.gateway for admin in admins]


@pytest_asyncio.fixture
async def client(nodes: list[KafkaGateway]) -> AsyncIterator[heaps.HeapClient]:
    async with heaps.connect(bootstrap(nodes)) as client:
        yield client


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[HeapRequest]:
    """Every request that leaves a client, or a node."""
    found: list[HeapRequest] = []
    call = HeapConnection.call

    def noted(connection: HeapConnection, request: HeapRequest) -> object:
        found.append(request)
        return call(connection, request)

    monkeypatch.setattr(HeapConnection, "call", noted)
    return found


async def test_many_are_enqueued_popped_and_acknowledged(
    nodes: list[KafkaGateway], client: heaps.HeapClient, sent: list[HeapRequest]
) -> None:
    await create(nodes, "many")
    made = await client.enqueue_many("many", [NewMessage(payload=b"%d" % at, priority=-at) for at in range(2_200)])
    assert len({each.message_id for each in made}) == 2_200
    popped = await client.pop("many", max_messages=2_200)
    assert [each.payload for each in popped[:2]] == [b"2199", b"2198"]
    await client.ack(popped)
    assert [(each.acked, each.ready) for each in await client.stats("many")] == [(2_200, 0)]
    with pytest.raises(heaps.LeaseLostError):
        await client.ack(popped[:1])
    assert not [each for each in sent if each.forwarded]  # they went to the leader, which is one of two nodes


async def test_of_many_one_that_is_refused_takes_no_other_with_it_and_costs_few_requests(
    nodes: list[KafkaGateway], client: heaps.HeapClient, sent: list[HeapRequest]
) -> None:
    await create(nodes, "small", payload_bytes_max=10)
    sizes = [5] * 1_000
    sizes[3] = 100
    with pytest.raises(InvalidError, match="100"):
        await client.enqueue_many("small", [NewMessage(payload=b"x" * size) for size in sizes])
    assert sum(each.ready for each in await client.stats("small")) == 999
    assert len([each for each in sent if isinstance(each, EnqueueRequest)]) <= 2 * len(sizes).bit_length() + 1


async def test_many_that_are_all_refused_cost_little_more_than_one_by_one(
    nodes: list[KafkaGateway], client: heaps.HeapClient, sent: list[HeapRequest]
) -> None:
    await create(nodes, "small", payload_bytes_max=10)
    with pytest.raises(InvalidError, match="100"):
        await client.enqueue_many("small", [NewMessage(payload=b"x" * 100)] * 100)
    assert sum(each.ready for each in await client.stats("small")) == 0
    assert len([each for each in sent if isinstance(each, EnqueueRequest)]) <= 130


async def test_pops_and_acks_of_one_moment_are_few_requests(
    nodes: list[KafkaGateway], client: heaps.HeapClient, sent: list[HeapRequest]
) -> None:
    await create(nodes, "jobs")
    await client.enqueue_many("jobs", [NewMessage(payload=b"%d" % at, priority=at) for at in range(40)])
    popped = await asyncio.gather(*(client.pop("jobs") for _ in range(50)))
    assert [[each.payload for each in mine] for mine in popped] == [[b"%d" % at] for at in range(40)] + [[]] * 10
    await asyncio.gather(*(message.ack() for mine in popped for message in mine))
    assert len([each for each in sent if isinstance(each, PopRequest)]) == 1
    assert len([each for each in sent if isinstance(each, AckRequest)]) == 1


async def test_messages_of_any_partition_leave_together_and_go_to_all_of_them_in_time(
    nodes: list[KafkaGateway], client: heaps.HeapClient, sent: list[HeapRequest]
) -> None:
    await create(nodes, "any", partitions=4)
    await asyncio.gather(*(client.enqueue("any", b"x") for _ in range(40)))
    requests = [each for each in sent if isinstance(each, EnqueueRequest)]
    assert [len(each.messages) for each in requests] == [40]
    for _ in range(80):  # each alone
        await client.enqueue("any", b"x")
    assert min(each.ready for each in await client.stats("any")) > 3


async def test_a_partition_that_does_not_answer_holds_up_those_that_were_on_their_way_to_it_alone(
    nodes: list[KafkaGateway], client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(nodes, "any", partitions=4)
    released, call = asyncio.Event(), HeapNodes.call

    async def held(nodes: HeapNodes, request: HeapRequest, *, again: bool) -> object:
        if isinstance(request, EnqueueRequest) and request.partition == 1:
            await released.wait()
        return await call(nodes, request, again=again)

    monkeypatch.setattr(HeapNodes, "call", held)
    each = [asyncio.ensure_future(client.enqueue("any", b"%d" % at)) for at in range(1)]
    for at in range(1, 60):
        await asyncio.sleep(0.001)  # noqa: TID251 -- messages that come one after the other
        each.append(asyncio.ensure_future(client.enqueue("any", b"%d" % at)))
    answered, held_up = await asyncio.wait(each, timeout=5)
    assert 0 < len(held_up) < 20, len(answered)
    released.set()
    assert len({made.message_id for made in await asyncio.gather(*each)}) == 60


async def test_what_a_cancelled_pop_would_have_got_goes_to_another_or_back(
    nodes: list[KafkaGateway], client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased, answered, pop = asyncio.Event(), asyncio.Event(), HeapNodes.pop

    async def held(nodes: HeapNodes, request: PopRequest) -> object:
        found = await pop(nodes, request)
        leased.set()
        await answered.wait()
        return found

    monkeypatch.setattr(HeapNodes, "pop", held)
    await create(nodes, "back")
    await client.enqueue_many("back", [NewMessage(payload=b"x", priority=at) for at in range(2)])
    gone, stays = (asyncio.ensure_future(client.pop("back")) for _ in range(2))
    await leased.wait()
    gone.cancel()
    answered.set()
    [best] = await stays
    assert best.priority == 0  # the other one's share

    async def waits_again() -> bool:
        [each] = await client.stats("back")
        return (each.released, each.ready, each.inflight) == (1, 1, 1)

    await async_until(waits_again)


@pytest.mark.parametrize("linger_ms", [-1, float("nan"), float("inf"), 60_001])
async def test_a_time_to_linger_that_is_none_is_refused(linger_ms: float) -> None:
    with pytest.raises(InvalidError, match="linger_ms"):
        async with heaps.connect("127.0.0.1:1", linger_ms=linger_ms):
            pass


@pytest.mark.parametrize("partitions", [1, 3])
async def test_many_large_messages_are_requests_that_a_node_takes(
    nodes: list[KafkaGateway], client: heaps.HeapClient, sent: list[HeapRequest], partitions: int
) -> None:
    await create(nodes, "large", partitions=partitions)
    await client.enqueue_many("large", [NewMessage(payload=b"x" * 20_000)] * 500)
    headers = (("h", b"y" * 40_000),)
    each = [NewMessage(payload=b"", headers=headers) for _ in range(100)]
    await asyncio.gather(*(client.enqueue_many("large", [one]) for one in each))
    assert sum(each.ready for each in await client.stats("large")) == 600
    requests = [each for each in sent if isinstance(each, EnqueueRequest)]
    assert max(sum(map(message_bytes, each.messages)) for each in requests) <= 1 << 20
    assert len(requests) < 60


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize(
    "wrong", [{"priority": 1 << 70}, {"headers": (("\ud800", b""),)}, {"headers": (("a", object()),)}]
)
async def test_a_message_that_is_none_takes_no_other_with_it(
    nodes: list[KafkaGateway], client: heaps.HeapClient, partitions: int, wrong: dict[str, Any]
) -> None:
    await create(nodes, "any", partitions=partitions)
    messages = [NewMessage(payload=b"x", **(wrong if at == 3 else {})) for at in range(8)]
    found = await asyncio.gather(*(client.enqueue_many("any", [each]) for each in messages), return_exceptions=True)
    assert [at for at, each in enumerate(found) if isinstance(each, BaseException)] == [3]
    assert isinstance(found[3], InvalidError | TypeError)


async def test_a_request_that_no_node_takes_is_refused_at_once(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "large")
    with pytest.raises(InvalidError, match="at most 8387584"):
        await client.enqueue_batch("large", [NewMessage(payload=b"x" * 900_000)] * 10)


async def test_what_cancelled_callers_gave_counts_until_it_is_answered_and_is_not_kept_while_it_waits(
    nodes: list[KafkaGateway], client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(nodes, "any", partitions=2)
    await client.enqueue("any", b"first")
    released, call = asyncio.Event(), HeapNodes.call

    async def held(nodes: HeapNodes, request: HeapRequest, *, again: bool) -> object:
        await released.wait()
        return await call(nodes, request, again=again)

    monkeypatch.setattr(HeapNodes, "call", held)
    enqueuing = client._enqueuing
    enqueuing._linger_s = 60
    await async_until(lambda: not enqueuing._tasks)
    in_flight = asyncio.ensure_future(client.enqueue("any", b"x" * 1_000))
    try:
        await async_until(lambda: bool(enqueuing._tasks))
        waits = [asyncio.ensure_future(client.enqueue("any", b"x" * 1_000)) for _ in range(5)]
        await async_until(lambda: enqueuing._bytes == 6_000)
        for each in (in_flight, *waits):
            each.cancel()
        await asyncio.gather(in_flight, *waits, return_exceptions=True)
        assert enqueuing._bytes == 1_000
        (lane,) = enqueuing._lanes.values()
        assert [each.messages for each in lane.waiting] == [[]] * 5
    finally:
        released.set()
    await async_until(lambda: not enqueuing._lanes)
    assert (enqueuing._bytes, sum(each.ready for each in await client.stats("any"))) == (0, 2)
