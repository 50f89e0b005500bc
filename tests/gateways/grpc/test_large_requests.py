"""Requests that are much for their bytes: they are counted before they are parsed, and hold up nobody."""

import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.grpc_gateway import GrpcCluster, grpc_cluster

from holdfast.gateways.grpc import entries
from holdfast.gateways.grpc.entries import Repeats
from holdfast.gateways.grpc.request_reader import SMALL_BYTES
from holdfast.heap.model import ENTRIES_MAX, MESSAGES_MAX
from holdfast.v1 import consumer_group_service_pb2 as groups
from holdfast.v1 import coordination_service_pb2 as coordination
from holdfast.v1 import heap_service_pb2 as pb
from holdfast.v1 import produce_service_pb2 as produce
from holdfast.v1.heap_service_pb2_grpc import HeapServiceStub
from holdfast.vocabulary.errors import InvalidError

BATCH = "/holdfast.v1.HeapService/EnqueueBatch"
EMPTY = b"\x0a\x00"  # a message of a batch


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GrpcCluster]:
    async with grpc_cluster(tmp_path) as made:
        yield made


async def refused(channel: grpc.aio.Channel, raw: bytes, rpc: str = BATCH, **more: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await channel.unary_unary(rpc, None, None)(raw, **more)
    return error.value.code(), str(error.value.details())


def checked(kind: Any, raw: bytes, entries_max: int) -> None:
    Repeats.of(kind.DESCRIPTOR).check(raw, entries_max)


async def test_a_request_with_too_many_entries_is_refused_unparsed(
    world: GrpcCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.gateway()
    sizes: list[int] = []
    monkeypatch.setattr(
        "holdfast.gateways.grpc.request_reader.RequestReader._parse", lambda _, raw: sizes.append(len(raw))
    )
    code, detail = await refused(made.channel, EMPTY * (ENTRIES_MAX + 1))
    assert (code, str(ENTRIES_MAX) in detail) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert not sizes


async def test_the_messages_of_a_batch_are_counted_before_anything_is_done_for_each(
    world: GrpcCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.gateway()
    monkeypatch.setattr("holdfast.gateways.grpc.services.heaps.new_messages", pytest.fail)
    code, detail = await refused(made.channel, EMPTY * 90_000)
    assert (code, "number of requests 90000" in detail) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_a_large_batch_is_enqueued(world: GrpcCluster) -> None:
    made = await world.gateway()
    stub: Any = HeapServiceStub(made.channel)
    await stub.MakeHeap(pb.MakeHeapRequest(topic="jobs"))
    requests = [pb.EnqueueRequest(topic="jobs", payload=b"x" * 4_096, priority=at) for at in range(20)]
    batch = pb.EnqueueBatchRequest(requests=requests)
    assert batch.ByteSize() > SMALL_BYTES
    assert len((await stub.EnqueueBatch(batch)).responses) == 20


async def test_a_message_that_is_compressed_is_no_larger_than_others(world: GrpcCluster) -> None:
    made = await world.gateway(message_bytes_max=64 * 1024)
    raw = pb.EnqueueRequest(topic="jobs", payload=b"0" * 10_000_000).SerializeToString()
    assert len(gzip.compress(raw)) < 64 * 1024
    rpc = "/holdfast.v1.HeapService/Enqueue"
    code, detail = await refused(made.channel, raw, rpc, compression=grpc.Compression.Gzip)
    assert (code, "larger than" in detail) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)


async def test_a_message_above_the_limit_and_a_call_without_one_have_codes(world: GrpcCluster) -> None:
    made = await world.gateway(message_bytes_max=64 * 1024)
    assert (await refused(made.channel, b"\x0a\x00" * 100_000))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await refused(made.channel, b"\x0a\x05"))[0] is grpc.StatusCode.INVALID_ARGUMENT
    call: Any = made.channel.stream_unary(BATCH, None, None)()  # type: ignore[call-arg]
    await call.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def inside(tag: bytes, content: bytes) -> bytes:
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return tag + length + bytes([size]) + content


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (pb.EnqueueBatchRequest, lambda count: b"\x0a\x00" * count),
        (pb.EnqueueBatchRequest, lambda count: b"\x8a\x00\x00" * count),  # a tag with more bytes than it needs
        (pb.EnqueueRequest, lambda count: b"\x52\x00" * count),
        (pb.EnqueueBatchRequest, lambda count: inside(b"\x0a", b"\x52\x00" * (count - 1))),
        (produce.ProduceRequest, lambda count: inside(b"\x12", b"\x1a\x00" * (count - 1))),
        (groups.ResetOffsetsRequest, lambda count: inside(b"\x1a", b"\x00" * count)),
        (groups.ResetOffsetsRequest, lambda count: b"\x18\x00" * count),
        (pb.PopStreamRequest, lambda count: inside(b"\x0a", b"\x10\x00" * count)),
        (pb.ListDeadLettersRequest, lambda count: inside(b"\x12", b"\x0a\x00" * count)),
    ],
)
def test_what_repeats_is_counted_wherever_it_is(kind: Any, make: Callable[[int], bytes]) -> None:
    for raw in (make(100), make(101)):
        kind.FromString(raw)
    checked(kind, make(100), 100)
    with pytest.raises(InvalidError, match="at most 100"):
        checked(kind, make(101), 100)


def test_values_that_look_like_entries_are_not_counted() -> None:
    given = [pb.EnqueueRequest(topic="jobs", payload=b"\n" * 10_000, priority=-1, headers={"a": b"\x52\x0a"})] * 40
    checked(pb.EnqueueBatchRequest, pb.EnqueueBatchRequest(requests=given).SerializeToString(), 80)


@pytest.mark.parametrize("raw", [b"\x0b\x0c", b"\x0a\xff\xff\xff\x7f", b"\x80" * 12, b"\x8a\x80\x80\x80\x80\x01\x00"])
def test_what_cannot_be_followed_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidError, match="invalid request"):
        checked(pb.EnqueueBatchRequest, raw + EMPTY, 0)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (pb.PopStreamRequest, b"\x0a\x00" * 30_000),
        (pb.PopStreamRequest, b"\x28\x00" * 30_000),  # a field that it does not have
        (pb.ListDeadLettersRequest, b"\x12\x00" * 30_000),
        (pb.AckRequest, b"\x28\x00" * 30_000),
        # One operation, which changes its mind.
        (coordination.CommitRequest, inside(b"\x1a", b"\x0a\x00\x12\x00" * 15_000)),
    ],
)
def test_fields_are_counted_also_those_that_are_no_entries(
    kind: Any, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "STEPS_MAX", 20_000)
    kind.FromString(raw)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidError, match="fields of a request"):
            checked(kind, raw, ENTRIES_MAX)
        assert tracemalloc.get_traced_memory()[1] < 100_000  # nothing is kept for each
    finally:
        tracemalloc.stop()


def test_as_much_as_is_documented_passes() -> None:
    message = pb.EnqueueRequest(
        topic="jobs",
        payload=b"\n" * 8,
        priority=1,
        partition_key="k",
        producer_id="p",
        epoch=1,
        sequence=1,
        max_retries=1,
        not_before_delay_ms=1,
        fairness_key="f",
        headers=dict.fromkeys("abcd", b"\n"),
    )
    raw = pb.EnqueueBatchRequest(requests=[message] * MESSAGES_MAX).SerializeToString()
    checked(pb.EnqueueBatchRequest, raw, ENTRIES_MAX)
    offset = groups.CommitOffsetsRequest(offsets=[{"topic": "t", "partition": 1, "offset": 1}])
    checked(groups.CommitOffsetsRequest, offset.SerializeToString() * ENTRIES_MAX, ENTRIES_MAX)
