"""Heap requests with many messages or tokens: they are limited, they hold up nobody, and they begin in their order."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.fuzz.heap import request_frame
from tests.gateways.kafka.test_large_requests import LONGEST_STEP_MS, longest_step
from tests.support.kafka_wire import KafkaGateway, WireClient, gateway_on
from tests.support.waiting import async_until

from holdfast import heaps
from holdfast.heap.lease_token import LeaseToken
from holdfast.heap.model import NewMessage
from holdfast.heap.wire import (
    AckRequest,
    EnqueueRequest,
    ExtendRequest,
    HeapRequest,
    NackRequest,
    PopRequest,
    decode_response,
)
from holdfast.vocabulary.errors import InvalidError, UnavailableError

HEAP = "jobs"
MANY = 8_000
LOST = [LeaseToken(0, 1, offset, 1).encode() for offset in range(MANY)]


async def asked(client: WireClient, request: HeapRequest) -> Any:
    await client.send_bytes(request_frame(request))
    return decode_response(request, (await client.receive())[1])


async def settled(client: WireClient, count: int) -> list[bytes]:
    """Tokens of messages that are leased."""
    for _ in range(count // 500):
        await asked(client, EnqueueRequest(topic=HEAP, messages=[NewMessage(payload=b"x")] * 500))
    popping = PopRequest(topic=HEAP, consumer="c", max_messages=count, visibility_timeout_ms=100_000)
    return [each.lease_token for each in await asked(client, popping)]


@pytest_asyncio.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[KafkaGateway]:
    async with gateway_on(tmp_path) as gateway:
        service = gateway.node.agent.heaps
        await service.administration.create(HEAP, 1, {}, {"durability": "local"})
        await async_until(lambda: service.serves(HEAP, 0))
        yield gateway


async def test_however_many_tokens_requests_have_the_loop_goes_on(gateway: KafkaGateway) -> None:
    client = await gateway.client()
    tokens = await settled(await gateway.client(), MANY)
    for request in (
        ExtendRequest(topic=HEAP, tokens=tokens, extension_ms=90_000),
        NackRequest(topic=HEAP, tokens=tokens),
        AckRequest(topic=HEAP, partition=0, tokens=LOST),
    ):
        async with longest_step() as steps:
            found = await asked(client, request)
        assert len(found) == MANY
        assert steps.longest_ms < LONGEST_STEP_MS, type(request).__name__


async def test_what_is_sent_behind_many_messages_comes_after_them(gateway: KafkaGateway) -> None:
    client = await gateway.client()
    batches = [[NewMessage(payload=b"%d" % at)] * count for at, count in enumerate((1, 500, 1, 300, 1))]
    await client.send_bytes(b"".join(request_frame(EnqueueRequest(topic=HEAP, messages=each)) for each in batches))
    for _ in batches:
        await client.receive()
    popped = await asked(await gateway.client(), PopRequest(topic=HEAP, consumer="c", max_messages=1_000))
    assert [each.payload for each in popped] == [each.payload for some in batches for each in some]


@pytest.mark.parametrize(
    "messages",
    [
        [NewMessage(payload=b"")] * 50_000,
        [NewMessage(payload=b"", headers=(("", b""),) * 8_193)],
        [NewMessage(payload=b"", headers=(("", b""),) * 100_001)],
        [NewMessage(payload=b"", headers=(("", b""),) * 100)] * 1_001,
    ],
    ids=["messages", "headers of a message", "far more headers", "headers of all"],
)
async def test_more_than_allowed_is_refused_at_once(gateway: KafkaGateway, messages: list[NewMessage]) -> None:
    client = await gateway.client()
    async with longest_step() as steps:
        with pytest.raises(InvalidError):
            await asked(client, EnqueueRequest(topic=HEAP, messages=messages))
    assert steps.longest_ms < LONGEST_STEP_MS
    assert [each.enqueued for each in await gateway.node.agent.heaps.stats(HEAP)] == [0]


async def test_with_one_token_that_is_none_nothing_is_done(gateway: KafkaGateway) -> None:
    client = await gateway.client()
    tokens = await settled(client, 3_000)
    with pytest.raises(InvalidError, match="lease_token"):
        await asked(client, AckRequest(topic=HEAP, partition=0, tokens=[*tokens, b"none"]))
    assert [each.inflight for each in await gateway.node.agent.heaps.stats(HEAP)] == [3_000]
    assert set(await asked(client, AckRequest(topic=HEAP, tokens=tokens))) == {None}


async def test_acks_that_are_done_in_part_are_not_reported_as_without_effect(
    gateway: KafkaGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, asked = gateway.backend.heaps, list[HeapRequest]()
    assert calls is not None
    tried = calls._tried

    async def tried_but_one(request: HeapRequest) -> Any:
        if isinstance(request, AckRequest):
            asked.append(request)
            if len(asked) == 2:
                raise UnavailableError("partition jobs:0", "it has no leader")
        return await tried(request)

    monkeypatch.setattr(calls, "_tried", tried_but_one)
    async with heaps.connect(f"127.0.0.1:{gateway.port}") as client:
        await client.enqueue_many(HEAP, [NewMessage(payload=b"x")] * 2_500)
        await client.ack(await client.pop(HEAP, max_messages=2_500))  # what is gone by the second try was acknowledged
    assert len(asked) > 3
    assert [each.acked for each in await gateway.node.agent.heaps.stats(HEAP)] == [2_500]


async def test_messages_are_moved_however_little_one_append_takes(gateway: KafkaGateway) -> None:
    service, few = gateway.node.agent.heaps, [NewMessage(payload=b"x", max_retries=0)] * 100
    for _ in range(3):
        await service.enqueue_batch(HEAP, few, partition=0)
    popped = await service.pop(HEAP, consumer="c", max_messages=300)
    await service.nack(HEAP, [each.lease_token for each in popped])
    await async_until(lambda: _all_moved(gateway), within_s=20)


async def _all_moved(gateway: KafkaGateway) -> bool:
    """Whether all are among the dead letters."""
    return [each.moving for each in await gateway.node.agent.heaps.stats(HEAP)] == [0]
