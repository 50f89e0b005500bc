"""What the SDK makes of an ack that was sent again: done, refused or unknown, by the deadline of its lease."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast import heaps
from holdfast.agent.administration import ClusterAdministration
from holdfast.client.heap_connection import HeapConnection
from holdfast.heap.errors import MESSAGE_GONE
from holdfast.heap.model import PoppedMessage
from holdfast.heap.wire import AckRequest, ExtendRequest, HeapRequest, LostLease, NackRequest
from holdfast.heaps.repeated_ack import ack_outcome
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError

# ── decided ──

ASKED_MS, GRANTED_MS, VISIBILITY_MS = 5_000, 1_000_000, 30_000  # by the client's clock, by the leader's


def message(renewed_ms: int = 0, **fields: Any) -> heaps.Message:
    """One that was popped, and renewed so much later."""
    deadline_ms = GRANTED_MS + VISIBILITY_MS
    popped = PoppedMessage("id", "jobs", 0, b"", 0, 0, b"", deadline_ms, 0, 0, None, None, ())
    held = heaps.Message(popped, VISIBILITY_MS, None, deadline_ms + renewed_ms, ASKED_MS, **fields)  # type: ignore[arg-type]
    held.ack_unanswered = True
    return held


def gone(epochs: int, leader_ms: int | None) -> LostLease:
    """Gone, as somebody says who leads so many epochs after the grant, at this time since the grant by its clock."""
    return LostLease("", MESSAGE_GONE, epochs, None if leader_ms is None else GRANTED_MS + leader_ms)


def is_unknown(held: heaps.Message, lost: LostLease, later_ms: int) -> bool:
    """Whether the outcome is unknown to a client that asks so much later; otherwise it is done."""
    outcome = ack_outcome(held, lost, ASKED_MS + later_ms)
    assert outcome is None or isinstance(outcome, OutcomeUnknownError)
    return outcome is not None


@pytest.mark.parametrize(
    ("leader_ms", "unknown"), [(0, False), (VISIBILITY_MS - 1, False), (VISIBILITY_MS, True), (None, True)]
)
def test_under_one_leader_its_clock_alone_decides(leader_ms: int | None, unknown: bool) -> None:
    for later_ms in (0, 10 * VISIBILITY_MS):
        assert is_unknown(message(), gone(0, leader_ms), later_ms) is unknown


@pytest.mark.parametrize(
    ("leader_ms", "later_ms", "unknown"),
    [
        (20_000, 20_000, False),
        (VISIBILITY_MS, 20_000, True),  # the successor's clock is ahead: it ended the lease
        (-3_600_000, 20_000, False),
        (-3_600_000, VISIBILITY_MS, True),  # its clock is behind, and the leader before may have ended it
        (20_000, VISIBILITY_MS - 20, True),  # clocks do not run alike
    ],
)
def test_after_a_leader_changed_neither_may_have_ended_the_lease(leader_ms: int, later_ms: int, unknown: bool) -> None:
    assert is_unknown(message(), gone(1, leader_ms), later_ms) is unknown


def test_a_renewal_counts_as_far_as_it_was_granted() -> None:
    """Not for as long as was asked for: a lease has a longest time."""
    assert not is_unknown(message(renewed_ms=10_000), gone(1, 35_000), 35_000)
    assert is_unknown(message(renewed_ms=0), gone(1, 35_000), 35_000)
    assert is_unknown(message(renewed_ms=4_000), gone(0, 35_000), 35_000)


def test_after_two_leaders_and_after_a_nack_without_an_answer_nobody_knows() -> None:
    assert is_unknown(message(), gone(2, 1), 1)
    assert is_unknown(message(may_have_ended=True), gone(0, 1), 1)


def test_what_is_not_gone_was_not_acknowledged_and_what_was_answered_is_as_it_was_said() -> None:
    waits = LostLease("", "it ended, and the message waits again", 0, GRANTED_MS)
    assert ack_outcome(message(), waits, ASKED_MS) is waits
    assert ack_outcome(message(), None, ASKED_MS) is None
    first = message()
    first.ack_unanswered = False
    assert ack_outcome(first, gone(0, 0), ASKED_MS) == gone(0, 0)


# ── served ──


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[KafkaGateway]:
    async with admins_of(tmp_path, "ann") as admins:
        yield admins[0].gateway


@pytest_asyncio.fixture
async def client(node: KafkaGateway) -> AsyncIterator[heaps.HeapClient]:
    async with heaps.connect(f"127.0.0.1:{node.port}") as client:
        yield client


async def create(node: KafkaGateway, client: heaps.HeapClient, **config: object) -> None:
    await client.create("jobs", config={"backoff_base_ms": 0, **config})
    await async_until(lambda: node.node.agent.heaps.serves("jobs", 0))


class Network:
    """What becomes of the requests of one client: the first ack is held until `over`, and lost; renewals always are.

    `arrive`: the ack does, its answer does not.
    """

    def __init__(self, client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch, *, arrive: bool) -> None:
        self.held, self.lost, self.over = asyncio.Event(), 0, asyncio.Event()
        real, mine = HeapConnection.call, client._nodes

        async def call(connection: HeapConnection, request: HeapRequest) -> object:
            if connection not in mine._connections.values() or not isinstance(request, AckRequest | ExtendRequest):
                return await real(connection, request)
            if isinstance(request, ExtendRequest):
                raise UnavailableError("node", "for the test")
            if self.lost:
                return await real(connection, request)
            self.lost += 1
            if arrive:
                await real(connection, request)
            self.held.set()
            await self.over.wait()
            raise OutcomeUnknownError("ack", "for the test")

        monkeypatch.setattr(HeapConnection, "call", call)


@pytest.mark.parametrize("dlq", [True, False])
async def test_the_first_ack_of_a_last_try_counts_if_the_lease_cannot_have_ended(
    node: KafkaGateway, client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch, dlq: bool
) -> None:
    await create(node, client, max_retries=0, dlq=dlq)
    await client.enqueue_many("jobs", [heaps.NewMessage(payload=b"x")] * 3)
    network = Network(client, monkeypatch, arrive=True)
    network.over.set()
    [one] = await client.pop("jobs")
    await one.ack()
    network.lost = 0
    await client.ack(await client.pop("jobs", max_messages=2))
    assert network.lost == 1
    assert sum(each.acked for each in await client.stats("jobs")) == 3


async def test_an_ack_that_did_not_arrive_before_its_lease_ended_is_unknown_once_the_message_is_a_dead_letter(
    node: KafkaGateway, client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(node, client, max_retries=0)
    await client.enqueue("jobs", b"x")
    network = Network(client, monkeypatch, arrive=False)
    network.over.set()
    [held] = await client.pop("jobs", visibility=0.2)

    async def is_dead() -> bool:
        return len(await client.dead_letters("jobs")) == 1

    await async_until(is_dead)
    with pytest.raises(OutcomeUnknownError, match="done, or a dead letter"):
        await held.ack()
    assert held.is_unknown


@pytest.mark.parametrize("end", ["nack", "ack"])
async def test_an_ack_that_did_not_arrive_is_unknown_once_another_consumer_ended_the_message(
    node: KafkaGateway, client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """It was not this consumer's last try: by the other's nack it is a dead letter, by its ack it is not ours."""
    await create(node, client, max_retries=1, dlq=end == "nack")
    await client.enqueue("jobs", b"x")
    [held] = await client.pop("jobs", visibility=0.2)
    assert held.attempts < held.max_retries
    network = Network(client, monkeypatch, arrive=False)
    acking = asyncio.ensure_future(client.ack([held]))
    await network.held.wait()
    async with heaps.connect(f"127.0.0.1:{node.port}") as other:
        [theirs] = await other.pop("jobs", wait=30)
        await (theirs.nack(backoff=0) if end == "nack" else theirs.ack())
    (view,) = (view for which, view in node.node.agent.local_heaps.open.items() if which.topic == "jobs")
    await async_until(lambda: not view.state.outbox)
    network.over.set()
    with pytest.raises(OutcomeUnknownError, match="done, or a dead letter"):
        await acking
    assert held.is_unknown


@pytest.mark.parametrize("arrives", [True, False])
async def test_the_next_leader_says_by_its_own_clock_whether_the_lease_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """An ack that did not arrive: the next leader's clock is an hour ahead, and ends the lease at once."""
    async with admins_of(tmp_path, "ann", "bob") as admins:
        nodes = [admin.gateway for admin in admins]
        cluster = nodes[0].cluster
        async with heaps.connect(",".join(f"127.0.0.1:{node.port}" for node in nodes)) as client:
            await client.create("jobs", config={"max_retries": 0})
            await async_until(lambda: any(node.node.agent.heaps.serves("jobs", 0) for node in nodes))
            _, other = sorted(nodes, key=lambda node: node.node.agent.heaps.serves("jobs", 0), reverse=True)
            await client.enqueue("jobs", b"x")
            [held] = await client.pop("jobs", visibility=600)
            network = Network(client, monkeypatch, arrive=arrives)
            acking = asyncio.ensure_future(held.ack())
            await network.held.wait()
            if not arrives:
                real = cluster.clock.now_ms
                monkeypatch.setattr(cluster.clock, "now_ms", lambda: real() + 3_600_000)
            administration = ClusterAdministration(cluster.store, clock=cluster.clock, random=cluster.random)
            await administration.assign("jobs", {0: (other.node.name,)})
            await async_until(lambda: other.node.agent.heaps.serves("jobs", 0))

            async def is_gone() -> bool:
                (here,) = await client.stats("jobs")
                return here.inflight == here.moving == 0

            await async_until(is_gone)
            network.over.set()
            if arrives:
                await acking
            else:
                with pytest.raises(OutcomeUnknownError, match="done, or a dead letter"):
                    await acking
                assert len(await client.dead_letters("jobs")) == 1


async def test_an_ack_that_is_tried_again_after_it_had_no_answer_at_all_counts_too(
    node: KafkaGateway, client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(node, client)
    await client.enqueue("jobs", b"x")
    [held] = await client.pop("jobs")
    real = HeapConnection.call

    async def lost(connection: HeapConnection, request: HeapRequest) -> object:
        found = await real(connection, request)
        if isinstance(request, AckRequest):
            raise OutcomeUnknownError("ack", "the answer was lost")
        return found

    monkeypatch.setattr(HeapConnection, "call", lost)
    monkeypatch.setattr(client._nodes, "_timeout_ms", 200)
    with pytest.raises(OutcomeUnknownError):
        await held.ack()
    monkeypatch.undo()
    held.resume()
    await held.ack()
    assert not held.is_lost


async def test_after_a_nack_without_an_answer_an_ack_is_not_taken_for_done(
    node: KafkaGateway, client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(node, client, max_retries=0)
    await client.enqueue("jobs", b"x")
    [held] = await client.pop("jobs")
    real, lost = HeapConnection.call, list[HeapRequest]()

    async def call(connection: HeapConnection, request: HeapRequest) -> object:
        found = await real(connection, request)
        if isinstance(request, AckRequest | NackRequest) and len(lost) < 2:
            lost.append(request)
            raise OutcomeUnknownError("request", "the answer was lost")
        return found

    monkeypatch.setattr(HeapConnection, "call", call)
    with pytest.raises(OutcomeUnknownError):
        await held.nack()
    (view,) = (view for which, view in node.node.agent.local_heaps.open.items() if which.topic == "jobs")
    await async_until(lambda: not view.state.outbox)
    held.resume()
    with pytest.raises(OutcomeUnknownError, match="done, or a dead letter"):
        await held.ack()
