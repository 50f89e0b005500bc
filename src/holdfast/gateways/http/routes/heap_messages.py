"""Messages of heaps: enqueue, pop, what is done with a lease, and what is done with a message by its id."""

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import QueryParameter

from holdfast.gateways.heap.inspection import peek
from holdfast.gateways.http.access import access_of, require
from holdfast.gateways.http.heap.bodies import (
    EnqueueBatchBody,
    EnqueueBody,
    ExtendBody,
    LeasesBody,
    MessageIdBody,
    NackBody,
    PopBody,
    ReprioritiseBody,
    decoded_batch,
    placed,
)
from holdfast.gateways.http.heap.connected_pop import pop_while_connected
from holdfast.gateways.http.heap.results import (
    ChangedMessage,
    EnqueuedBatch,
    EnqueuedMessage,
    ExtendedLeases,
    PeekedItem,
    PeekedItems,
    PoppedItem,
    PoppedItems,
    SettledLeases,
    lost_leases,
    settled_leases,
    time_text,
)
from holdfast.gateways.http.routes.bodies import decoded_body
from holdfast.gateways.http.routes.confirmations import principal_of
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.gateways.http.routes.heap_dependencies import HEAP_PATH, HeapRoutes, HeapsDependency
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.heap.errors import LeaseLostError
from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.heap.wire import (
    AckRequest,
    CancelRequest,
    EnqueueRequest,
    ExtendRequest,
    HeapRequest,
    LostLease,
    NackRequest,
    PopRequest,
    ReleaseRequest,
    ReprioritiseRequest,
)
from holdfast.log.topics import UnknownTopicError
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.identity import AuthenticationError
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between

_WAIT_MS_MAX = 50_000
_ENQUEUE = msgspec.json.Decoder(EnqueueBody)
_POP = msgspec.json.Decoder(PopBody)
_LEASES = msgspec.json.Decoder(LeasesBody)
_NACK = msgspec.json.Decoder(NackBody)
_EXTEND = msgspec.json.Decoder(ExtendBody)
_REPRIORITISE = msgspec.json.Decoder(ReprioritiseBody)
_MESSAGE = msgspec.json.Decoder(MessageIdBody)


@post(
    f"{HEAP_PATH}/enqueue",
    tags=["heap messages"],
    summary="Enqueue a message",
    status_code=200,
    opt={"body": EnqueueBody},
)
async def enqueue(heaps: HeapsDependency, request: HttpRequest) -> EnqueuedMessage:
    """Enqueue a message; returns once it is durable. With `producer_id` and `sequence` the same one again is a duplicate."""
    body = await request.body()
    data = await off_loop(len(body), lambda: decoded_body(_ENQUEUE, body))
    require(request, Operation.WRITE, ResourceType.TOPIC, data.topic)
    message = await off_loop(len(body), data.message)
    [found] = await heaps.calls.call(EnqueueRequest(topic=data.topic, messages=[message]))
    return EnqueuedMessage.of(found)


@post(
    f"{HEAP_PATH}/enqueue:batch",
    tags=["heap messages"],
    summary="Enqueue messages",
    status_code=200,
    opt={"body": EnqueueBatchBody},
)
async def enqueue_batch(heaps: HeapsDependency, request: HttpRequest) -> EnqueuedBatch:
    """Enqueue messages of one heap; returns once all are durable. They are there as a whole or not at all."""
    body = await request.body()
    data = await off_loop(len(body), lambda: decoded_batch(body))
    require(request, Operation.WRITE, ResourceType.TOPIC, data.topic)
    messages = await off_loop(len(body), data.read)
    try:
        found = await heaps.calls.call(EnqueueRequest(topic=data.topic, messages=messages))
    except InvalidError as error:
        raise placed(error, messages) from None
    return EnqueuedBatch(results=[EnqueuedMessage.of(each) for each in found])


@post(f"{HEAP_PATH}/pop", tags=["heap messages"], summary="Lease messages", status_code=200, opt={"body": PopBody})
async def pop(heaps: HeapsDependency, request: HttpRequest) -> PoppedItems:
    """Lease messages, the best first; waits for the first one. A client that goes away gives them back."""
    data = decoded_body(_POP, await request.body())
    require(request, Operation.READ, ResourceType.TOPIC, data.topic)
    check_between("wait_ms", data.wait_ms, 0, _WAIT_MS_MAX)
    asked = PopRequest(
        topic=data.topic,
        partition=data.partition,
        consumer=data.consumer or principal_of(request),
        max_messages=data.max,
        visibility_timeout_ms=data.visibility_timeout_ms,
        wait_ms=data.wait_ms,
    )
    access = access_of(request)
    ended = partial(access.ended, Operation.READ, ResourceType.TOPIC, data.topic) if access is not None else None
    found = await pop_while_connected(heaps.calls, heaps.waits, asked, request.receive, ended)
    if not found and access is not None and not access.is_valid(Operation.READ, ResourceType.TOPIC, data.topic):
        raise AuthenticationError("the credentials were revoked while the request waited")
    return PoppedItems(items=[PoppedItem.of(each) for each in found])


async def _settle(heaps: HeapRoutes, data: LeasesBody, asked: HeapRequest) -> list[Any]:
    """What became of leases. `LeaseLostError`: it was one, and is lost."""
    found: list[Any] = await heaps.calls.call(asked)
    if data.lease_token and isinstance(found[0], LostLease):
        lost = found[0]
        raise LeaseLostError(data.topic, lost.message_id or data.message_id, lost.reason)
    return found


@post(
    f"{HEAP_PATH}/ack",
    tags=["heap messages"],
    summary="Acknowledge messages",
    status_code=200,
    opt={"body": LeasesBody},
)
async def ack(heaps: HeapsDependency, request: HttpRequest) -> SettledLeases:
    """The messages are done; returns once that is durable. 409: the lease was lost."""
    data = decoded_body(_LEASES, await request.body())
    require(request, Operation.READ, ResourceType.TOPIC, data.topic)
    tokens = data.tokens()
    return settled_leases(tokens, await _settle(heaps, data, AckRequest(topic=data.topic, tokens=tokens)))


@post(f"{HEAP_PATH}/nack", tags=["heap messages"], summary="Refuse messages", status_code=200, opt={"body": NackBody})
async def nack(heaps: HeapsDependency, request: HttpRequest) -> SettledLeases:
    """The messages failed: they are tried again after a pause, or become dead letters. 409: the lease was lost."""
    data = decoded_body(_NACK, await request.body())
    require(request, Operation.READ, ResourceType.TOPIC, data.topic)
    tokens = data.tokens()
    asked = NackRequest(topic=data.topic, tokens=tokens, backoff_ms=data.backoff_ms, reason=data.reason)
    return settled_leases(tokens, await _settle(heaps, data, asked))


@post(
    f"{HEAP_PATH}/release",
    tags=["heap messages"],
    summary="Give messages back",
    status_code=200,
    opt={"body": LeasesBody},
)
async def release(heaps: HeapsDependency, request: HttpRequest) -> SettledLeases:
    """The messages were not worked on: they wait again at once, and it does not count as an attempt."""
    data = decoded_body(_LEASES, await request.body())
    require(request, Operation.READ, ResourceType.TOPIC, data.topic)
    tokens = data.tokens()
    return settled_leases(tokens, await _settle(heaps, data, ReleaseRequest(topic=data.topic, tokens=tokens)))


@post(f"{HEAP_PATH}/extend", tags=["heap messages"], summary="Extend leases", status_code=200, opt={"body": ExtendBody})
async def extend(heaps: HeapsDependency, request: HttpRequest) -> ExtendedLeases:
    """New deadlines, counted from now, up to the heap's `lease_ms_max` after the pop. 409: the lease was lost."""
    data = decoded_body(_EXTEND, await request.body())
    require(request, Operation.READ, ResourceType.TOPIC, data.topic)
    tokens = data.tokens()
    asked = ExtendRequest(topic=data.topic, tokens=tokens, extension_ms=data.extension_ms)
    found = await _settle(heaps, data, asked)
    lost = lost_leases(tokens, found)
    deadlines = [time_text(each) if isinstance(each, int) else None for each in found]
    return ExtendedLeases(
        settled=len(tokens) - len(lost),
        lost=lost,
        lease_deadline=(deadlines[0] or "") if data.lease_token else "",
        lease_deadlines=() if data.lease_token else deadlines,
    )


@get(f"{HEAP_PATH}/peek", tags=["heap messages"], summary="Look at what comes next")
async def get_peek(
    heaps: HeapsDependency,
    request: HttpRequest,
    topic: Annotated[str, QueryParameter(name="topic")],
    partition: Annotated[int | None, QueryParameter(name="partition")] = None,
    limit: Annotated[int, QueryParameter(name="limit", ge=1, le=1_000)] = 10,
    include_dlq: Annotated[bool, QueryParameter(name="include_dlq")] = False,
) -> PeekedItems:
    """The messages that would be popped next, and after them dead letters, if they are asked for. Nothing is leased."""
    require(request, Operation.READ, ResourceType.TOPIC, topic)
    items = [PeekedItem.of(each) for each in await peek(heaps.calls, topic, limit=limit, partition=partition)]
    if include_dlq and len(items) < limit:
        try:
            letters = await peek(heaps.calls, topic + DLQ_SUFFIX, limit=limit - len(items), partition=partition)
        except UnknownTopicError:
            letters = []  # the heap has none
        items += [PeekedItem.of(each, dlq=True) for each in letters]
    return PeekedItems(items=items)


@post(
    f"{HEAP_PATH}/reprioritise",
    tags=["heap messages"],
    summary="Change a priority",
    status_code=200,
    opt={"body": ReprioritiseBody},
)
async def reprioritise(heaps: HeapsDependency, request: HttpRequest) -> ChangedMessage:
    """Give a message another priority. One that is leased has it when it comes back."""
    data = decoded_body(_REPRIORITISE, await request.body())
    require(request, Operation.ALTER, ResourceType.TOPIC, data.topic)
    await heaps.calls.call(ReprioritiseRequest(topic=data.topic, message_id=data.message_id, priority=data.priority))
    return ChangedMessage(message_id=data.message_id)


@post(
    f"{HEAP_PATH}/cancel",
    tags=["heap messages"],
    summary="Withdraw a message",
    status_code=200,
    opt={"body": MessageIdBody},
)
async def cancel(heaps: HeapsDependency, request: HttpRequest) -> ChangedMessage:
    """Withdraw a message, leased or not."""
    data = decoded_body(_MESSAGE, await request.body())
    require(request, Operation.ALTER, ResourceType.TOPIC, data.topic)
    await heaps.calls.call(CancelRequest(topic=data.topic, message_id=data.message_id))
    return ChangedMessage(message_id=data.message_id)


HANDLERS = (enqueue, enqueue_batch, pop, ack, nack, release, extend, get_peek, reprioritise, cancel)
