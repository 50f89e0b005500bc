"""The SDK of heaps when something is wrong: names that are used twice, nodes that are frozen, partitions that do not answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast import heaps
from holdfast.client.addresses import BrokerAddress
from holdfast.client.heap_connection import HeapConnection, open_heap_connection
from holdfast.heap.lease_token import LeaseToken, parse_token
from holdfast.heap.model import Enqueued, NewMessage, PoppedMessage
from holdfast.heap.wire import AckRequest, EnqueueRequest, ExtendRequest, HeapRequest, ReleaseRequest, StatsRequest
from holdfast.heaps.enqueuer import Enqueuer
from holdfast.heaps.leases import Leases
from holdfast.heaps.nodes import HeapNodes
from holdfast.heaps.places import AnsweredPlaces
from holdfast.heaps.task_queue import settle
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.runtime import Runtime

T = TypeVar("T")


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[KafkaGateway]:
    async with admins_of(tmp_path, "ann") as admins:
        gateway = admins[0].gateway
        await gateway.node.agent.heaps.administration.create("jobs")
        await async_until(lambda: gateway.node.agent.heaps.serves("jobs", 0))
        yield gateway


async def test_a_client_that_takes_the_name_of_another_one_has_messages_of_its_own(node: KafkaGateway) -> None:
    for payload in (b"before", b"after a restart"):
        async with heaps.connect(f"127.0.0.1:{node.port}", name="billing") as client:
            assert not (await client.enqueue("jobs", payload)).duplicate
            found = await client.peek("jobs")
    assert [each.payload for each in found] == [b"before", b"after a restart"]


async def test_a_frozen_node_holds_nobody_up_for_ever(node: KafkaGateway) -> None:
    """It takes connections, and answers nothing: the next call goes to another node."""
    taken: list[asyncio.StreamWriter] = []
    frozen = await asyncio.start_server(lambda reader, writer: taken.append(writer), "127.0.0.1", 0)
    address = f"127.0.0.1:{frozen.sockets[0].getsockname()[1]},127.0.0.1:{node.port}"
    try:
        async with heaps.connect(address, timeout=0.5) as client:
            assert await _answered(lambda: client.pop("jobs")) == []
        async with heaps.connect(address, timeout=0.5) as client:
            assert len(await _answered(lambda: client.stats("jobs"))) == 1
        assert len(taken) == 4  # and one each to ask whether it is there
    finally:
        frozen.close()
        for writer in taken:
            writer.close()
            await writer.wait_closed()


async def test_a_heap_whose_spine_is_away_holds_up_nothing_but_itself(node: KafkaGateway) -> None:
    """Neither acks of any heap, nor enqueues of others."""
    agent = node.node.agent
    async with heaps.connect(f"127.0.0.1:{node.port}") as client:
        await client.enqueue("jobs", b"x")
        await client.create("wide", partitions=2)
        await async_until(lambda: all(agent.heaps.serves("wide", number) for number in range(2)))
        await client.enqueue_many("wide", [NewMessage(payload=b"%d" % at, priority=at) for at in range(3)])
        [mine] = await client.pop("wide", wait=30)
        [failed] = await client.pop("wide", wait=30)
        [other] = await client.pop("jobs", wait=30)
        links = [view.link() for which, view in agent.local_heaps.open.items() if which.topic == "wide"]
        for link in links:
            link.acknowledged = lambda ack: None  # type: ignore[method-assign]
        enqueues = [client.enqueue("wide", b"y", priority=-1 - at) for at in range(2)]
        stuck: list[asyncio.Future[Any]] = [*map(asyncio.ensure_future, enqueues)]
        stuck.append(asyncio.ensure_future(failed.nack(backoff=0)))
        await async_until(lambda: sum(len(link._held) for link in links) == 3)
        async with asyncio.timeout(10):
            await asyncio.gather(mine.ack(), other.ack(), client.enqueue("jobs", b"z"))
        assert not any(each.done() for each in stuck)
        for link in links:
            del link.acknowledged
            link._end._owed = True
            link._schedule()
        await asyncio.gather(*stuck)


def _serves_all(node: KafkaGateway, heap: str, numbers: range) -> bool:
    return all(node.node.agent.heaps.serves(heap, number) for number in numbers)


async def _answered(call: Callable[[], Awaitable[list[T]]]) -> list[T]:
    """What a call returns that is made until it is answered."""
    while True:
        with suppress(OutcomeUnknownError):
            return await call()


async def test_a_connection_that_came_too_late_for_a_call_is_there_for_the_next_one(
    node: KafkaGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, opened = FakeClock(), list[HeapConnection]()
    nodes = HeapNodes(f"127.0.0.1:{node.port}", timeout_ms=1_000, runtime=Runtime(clock=clock))
    real = open_heap_connection

    async def slow(*address: Any, **options: Any) -> HeapConnection:
        opened.append(await real(*address, **options))
        clock.advance_ms(2_000)
        return opened[-1]

    monkeypatch.setattr("holdfast.heaps.nodes.open_heap_connection", slow)
    with pytest.raises(UnavailableError, match="when it was connected"):
        await nodes.call(StatsRequest(topic="jobs"), again=True)
    assert len(await nodes.call(StatsRequest(topic="jobs"), again=True)) == 1
    assert len(opened) == 1
    nodes.close()


async def test_a_pop_goes_to_any_node_if_the_best_one_cannot_be_reached(
    node: KafkaGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a client that sees the cluster through one address."""
    real, tried = open_heap_connection, list[int]()

    async def reached(address: BrokerAddress, **options: Any) -> HeapConnection:
        tried.append(address.port)
        if address.port != node.port:
            raise UnavailableError(f"node {address}", "timed out")
        return await real(address, **options)

    async def ask(nodes: HeapNodes, topic: str) -> AnsweredPlaces:
        return AnsweredPlaces(["10.0.0.1:9"], None)

    monkeypatch.setattr("holdfast.heaps.nodes.open_heap_connection", reached)
    monkeypatch.setattr(HeapNodes, "_ask_places", ask)
    monkeypatch.setattr("holdfast.heaps.places.UNKNOWN_MS", 0)
    async with heaps.connect(f"127.0.0.1:{node.port}") as client:
        assert await client.pop("jobs") == []
        for _ in range(5):
            await client.enqueue("jobs", b"x")
            [popped] = await client.pop("jobs", wait=10)
            await popped.ack()
    assert tried.count(9) == 1


async def test_a_heap_that_was_made_anew_with_fewer_partitions_is_used_by_who_knew_the_old_one(
    node: KafkaGateway,
) -> None:
    agent = node.node.agent
    async with heaps.connect(f"127.0.0.1:{node.port}") as client:
        for partitions in (8, 1):
            await agent.heaps.administration.create("again", partitions)
            numbers = range(partitions)
            await async_until(partial(_serves_all, node, "again", numbers))
            with suppress(UnknownTopicError):  # once, if at all
                await client.enqueue_many("again", [NewMessage(payload=b"%d" % at) for at in range(50)])
            await client.enqueue_many("again", [NewMessage(payload=b"%d" % at) for at in range(50)])
            await agent.heaps.administration.delete("again")


async def test_a_call_that_may_have_had_its_effect_is_not_reported_as_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, opened = FakeClock(), list[int]()

    class Connection:
        lost: object = None
        oldest: int | None = None
        is_usable = True

        async def call(self, request: HeapRequest) -> object:
            self.lost, self.is_usable = "reset", False
            raise OutcomeUnknownError("stats", "the connection was reset")

    async def connect(*address: Any, **options: Any) -> Connection:
        opened.append(1)
        if len(opened) > 1:
            clock.advance_ms(5_000)
            raise UnavailableError("node", "not reached")
        return Connection()

    async def pause(nodes: HeapNodes, attempt: int) -> None:
        clock.advance_ms(10)

    monkeypatch.setattr("holdfast.heaps.nodes.open_heap_connection", connect)
    monkeypatch.setattr(HeapNodes, "pause", pause)
    nodes = HeapNodes("a:1", timeout_ms=1_000, runtime=Runtime(clock=clock))
    with pytest.raises(OutcomeUnknownError):
        await nodes.call(StatsRequest(topic="jobs"), again=True)
    assert len(opened) == 2


async def test_an_ack_of_unknown_outcome_is_not_tried_for_ever_by_workers() -> None:
    leases = Leases(_Nodes())  # type: ignore[arg-type]
    message = _message(leases, 0, 1_000)
    tried: list[int] = []

    async def ack(message: heaps.Message) -> None:
        tried.append(1)
        message.is_unknown = len(tried) == 2
        raise OutcomeUnknownError("ack", "no answer")

    assert await settle(message, ack)
    assert len(tried) == 2


@pytest.mark.parametrize(
    "gone", [UnknownTopicError("jobs"), heaps.NotAHeapError("jobs"), heaps.MessageNotFoundError("jobs", "id")]
)
async def test_a_message_of_a_heap_that_is_gone_is_lost_to_its_worker(gone: HoldfastError) -> None:
    """Its ack was tried for ever, as fast as it was refused."""
    leases = Leases(_Nodes())  # type: ignore[arg-type]
    message = _message(leases, 0, 1_000)
    tried: list[int] = []

    async def ack(message: heaps.Message) -> None:
        tried.append(1)
        await asyncio.sleep(0)  # noqa: TID251
        raise gone if len(tried) < 100 else AssertionError

    assert not await settle(message, ack)
    assert (len(tried), message.is_lost, message.lost_reason) == (1, True, str(gone))


async def test_an_ack_that_is_refused_at_once_is_tried_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    leases = Leases(_Nodes())  # type: ignore[arg-type]
    message = _message(leases, 0, 1_000)
    tried: list[int] = []

    async def ack(message: heaps.Message) -> None:
        tried.append(1)
        await asyncio.sleep(0)  # noqa: TID251
        raise UnavailableError("node", "for the test")

    settling = asyncio.ensure_future(settle(message, ack))
    await asyncio.wait((settling,), timeout=1.5)
    settling.cancel()
    assert 2 <= len(tried) <= 8
    assert len(caplog.records) <= 3
    assert leases.held == 1, "it is renewed meanwhile"
    await leases.close()


async def test_leases_of_a_heap_that_is_gone_are_lost() -> None:
    nodes = _Nodes()
    leases = Leases(nodes)  # type: ignore[arg-type]
    message = _message(leases, 0, 900)
    leases.keep([message])
    nodes.failure = UnknownTopicError("jobs")
    await _turns()
    nodes.clock.advance_ms(300)
    await _turns()
    assert (message.is_lost, leases.held) == (True, 0)
    await leases.close()


class _Nodes:
    """Nodes that a test answers for. `stuck`: partitions that do not answer; `failure`: what every request gets."""

    def __init__(self) -> None:
        self.clock, self.random = FakeClock(), SystemRandom()
        self.requests: list[HeapRequest] = []
        self.stuck: set[int] = set()
        self.failure: Exception | None = None
        self.refused = b""

    async def call(self, request: HeapRequest, *, again: bool, timeout_ms: int | None = None) -> Any:
        self.requests.append(request)
        if self.stuck & (
            {parse_token(each).partition for each in getattr(request, "tokens", ())} | {request.partition}
        ):
            await asyncio.get_running_loop().create_future()
        if self.failure is not None:
            raise self.failure
        match request:
            case EnqueueRequest():
                if any(each.payload == self.refused for each in request.messages):
                    raise InvalidError("payload", self.refused.decode(), "another one")
                return [Enqueued("", False, 0) for _ in request.messages]
            case AckRequest() | ReleaseRequest():
                return [None for _ in request.tokens]
            case ExtendRequest():
                return [self.clock.now_ms() + request.extension_ms for _ in request.tokens]
        raise AssertionError(request)


def _message(leases: Leases, partition: int, visibility_ms: int) -> heaps.Message:
    token = LeaseToken(partition, 1, 0, 1).encode()
    popped = PoppedMessage("id", "jobs", partition, b"", 0, 0, token, 0, 0, 0, None, None, ())
    return heaps.Message(popped, visibility_ms, leases)


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251


async def test_a_short_lease_is_renewed_in_time_beside_a_long_one_and_one_that_is_stuck() -> None:
    nodes = _Nodes()
    leases = Leases(nodes)  # type: ignore[arg-type]
    nodes.stuck = {1}
    long, stuck, short = (_message(leases, at, visibility_ms) for at, visibility_ms in enumerate((300_000, 900, 3_000)))
    leases.keep([long, stuck])
    await _turns()
    leases.keep([short])
    for _ in range(3):
        await _turns()
        nodes.clock.advance_ms(1_000)
    await _turns()
    assert [each.partition for each in nodes.requests].count(2) == 3
    assert short.lease_deadline_ms > 0
    await leases.close()


async def test_an_acknowledgement_waits_for_no_other_partition() -> None:
    nodes = _Nodes()
    leases = Leases(nodes)  # type: ignore[arg-type]
    nodes.stuck = {0}
    first, second = _message(leases, 0, 1_000), _message(leases, 1, 1_000)
    stuck = asyncio.ensure_future(first.ack())
    await asyncio.wait_for(second.ack(), 10)
    stuck.cancel()
    for task in leases._tasks:
        task.cancel()


async def test_what_no_message_is_to_blame_for_fails_all_of_them_at_once() -> None:
    """Not one after the other, each after the whole time of a call."""
    nodes = _Nodes()
    enqueuing = Enqueuer(nodes, name="c", bytes_max=1 << 20, linger_ms=5)  # type: ignore[arg-type]

    async def enqueued(*payloads: bytes) -> list[object]:
        calls = (enqueuing.enqueue("jobs", 1, NewMessage(payload=each)) for each in payloads)
        return list(await asyncio.gather(*calls, return_exceptions=True))

    nodes.failure = UnavailableError("node", "it is away")
    assert await enqueued(b"a", b"b", b"c") == [nodes.failure] * 3
    assert len(nodes.requests) == 1
    nodes.failure, nodes.refused = None, b"b"
    assert [isinstance(each, InvalidError) for each in await enqueued(b"a", b"b", b"c")] == [False, True, False]


async def test_no_request_names_more_leases_than_a_node_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.heaps.leases.ENTRIES_MAX", 10)
    nodes = _Nodes()
    leases = Leases(nodes)  # type: ignore[arg-type]
    await leases.ack_many([_message(leases, 0, 1_000) for _ in range(25)])
    await leases.release_all([_message(leases, 0, 1_000) for _ in range(25)])
    assert [len(each.tokens) for each in nodes.requests if isinstance(each, AckRequest | ReleaseRequest)] == [
        10,
        10,
        5,
    ] * 2
