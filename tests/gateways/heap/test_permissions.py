"""What heap requests need on their topic: payloads are shown to who may read, and to nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.fuzz.heap import request_frame
from tests.support.kafka_security import SecureClient, SecureGateway, allow, secure_gateway
from tests.support.waiting import WAIT_S, async_until

from holdfast.gateways.kafka.api_rules import RULES
from holdfast.heap.model import NewMessage
from holdfast.heap.records import Origin
from holdfast.heap.service import HeapService
from holdfast.heap.wire import (
    AckRequest,
    CancelRequest,
    ConfirmRequest,
    CreateRequest,
    DeadLettersRequest,
    DeleteRequest,
    DeliverRequest,
    Denied,
    DescribeRequest,
    EnqueueBatchRequest,
    EnqueueRequest,
    ExtendRequest,
    HeapRequest,
    MoveRequest,
    NackRequest,
    PeekRequest,
    PlacesRequest,
    PopRequest,
    PurgeRequest,
    ReleaseRequest,
    ReprioritiseRequest,
    Request,
    SpineRequest,
    StatsRequest,
    UpdateRequest,
    decode_response,
)
from holdfast.kafka.api_keys import ApiKey
from holdfast.log.topics import UnknownTopicError
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.errors import InvalidError

HEAP = "jobs"
Op = Operation
ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
NEEDS: list[tuple[HeapRequest, Operation]] = [
    (EnqueueRequest(topic=HEAP, messages=[NewMessage(payload=b"x")]), Op.WRITE),
    (EnqueueBatchRequest(topic=HEAP, partition=0, messages=[NewMessage(payload=b"x")], places=[0]), Op.WRITE),
    (PopRequest(topic=HEAP, consumer="c"), Op.READ),
    (AckRequest(topic=HEAP, tokens=[]), Op.READ),
    (NackRequest(topic=HEAP, tokens=[]), Op.READ),
    (ReleaseRequest(topic=HEAP, tokens=[]), Op.READ),
    (ExtendRequest(topic=HEAP, tokens=[], extension_ms=1_000), Op.READ),
    (PeekRequest(topic=HEAP), Op.READ),
    (StatsRequest(topic=HEAP), Op.DESCRIBE),
    (PlacesRequest(topic=HEAP), Op.DESCRIBE),
    (SpineRequest(topic=HEAP), Op.DESCRIBE),
    (DescribeRequest(topic=HEAP), Op.DESCRIBE),
    (UpdateRequest(topic=HEAP), Op.ALTER),
    (CancelRequest(topic=HEAP, message_id=ID), Op.ALTER),
    (ReprioritiseRequest(topic=HEAP, message_id=ID, priority=1), Op.ALTER),
    (MoveRequest(topic=HEAP, message_id=ID), Op.ALTER),
    (DeadLettersRequest(topic=HEAP, action="list"), Op.READ),
    (DeadLettersRequest(topic=HEAP, action="replay"), Op.ALTER),
    (DeadLettersRequest(topic=HEAP, action="delete"), Op.DELETE),
    (PurgeRequest(topic=HEAP), Op.DELETE),
    (CreateRequest(topic=HEAP), Op.CREATE),
    (DeleteRequest(topic=HEAP), Op.DELETE),
]
IMPLYING = {Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}}


async def asked(client: SecureClient, request: HeapRequest) -> Any:
    await client.wire.send_bytes(request_frame(request))
    return decode_response(request, (await client.wire.receive())[1])


async def may(secure: SecureGateway, *operations: Operation) -> None:
    await secure.set_acls(allow("ann", each, ResourceType.TOPIC, HEAP) for each in operations)


def test_every_request_has_a_cell() -> None:
    named = {type(request) for request, _ in NEEDS}
    assert named | {DeliverRequest, ConfirmRequest} == set(get_args(Request))
    needed = {(operation, ResourceType.TOPIC) for request, operation in NEEDS}
    others = {(Op.CLUSTER_ACTION, ResourceType.CLUSTER)}
    assert needed | others == {*RULES[ApiKey.HEAP].needs, *RULES[ApiKey.HEAP_POP].needs}


async def test_a_request_needs_what_it_is_listed_with_and_nothing_else(tmp_path: Path) -> None:
    every = {operation for _, operation in NEEDS}
    async with secure_gateway(tmp_path) as secure:
        ann = await secure.logged_in("ann")
        for request, need in NEEDS:
            await may(secure, *(every - {need} - IMPLYING.get(need, set())))
            with pytest.raises(Denied):
                await asked(ann, request)
            if not isinstance(request, CreateRequest):  # of a heap that is not there
                await may(secure, need)
                with suppress(UnknownTopicError):
                    await asked(ann, request)
        with pytest.raises(Denied):
            await asked(ann, DeliverRequest(topic=HEAP, partition=0, messages=[]))


async def test_messages_are_shown_to_who_may_read_alone(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        heaps = secure.gateway.node.agent.heaps
        await heaps.administration.create(HEAP, 1, {}, {"durability": "local"})
        await async_until(lambda: heaps.serves(HEAP, 0))
        await heaps.enqueue(HEAP, NewMessage(payload=b"secret"))
        ann = await secure.logged_in("ann")
        await may(secure, Operation.DESCRIBE, Operation.ALTER)
        (stats,) = await asked(ann, StatsRequest(topic=HEAP))
        assert stats.ready == 1
        for request in (PeekRequest(topic=HEAP), DeadLettersRequest(topic=HEAP, action="list")):
            with pytest.raises(Denied, match="may not read heap jobs"):
                await asked(ann, request)
        await may(secure, Operation.READ)
        (shown,) = await asked(ann, PeekRequest(topic=HEAP))
        assert shown.payload == b"secret"
        with pytest.raises(Denied, match="may not delete heap jobs"):
            await asked(ann, DeadLettersRequest(topic=HEAP, action="delete"))


def serves_both(heaps: HeapService, name: str) -> bool:
    return heaps.serves(name, 0) and heaps.serves(f"{name}.dlq", 0)


async def test_nobody_says_where_a_message_was_before(tmp_path: Path) -> None:
    """Dead letters are replayed to where they came from: a made-up origin would be a way into any heap."""
    async with secure_gateway(tmp_path) as secure:
        heaps = secure.gateway.node.agent.heaps
        for name in (HEAP, "payroll"):
            await heaps.administration.create(name, 1, {}, {"durability": "local"})
            await async_until(partial(serves_both, heaps, name))
        await secure.set_acls(
            allow("ann", each, ResourceType.TOPIC, HEAP, prefixed=True) for each in (Operation.WRITE, Operation.ALTER)
        )
        ann = await secure.logged_in("ann")
        origin = Origin("payroll", 0, b"0" * 16, 1, "none")
        with pytest.raises(InvalidError, match="invalid origin"):
            await asked(
                ann, EnqueueRequest(topic=f"{HEAP}.dlq", messages=[NewMessage(payload=b"pay me", origin=origin)])
            )
        await asked(ann, DeadLettersRequest(topic=HEAP, action="replay"))
        assert [each.ready for each in await heaps.stats("payroll")] == [0]


@asynccontextmanager
async def popping(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[SecureGateway, "asyncio.Future[Any]"]]:
    """Ann, who may read, waits for a message."""
    async with secure_gateway(tmp_path, **settings) as secure:
        heaps = secure.gateway.node.agent.heaps
        await heaps.administration.create(HEAP, 1, {}, {"durability": "local"})
        await async_until(lambda: heaps.serves(HEAP, 0))
        await may(secure, Operation.READ)
        ann = await secure.logged_in("ann")
        pop = asyncio.ensure_future(asked(ann, PopRequest(topic=HEAP, consumer="ann", wait_ms=60_000)))
        await async_until(lambda: any(each._in_flight for each in secure.gateway.server.connections))
        yield secure, pop
        await heaps.enqueue(HEAP, NewMessage(payload=b"secret"))
        assert [(each.ready, each.inflight) for each in await heaps.stats(HEAP)] == [(1, 0)]


async def test_who_may_no_longer_read_waits_for_no_message(tmp_path: Path) -> None:
    async with popping(tmp_path) as (secure, pop):
        await may(secure)
        with pytest.raises(asyncio.IncompleteReadError):
            await asyncio.wait_for(pop, WAIT_S)


async def test_a_pop_waits_no_longer_than_the_session_of_its_client(tmp_path: Path) -> None:
    async with popping(tmp_path, sasl_session_ms=500) as (_, pop):
        assert await asyncio.wait_for(pop, WAIT_S) == []
