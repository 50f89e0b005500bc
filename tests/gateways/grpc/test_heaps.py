"""Heaps over gRPC with its stock client: the surface, credits, leases, codes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.grpc_gateway import GrpcCluster, grpc_cluster
from tests.support.waiting import WAIT_S, async_until

from holdfast.v1 import heap_service_pb2 as pb
from holdfast.v1.heap_service_pb2_grpc import HeapServiceStub


class Client:
    """A stub, and ways to wait for what happens behind it."""

    def __init__(self, world: GrpcCluster, stub: Any) -> None:
        self.world, self.stub = world, stub

    async def heap(self, topic: str, **more: Any) -> pb.Heap:
        made = await self.stub.MakeHeap(pb.MakeHeapRequest(topic=topic, **more))
        return made.heap  # type: ignore[no-any-return]

    async def enqueue(self, topic: str, *priorities: int) -> None:
        requests = [pb.EnqueueRequest(topic=topic, payload=b"%d" % each, priority=each) for each in priorities]
        await self.stub.EnqueueBatch(pb.EnqueueBatchRequest(requests=requests))

    async def stream(self, topic: str, count: int) -> Any:
        call = self.stub.PopStream(timeout=WAIT_S)
        await call.write(pb.PopStreamRequest(filter=pb.PopFilter(topic=topic)))
        await call.write(pb.PopStreamRequest(flow_control=pb.FlowControl(credits=count)))
        return call

    async def figures(self, topic: str) -> pb.PartitionCounts:
        found = await self.stub.Stats(pb.StatsRequest(topic=topic))
        return found.heaps[0].totals  # type: ignore[no-any-return]

    async def token(self, action: str, topic: str) -> str:
        made = await self.stub.CreateConfirmation(pb.CreateConfirmationRequest(action=action, resource=topic))
        return str(made.confirmation_token)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with grpc_cluster(tmp_path) as world:
        made = await world.gateway()
        yield Client(world, HeapServiceStub(made.channel))


async def code(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    trailing: Any = error.value.trailing_metadata()
    return error.value.code(), str(dict(trailing)["holdfast-reason"])


async def read(call: Any, count: int) -> list[pb.PopItem]:
    items: list[pb.PopItem] = []
    while len(items) < count:
        items += (await call.read()).items
    return items


async def test_a_heap_from_its_creation_to_its_confirmed_end(client: Client) -> None:
    made = await client.heap("jobs", mode=pb.HEAP_MODE_MAX, top_k_bound=3, compression_enabled=True)
    assert (made.mode, made.config["compression"], made.dlq_topic) == (pb.HEAP_MODE_MAX, "zstd", "jobs.dlq")
    assert await code(client.heap("jobs")) == (grpc.StatusCode.ALREADY_EXISTS, "TOPIC_EXISTS")
    changed = await client.stub.UpdateHeapConfig(
        pb.UpdateHeapConfigRequest(topic="jobs", set_config={"max_retries": "9"}, reset_config=["top_k_bound"])
    )
    assert (changed.heap.config["max_retries"], changed.heap.top_k_bound) == ("9", 1)
    grown = await client.stub.UpdateHeapConfig(pb.UpdateHeapConfigRequest(topic="jobs", partitions=3))
    assert (grown.heap.partitions, grown.heap.config["max_retries"]) == (3, "9")
    fewer = client.stub.UpdateHeapConfig(pb.UpdateHeapConfigRequest(topic="jobs", partitions=2))
    assert (await code(fewer))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert [each.topic for each in (await client.stub.ListHeaps(pb.ListHeapsRequest())).heaps] == ["jobs"]
    await client.enqueue("jobs", 1, 2)
    refused = await code(client.stub.Purge(pb.PurgeRequest(topic="jobs", force=True)))
    assert refused == (grpc.StatusCode.FAILED_PRECONDITION, "UNCONFIRMED")
    token = await client.token("heap.purge", "jobs")
    purged = await client.stub.Purge(pb.PurgeRequest(topic="jobs", force=True, confirmation_token=token))
    assert purged.purged == 2
    assert (await client.figures("jobs")).cancelled == 2
    token = await client.token("heap.delete", "jobs")
    await client.stub.DeleteHeap(pb.DeleteHeapRequest(topic="jobs", force=True, confirmation_token=token))
    gone = await code(client.stub.Enqueue(pb.EnqueueRequest(topic="jobs")))
    assert gone == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC")


async def test_never_more_is_delivered_than_there_are_credits_and_leases_outlive_the_stream(client: Client) -> None:
    await client.heap("jobs")
    await client.enqueue("jobs", *range(10))
    call = await client.stream("jobs", 3)
    first = await read(call, 3)
    assert [each.priority for each in first] == [0, 1, 2]
    await client.enqueue("jobs", -1)  # it is durable, and nobody has credits for it
    assert (await client.figures("jobs")).inflight == 3
    await call.write(pb.PopStreamRequest(flow_control=pb.FlowControl(credits=1)))
    [best] = await read(call, 1)
    assert best.priority == -1
    assert (await client.figures("jobs")).inflight == 4
    call.cancel()
    assert (await client.figures("jobs")).inflight == 4
    await client.stub.Ack(pb.AckRequest(topic="jobs", message_id=best.message_id, lease_token=best.lease_token))
    lost = await code(client.stub.Ack(pb.AckRequest(topic="jobs", lease_token=best.lease_token)))
    assert lost == (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST")
    extended = await client.stub.Extend(
        pb.ExtendRequest(topic="jobs", lease_token=first[0].lease_token, extension_ms=600_000)
    )
    assert extended.lease_deadline_ms > first[0].lease_deadline_ms
    await client.stub.Release(pb.ReleaseRequest(topic="jobs", lease_token=first[0].lease_token))
    [peeked] = (await client.stub.Peek(pb.PeekRequest(topic="jobs", limit=1))).items
    assert (peeked.priority, peeked.attempts) == (0, 0)


async def test_a_client_that_has_ended_its_side_gets_what_it_has_credits_for(client: Client) -> None:
    await client.heap("jobs")
    call = await client.stream("jobs", 2)
    await call.done_writing()
    await client.enqueue("jobs", 5, 4, 3)
    assert [item.priority async for response in call for item in response.items] == [3, 4]


async def test_a_stream_whose_client_went_away_holds_no_place_among_the_pops(client: Client) -> None:
    await client.heap("jobs")
    open_heaps = client.world.node.agent.local_heaps.open
    await async_until(lambda: any(each.topic == "jobs" for each in open_heaps))
    view = next(view for each, view in open_heaps.items() if each.topic == "jobs")
    call = await client.stream("jobs", 1)
    await async_until(lambda: len(view._pops) == 1)
    call.cancel()
    await async_until(lambda: len(view._pops) == 0)
    await client.enqueue("jobs", 1)
    [item] = await read(await client.stream("jobs", 1), 1)
    assert item.attempts == 0


async def test_dead_letters_are_moved_listed_replayed_and_deleted(client: Client) -> None:
    await client.heap("risky", max_retries_default=0)
    await client.enqueue("risky", 1, 2, 3)
    call = await client.stream("risky", 1)
    [item] = await read(call, 1)
    await client.stub.Nack(pb.NackRequest(topic="risky", lease_token=item.lease_token, reason="too late"))
    [second, third] = (await client.stub.Peek(pb.PeekRequest(topic="risky"))).items
    await client.stub.MoveToDlq(pb.MoveToDlqRequest(topic="risky", message_id=second.message_id, reason="by hand"))
    await client.stub.Reprioritise(pb.ReprioritiseRequest(topic="risky", message_id=third.message_id, priority=99))
    await client.stub.Cancel(pb.CancelRequest(topic="risky", message_id=third.message_id))
    missing = await code(client.stub.Cancel(pb.CancelRequest(topic="risky", message_id=third.message_id)))
    assert missing == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_MESSAGE")
    open_heaps = client.world.node.agent.local_heaps.open
    letters = next(view for each, view in open_heaps.items() if each.topic == "risky.dlq")
    await async_until(lambda: letters.stats().ready == 2)
    late = pb.DeadLetterFilter(reason_contains="late")
    [letter] = (await client.stub.ListDeadLetters(pb.ListDeadLettersRequest(topic="risky", filter=late))).items
    assert (letter.payload, letter.origin_message_id, letter.attempts) == (b"1", item.message_id, 1)
    dry = await client.stub.ReplayDeadLetters(pb.ReplayDeadLettersRequest(topic="risky", dry_run=True))
    assert (dry.matched, dry.changed) == (2, 0)
    done = await client.stub.ReplayDeadLetters(
        pb.ReplayDeadLettersRequest(topic="risky", filter=late, rate_per_s=1_000)
    )
    assert (done.matched, done.changed) == (1, 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.stub.DeleteDeadLetters(pb.DeleteDeadLettersRequest(topic="risky"))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    dry = await client.stub.DeleteDeadLetters(pb.DeleteDeadLettersRequest(topic="risky", dry_run=True))
    assert (dry.matched, dry.changed) == (1, 0)
    token = await client.token("heap.dlq.delete", "risky")
    deleted = await client.stub.DeleteDeadLetters(
        pb.DeleteDeadLettersRequest(topic="risky", force=True, confirmation_token=token)
    )
    assert deleted.changed == 1
    await call.write(pb.PopStreamRequest(flow_control=pb.FlowControl(credits=1)))
    assert [each.payload for each in await read(call, 1)] == [b"1"]


async def test_enqueues_with_a_sequence_happen_once_and_limits_are_exhausted_resources(client: Client) -> None:
    await client.heap("tight", config={"leases_per_consumer_max": "1", "durability": "local"})
    asked = pb.EnqueueRequest(topic="tight", payload=b"x", producer_id="p", epoch=2, sequence=7, headers={"k": b"\xff"})
    first, again = await client.stub.Enqueue(asked), await client.stub.Enqueue(asked)
    assert (again.message_id, again.duplicate) == (first.message_id, True)
    asked.epoch = 1
    asked.sequence = 8
    assert await code(client.stub.Enqueue(asked)) == (grpc.StatusCode.FAILED_PRECONDITION, "PRODUCER_FENCED")
    await client.enqueue("tight", 1)
    call = await client.stream("tight", 2)
    [item] = await read(call, 1)
    assert (item.headers["k"], item.producer_id, item.sequence) == (b"\xff", "p", 7)
    assert await code(call.read()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize(
    ("requests", "named"),
    [
        ([pb.PopStreamRequest(flow_control=pb.FlowControl(credits=1))], "flow_control"),
        ([pb.PopStreamRequest(filter=pb.PopFilter(topic="jobs", partition_ids=[0, 1]))], "partition_ids"),
        ([pb.PopStreamRequest(filter=pb.PopFilter(topic="jobs"))] * 2, "filter"),
        (
            [
                pb.PopStreamRequest(filter=pb.PopFilter(topic="jobs")),
                pb.PopStreamRequest(flow_control=pb.FlowControl(credits=-1)),
            ],
            "credits",
        ),
    ],
)
async def test_a_stream_that_is_not_opened_as_it_has_to_be_is_refused(
    client: Client, requests: list[pb.PopStreamRequest], named: str
) -> None:
    call = client.stub.PopStream(iter(requests), timeout=WAIT_S)
    with pytest.raises(grpc.aio.AioRpcError, match=named) as error:
        async with asyncio.timeout(WAIT_S):
            await call.read()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_messages_have_fairness_keys_and_heaps_have_limits_for_them(client: Client) -> None:
    made = await client.heap("fair", config={"fairness": "true", "key_leases_max": "1", "rate_per_s": "1000"})
    assert (made.config["fairness"], made.config["rate_per_s"]) == ("true", "1000.0")
    for key in ("a", "a", "b"):
        await client.stub.Enqueue(pb.EnqueueRequest(topic="fair", fairness_key=key))
    items = await read(await client.stream("fair", 9), 2)
    assert sorted((each.fairness_key, each.limited) for each in items) == [("a", True), ("b", True)]
    figures = await client.figures("fair")
    assert (figures.keys, figures.keys_at_limit) == (2, 1)
