"""The SDK of heaps against real nodes: enqueued once, leased and renewed until settled, credits, workers."""

import asyncio
import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast import heaps
from holdfast.agent.heap_network import HeapNetwork
from holdfast.client.heap_connection import HeapConnection
from holdfast.heap.model import NewMessage
from holdfast.heap.wire import AckRequest, EnqueueBatchRequest, HeapRequest, PopRequest
from holdfast.heaps import sync
from holdfast.heaps.nodes import HeapNodes
from holdfast.log.topics import PartitionCountError, TopicExistsError, UnknownTopicError
from holdfast.vocabulary.errors import ClosedError, InvalidError, OutcomeUnknownError, UnavailableError


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[KafkaGateway]]:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        yield [admin.gateway for admin in admins]


@pytest_asyncio.fixture
async def client(nodes: list[KafkaGateway]) -> AsyncIterator[heaps.HeapClient]:
    async with heaps.connect(bootstrap(nodes)) as client:
        yield client


def bootstrap(nodes: list[KafkaGateway]) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in nodes)


async def create(nodes: list[KafkaGateway], name: str, partitions: int = 1, **config: object) -> None:
    await nodes[0].node.agent.heaps.administration.create(name, partitions, config)
    await async_until(
        lambda: all(any(node.node.agent.heaps.serves(name, number) for node in nodes) for number in range(partitions))
    )


async def test_the_best_comes_first_and_is_gone_once_it_is_acknowledged(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "jobs")
    await asyncio.gather(*(client.enqueue("jobs", b"%d" % at, priority=-at) for at in range(20)))
    [first] = await client.pop("jobs")
    assert (first.payload, first.priority) == (b"19", -19)
    await first.ack()
    with pytest.raises(heaps.LeaseLostError):
        await first.ack()
    assert [each.payload for each in await client.peek("jobs", limit=2)] == [b"18", b"17"]


async def test_one_bad_message_takes_no_other_with_it(nodes: list[KafkaGateway], client: heaps.HeapClient) -> None:
    await create(nodes, "small", payload_bytes_max=10)
    sent = [client.enqueue("small", b"x" * (100 if at == 3 else 5)) for at in range(6)]
    found = await asyncio.gather(*sent, return_exceptions=True)
    assert [isinstance(each, InvalidError) for each in found] == [at == 3 for at in range(6)]
    assert sum(each.ready for each in await client.stats("small")) == 5


async def test_pops_that_wait_when_their_client_is_closed_say_so(nodes: list[KafkaGateway]) -> None:
    await create(nodes, "jobs")
    async with heaps.connect(bootstrap(nodes)) as client:
        pops = [asyncio.ensure_future(client.pop("jobs", wait=60)) for _ in range(5)]
        await async_until(lambda: sum(each.pending for each in client._nodes.connections) == len(pops))
    assert {type(await asyncio.wait_for(each, 10)) for each in map(failure, pops)} == {ClosedError}


async def failure(work: "asyncio.Future[Any]") -> BaseException | None:
    await asyncio.wait((work,))
    return work.exception()


async def test_pops_of_several_partitions_go_to_the_node_of_their_spine(
    nodes: list[KafkaGateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node would ask it, and every message would be sent once more."""
    await create(nodes, "wide", 4)
    heap = await nodes[0].node.agent.heaps.heap("wide")
    drivers = [node.node.agent.heaps.spines for node in nodes]
    await async_until(lambda: any(each is not None and each.driver(heap) is not None for each in drivers))
    asked: list[str] = []
    forwarded = HeapNetwork.pop

    async def pop(network: HeapNetwork, *given: Any, **told: Any) -> Any:
        asked.append("another node")
        return await forwarded(network, *given, **told)

    monkeypatch.setattr(HeapNetwork, "pop", pop)
    for first in (nodes, nodes[::-1]):  # whichever of them is asked where the spine is
        async with heaps.connect(bootstrap(first)) as client:
            await client.enqueue_many("wide", [NewMessage(payload=b"%d" % at) for at in range(20)])
            popped = [each for _ in range(20) for each in await client.pop("wide", wait=10)]
            await client.ack(popped)
            assert len(popped) == 20
    assert not asked


async def test_a_batch_is_whole_or_absent_over_partitions_of_both_nodes_and_happens_once(
    nodes: list[KafkaGateway], client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(nodes, "wide", 4, payload_bytes_max=10)
    messages = [heaps.NewMessage(payload=b"%d" % at, partition_key=f"key-{at}") for at in range(12)]
    with pytest.raises(InvalidError):
        await client.enqueue_batch("wide", [*messages, heaps.NewMessage(payload=b"x" * 11)])
    assert sum(each.ready for each in await client.stats("wide")) == 0
    lost: list[HeapRequest] = []
    call = HeapConnection.call

    async def lose_the_first_answer(connection: HeapConnection, request: HeapRequest) -> Any:
        found = await call(connection, request)
        if isinstance(request, EnqueueBatchRequest) and not request.forwarded and not lost:
            lost.append(request)
            raise OutcomeUnknownError("batch", "its answer was lost")
        return found

    monkeypatch.setattr(HeapConnection, "call", lose_the_first_answer)
    enqueued = await client.enqueue_batch("wide", messages)
    assert len(lost) == 1
    assert {each.duplicate for each in enqueued} == {True}
    assert {each.partition for each in enqueued} == {0, 1, 2, 3}
    assert sum(each.ready for each in await client.stats("wide")) == 12
    plain = await client.enqueue_batch("wide", [heaps.NewMessage(payload=b"p")] * 3)
    assert len({each.partition for each in plain}) == 1


async def test_a_client_grows_a_heap_and_what_was_on_its_way_happens_once(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "growing", 2)
    own = [("importer", 0, at) for at in range(8)]
    first = [await client.enqueue("growing", b"o", producer=each, partition_key=str(each[2])) for each in own]
    sending = asyncio.gather(*(client.enqueue("growing", b"s", partition_key=str(at)) for at in range(40)))
    grown, *_ = await asyncio.gather(*(client.update("growing", partitions=count) for count in (6, 6)))
    assert grown.partitions == 6
    await sending
    with pytest.raises(PartitionCountError):
        await client.update("growing", partitions=5)
    async with heaps.connect(bootstrap(nodes)) as another:
        again = [await another.enqueue("growing", b"o", producer=each, partition_key=str(each[2])) for each in own]
        new = await another.enqueue_many(
            "growing", [heaps.NewMessage(payload=b"n", partition_key=str(at)) for at in range(20)]
        )
    assert [each.message_id for each in again] == [each.message_id for each in first]
    assert all(each.duplicate for each in again)
    assert {each.partition for each in new} > {0, 1}
    popped: list[heaps.Message] = []
    while len(popped) < 68:
        popped += await client.pop("growing", max_messages=68, wait=10)
    assert len({each.id for each in popped}) == len(popped) == 68
    await client.ack(popped)


async def test_a_lease_is_renewed_until_it_is_settled(nodes: list[KafkaGateway], client: heaps.HeapClient) -> None:
    await create(nodes, "slow")
    await client.enqueue("slow", b"x")
    [message] = await client.pop("slow", visibility=3.0)
    before = message.lease_deadline_ms
    await async_until(lambda: message.lease_deadline_ms > before + 1_000)
    await message.ack()
    assert sum(each.expired for each in await client.stats("slow")) == 0


@pytest.mark.parametrize("wait", [0, 10])
@pytest.mark.parametrize("older", [False, True])
async def test_a_heap_decides_how_long_its_messages_are_leased(
    nodes: list[KafkaGateway], client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch, wait: float, older: bool
) -> None:
    await create(nodes, "quick", visibility_timeout_ms=3_000, lease_ms_max=10_000)
    await client.enqueue("quick", b"x")
    if older:  # a node that does not say in its answer how long
        answered = HeapNodes.pop

        async def pop(nodes: HeapNodes, request: PopRequest) -> Any:
            return [msgspec.structs.replace(each, visibility_ms=0) for each in await answered(nodes, request)]

        monkeypatch.setattr(HeapNodes, "pop", pop)
    [message] = await client.pop("quick", wait=wait)
    assert (message.visibility_ms, message.leased_ms) == (3_000, 3_000)
    before = message.lease_deadline_ms
    await async_until(lambda: message.lease_deadline_ms > before + 1_000)
    await message.ack()


async def test_a_lease_that_was_lost_is_said_to_its_message(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "lost")
    enqueued = await client.enqueue("lost", b"x")
    [message] = await client.pop("lost", visibility=0.3)
    await client.cancel("lost", enqueued.message_id)
    await message.lost.wait()
    with pytest.raises(heaps.LeaseLostError):
        await message.ack()


async def test_a_stream_never_leases_more_than_its_credits_and_gives_back_what_it_did_not_hand_out(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "stream")
    for at in range(10):
        await client.enqueue("stream", b"%d" % at, priority=at)
    stream = client.pop_stream("stream", prefetch=3)
    taken = [await anext(stream)]
    assert sum(each.inflight for each in await client.stats("stream")) == 3
    taken += [await anext(stream), await anext(stream)]
    waiting = asyncio.ensure_future(anext(stream))
    await taken[0].ack()
    taken.append(await waiting)
    assert [each.payload for each in taken] == [b"0", b"1", b"2", b"3"]
    await taken[1].ack()
    await taken[2].ack()
    taken.append(await anext(stream))
    await stream.aclose()
    stats = await client.stats("stream")
    assert sum(each.inflight for each in stats) == 2, "those that were handed out"
    assert sum(each.nacked + each.expired for each in stats) == 0


async def test_a_body_that_raises_is_a_failed_attempt_and_one_that_returns_an_acknowledgement(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "bodies", backoff_base_ms=0, backoff_cap_ms=0)
    await client.enqueue("bodies", b"x")
    [message] = await client.pop("bodies")
    with pytest.raises(ZeroDivisionError):
        async with message:
            raise ZeroDivisionError("\ud800")
    [again] = await client.pop("bodies", wait=10)
    assert (again.id, again.attempts) == (message.id, 1)
    async with again:
        pass
    assert sum(each.acked for each in await client.stats("bodies")) == 1


async def test_a_worker_handles_several_at_a_time_and_finishes_what_it_began_when_it_stops(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "work")
    running, done, go = set[bytes](), list[bytes](), asyncio.Event()

    @heaps.worker("work", concurrency=3)
    async def handle(message: heaps.Message) -> None:
        running.add(message.payload)
        await go.wait()
        done.append(message.payload)

    for at in range(5):
        await client.enqueue("work", b"%d" % at, priority=at)
    serving = asyncio.ensure_future(handle.serve(client))
    await async_until(lambda: len(running) == 3)
    handle.stop()
    go.set()
    await serving
    assert sorted(done) == [b"0", b"1", b"2"]
    stats = await client.stats("work")
    assert (sum(each.acked for each in stats), sum(each.ready for each in stats)) == (3, 2)


async def test_the_blocking_client_does_the_same(nodes: list[KafkaGateway]) -> None:
    await create(nodes, "plain")

    def use() -> list[bytes]:
        with sync.connect(bootstrap(nodes)) as client:
            for at in range(3):
                client.enqueue("plain", b"%d" % at, priority=-at)
            seen = []
            for message in client.pop_stream("plain"):
                with message:
                    seen.append(message.payload)
                if len(seen) == 3:
                    break
            assert client.pop("plain") == []
            return seen

    assert await asyncio.to_thread(use) == [b"2", b"1", b"0"]


def test_every_call_has_a_blocking_form() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")} | {"__enter__"}

    assert public(heaps.HeapClient) <= public(sync.HeapClient) | {"name", "abandon"}


async def test_a_heap_is_made_used_and_removed_without_an_event_loop(nodes: list[KafkaGateway]) -> None:
    def use() -> None:
        with sync.connect(bootstrap(nodes)) as client:
            assert client.create("made").partitions == 1
            assert client.create("made", exist_ok=True) == client.describe("made")
            client.enqueue_many("made", [heaps.NewMessage(payload=b"%d" % at, priority=at) for at in range(4)])
            client.flush()
            first, second, third = client.pop("made", max_messages=3)
            client.ack([first])
            client.release([second])
            third.nack(backoff=3600)
            client.move_to_dead_letters("made", client.peek("made")[0].message_id, "by hand")
            [left] = client.pop("made")
            assert left.payload == b"3"
            client.delete("made", confirmation_token=client.confirm("heap.delete", "made"))

    await asyncio.to_thread(use)


async def test_dead_letters_are_listed_replayed_and_deleted(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await client.create("failing", config={"max_retries": 0})
    await client.enqueue_many("failing", [heaps.NewMessage(payload=b"%d" % at, priority=at) for at in range(3)])
    for message in await client.pop("failing", max_messages=3):
        await message.nack(reason="disk full" if message.payload == b"0" else "timed out")
    letters: list[heaps.PeekedMessage] = []

    async def arrived() -> bool:
        letters[:] = await client.dead_letters("failing")
        return len(letters) == 3

    await async_until(arrived)
    assert [each.payload for each in await client.dead_letters("failing", reason_contains="disk")] == [b"0"]
    would = await client.replay_dead_letters("failing", reason_contains="disk", dry_run=True)
    assert would == heaps.DeadLetterReport(matched=1, changed=0)
    assert (await client.replay_dead_letters("failing", reason_contains="disk")).changed == 1
    [again] = await client.pop("failing", wait=30)
    assert again.payload == b"0"
    await again.ack()
    with pytest.raises(heaps.UnconfirmedError):
        await client.delete_dead_letters("failing")
    token = await client.confirm("heap.dlq.delete", "failing")
    assert (await client.delete_dead_letters("failing", confirmation_token=token)).changed == 2
    assert await client.dead_letters("failing") == []


async def test_the_example_handles_what_it_enqueued(
    nodes: list[KafkaGateway], capsys: pytest.CaptureFixture[str]
) -> None:
    await create(nodes, "thumbnails")
    example = runpy.run_path("examples/heap_worker.py")
    await example["main"](bootstrap(nodes))
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[1] for line in lines) == [f"picture-{number}.jpg" for number in range(10)]


async def test_a_heap_is_created_described_and_deleted_by_its_client(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    made = await client.create("made", config={"mode": "max", "max_retries": 7})
    assert (made.config.mode, made.config.max_retries, made.dead_letters) == ("max", 7, "made.dlq")
    assert await client.describe("made") == made
    with pytest.raises(TopicExistsError):
        await client.create("made")
    assert await client.create("made", exist_ok=True) == made
    await client.enqueue("made", b"low", priority=1)
    await client.enqueue("made", b"high", priority=2)
    [first] = await client.pop("made", wait=10)
    assert first.payload == b"high"
    with pytest.raises(heaps.UnconfirmedError):
        await client.delete("made")
    with pytest.raises(heaps.UnconfirmedError):
        await client.purge("made", confirmation_token=await client.confirm("heap.delete", "made"))
    assert await client.purge("made", confirmation_token=await client.confirm("heap.purge", "made")) == 2
    await client.delete("made", confirmation_token=await client.confirm("heap.delete", "made"))
    with pytest.raises(UnknownTopicError):
        await client.describe("made")
    with pytest.raises(InvalidError):
        await client.create("bad", config={"mode": "sideways"})


async def test_an_ack_whose_answer_is_lost_is_sent_again_and_counts_once(
    nodes: list[KafkaGateway], client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(nodes, "answers")
    await client.enqueue("answers", b"x")
    [message] = await client.pop("answers")
    real = HeapConnection.call
    lost: list[AckRequest] = []

    async def lossy(connection: HeapConnection, request: HeapRequest) -> object:
        found = await real(connection, request)
        if isinstance(request, AckRequest) and not lost:
            lost.append(request)
            raise OutcomeUnknownError("ack", "the answer was lost")
        return found

    monkeypatch.setattr(HeapConnection, "call", lossy)
    await message.ack()
    assert len(lost) == 1
    assert sum(each.acked for each in await client.stats("answers")) == 1


async def test_a_lease_is_renewed_while_its_ack_waits_for_an_answer_and_after_one_that_failed(
    nodes: list[KafkaGateway], client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(nodes, "waits")
    await client.enqueue("waits", b"x")
    [message] = await client.pop("waits", visibility=3.0)
    real, go = HeapNodes.call, asyncio.Event()

    async def slow(nodes: HeapNodes, request: HeapRequest, **options: Any) -> object:
        if isinstance(request, AckRequest):
            await go.wait()
            raise UnavailableError("node", "for the test")
        return await real(nodes, request, **options)

    monkeypatch.setattr(HeapNodes, "call", slow)
    acking = asyncio.ensure_future(message.ack())
    before = message.lease_deadline_ms
    await async_until(lambda: message.lease_deadline_ms > before + 1_000)
    go.set()
    with pytest.raises(UnavailableError):
        await acking
    message.resume()
    monkeypatch.undo()
    before = message.lease_deadline_ms
    await async_until(lambda: message.lease_deadline_ms > before + 1_000)
    await message.ack()
    assert sum(each.expired for each in await client.stats("waits")) == 0


async def test_a_message_is_moved_to_the_dead_letters_by_whoever_holds_its_lease(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "hopeless")
    await create(nodes, "plainly", dlq=False)
    for topic in ("hopeless", "plainly"):
        await client.enqueue(topic, b"x")
        [message] = await client.pop(topic, wait=10)
        await message.move_to_dead_letters("no use")
        with pytest.raises(heaps.LeaseLostError):
            await message.ack()
        assert sum(each.ready + each.inflight for each in await client.stats(topic)) == 0


async def test_a_short_lease_is_renewed_in_time_beside_a_long_one(
    nodes: list[KafkaGateway], client: heaps.HeapClient
) -> None:
    await create(nodes, "mixed")
    for _ in range(2):
        await client.enqueue("mixed", b"x")
    [long] = await client.pop("mixed", visibility=600)
    [short] = await client.pop("mixed", visibility=3.0)
    before = short.lease_deadline_ms
    await async_until(lambda: short.lease_deadline_ms > before + 1_000)
    await short.ack()
    await long.ack()
    assert sum(each.expired for each in await client.stats("mixed")) == 0


async def test_messages_of_keys_take_turns(nodes: list[KafkaGateway], client: heaps.HeapClient) -> None:
    await create(nodes, "fair", fairness=True)
    for key in ("a", "a", "a", "b", "b"):
        await client.enqueue("fair", key.encode(), fairness_key=key)
    popped = await client.pop("fair", max_messages=4, wait=30)
    assert [each.fairness_key for each in popped] == ["a", "b", "a", "b"]
    assert (await client.stats("fair"))[0].keys == 2
