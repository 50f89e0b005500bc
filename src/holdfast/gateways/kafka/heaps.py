"""Heap (32000), HeapPop (32001), version 0 each: heap operations on this port, of our own clients and of other nodes.

The body is a message of `heap.wire`. They are not advertised: Kafka's clients do not know them. HeapPop may wait, so a connection
that is used for it is used for nothing else.

What destroys messages takes `force` and a confirmation token, over this port as over every other; the node that forwards a request
has used its token up.
"""

import asyncio
from typing import Any, Final

import msgspec

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks
from holdfast.heap.wire import (
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
    HeapRequest,
    MoveRequest,
    PlacesRequest,
    PopRequest,
    PurgeRequest,
    ReprioritiseRequest,
    Request,
    SpineRequest,
    StatsRequest,
    UpdateRequest,
    decode_request,
    encode_failure,
    encode_result,
    entries_of,
)
from holdfast.kafka.api_keys import ApiKey
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.security.confirmations import ALWAYS, ANYBODY, Action
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.settings import KIB, check_one_of

_OPERATIONS: Final[dict[type[HeapRequest], Operation]] = {
    EnqueueRequest: Operation.WRITE,
    EnqueueBatchRequest: Operation.WRITE,
    StatsRequest: Operation.DESCRIBE,
    PlacesRequest: Operation.DESCRIBE,
    SpineRequest: Operation.DESCRIBE,
    CancelRequest: Operation.ALTER,
    ReprioritiseRequest: Operation.ALTER,
    MoveRequest: Operation.ALTER,
    PurgeRequest: Operation.DELETE,
    DeadLettersRequest: Operation.ALTER,
    CreateRequest: Operation.CREATE,
    DeleteRequest: Operation.DELETE,
    DescribeRequest: Operation.DESCRIBE,
    UpdateRequest: Operation.ALTER,
}
"""What a principal needs on the topic; READ for whatever is not listed: payloads, and what is done with leases."""
_LARGE_BYTES: Final = 64 * KIB  # decoded in half a millisecond, or a few if it is nothing but headers
_FEW: Final = 100  # entries, in a millisecond
_OF_DEAD_LETTERS: Final = {"list": Operation.READ, "delete": Operation.DELETE}
_ACTIONS: Final = tuple(sorted(ALWAYS))


async def heap(call: RequestContext, body: memoryview) -> ResponseChunks:
    """Serve a request."""
    try:
        request = await _in_turn(call, body)
        if isinstance(request, PopRequest) != (call.api.key is ApiKey.HEAP_POP):
            raise InvalidError(
                "heap request", type(request).__name__, "sent as HeapPop if it is a pop, as Heap otherwise"
            )
        if isinstance(request, ConfirmRequest):
            return (encode_result(await _confirmation(call, request)),)
        _check_allowed(call, request)
        if isinstance(request, PopRequest) and call.access is not None:
            call.needs = Operation.READ, ResourceType.TOPIC, request.topic
            request = msgspec.structs.replace(request, wait_ms=min(request.wait_ms, call.access.login.left_ms))
        call.is_paced = isinstance(request, DeadLettersRequest) and request.rate_per_s is not None
        if call.backend.heaps is None:
            raise UnavailableError("heaps", "not served by this node")
        action = _destructive(request)
        if action is not None and not (request.forwarded and _is_node(call)):
            await call.backend.heaps.heap(request.topic)
            await _check_confirmed(call, action, request)
        return (encode_result(await call.backend.heaps.call(request)),)
    except HoldfastError as error:
        return (encode_failure(error),)


async def _in_turn(call: RequestContext, body: memoryview) -> Request:
    """The request, when it may begin: what has many entries has a turn of the event loop of its own."""
    request = decode_request(body) if len(body) <= _LARGE_BYTES else None
    few = request is not None and entries_of(request) <= _FEW
    if request is not None and few and call.peer.line is None:
        return request
    if call.peer.line is None:
        call.peer.line = asyncio.Lock()
    async with call.peer.line:
        if not few:
            await call.next_turn()
        return request or decode_request(body)


def _check_allowed(call: RequestContext, request: HeapRequest) -> None:
    operation = _OPERATIONS.get(type(request), Operation.READ)
    if isinstance(request, DeadLettersRequest):
        operation = _OF_DEAD_LETTERS.get(request.action, operation)
    if isinstance(request, DeliverRequest):
        if not _is_node(call):
            raise Denied(request.topic, "move messages to")
    elif not call.allows(operation, ResourceType.TOPIC, request.topic):
        raise Denied(request.topic, operation.name.lower())


def _is_node(call: RequestContext) -> bool:
    return call.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


# ── confirmations ──


async def _confirmation(call: RequestContext, request: ConfirmRequest) -> tuple[str, int]:
    """A token is no right: the request that takes it is checked like any other."""
    check_one_of("action", request.action, _ACTIONS)
    made = await call.backend.confirmations.create(request.action, request.topic, _principal(call))
    return made.token, made.expires_at_ms


def _destructive(request: HeapRequest) -> Action | None:
    """What a request destroys, if it does."""
    match request:
        case PurgeRequest():
            return Action.PURGE_HEAP
        case DeleteRequest():
            return Action.DELETE_HEAP
        case DeadLettersRequest(action="delete", dry_run=False):
            return Action.DELETE_DEAD_LETTERS
    return None


async def _check_confirmed(call: RequestContext, action: Action, request: Any) -> None:
    await call.backend.confirmations.check(
        action, request.topic, force=request.force, token=request.confirmation_token, principal=_principal(call)
    )


def _principal(call: RequestContext) -> str:
    return ANYBODY if call.access is None else str(call.access.login.principal)


APIS: Final = (
    Api(key=ApiKey.HEAP, versions=(0, 0), flexible_from=1, raw=heap, pipelined=True),
    Api(key=ApiKey.HEAP_POP, versions=(0, 0), flexible_from=1, raw=heap, long_poll=True),
)
