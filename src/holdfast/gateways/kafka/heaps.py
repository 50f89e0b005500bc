"""Heap (32000), HeapPop (32001), version 0 each: heap operations on this port, of our own clients and of other nodes.

The body is a message of `heap.wire`. They are not advertised: Kafka's clients do not know them. HeapPop may wait, so a connection
that is used for it is used for nothing else.
"""

from typing import Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks
from holdfast.heap.wire import (
    CancelRequest,
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
    StatsRequest,
    decode_request,
    encode_failure,
    encode_result,
)
from holdfast.kafka.api_keys import ApiKey
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError

_OPERATIONS: Final[dict[type[HeapRequest], Operation]] = {
    EnqueueRequest: Operation.WRITE,
    EnqueueBatchRequest: Operation.WRITE,
    StatsRequest: Operation.DESCRIBE,
    PlacesRequest: Operation.DESCRIBE,
    CancelRequest: Operation.ALTER,
    ReprioritiseRequest: Operation.ALTER,
    MoveRequest: Operation.ALTER,
    PurgeRequest: Operation.DELETE,
    DeadLettersRequest: Operation.ALTER,
    CreateRequest: Operation.CREATE,
    DeleteRequest: Operation.DELETE,
    DescribeRequest: Operation.DESCRIBE,
}
"""What a principal needs on the topic; READ for whatever is not listed: payloads, and what is done with leases."""


async def heap(call: RequestContext, body: memoryview) -> ResponseChunks:
    """Serve a request."""
    try:
        request = decode_request(body)
        if isinstance(request, PopRequest) != (call.api.key is ApiKey.HEAP_POP):
            raise InvalidError(
                "heap request", type(request).__name__, "sent as HeapPop if it is a pop, as Heap otherwise"
            )
        operation = _OPERATIONS.get(type(request), Operation.READ)
        if isinstance(request, DeadLettersRequest) and request.action == "list":
            operation = Operation.READ
        if isinstance(request, DeliverRequest):
            if not call.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
                raise Denied(request.topic, "move messages to")
        elif not call.allows(operation, ResourceType.TOPIC, request.topic):
            raise Denied(request.topic, operation.name.lower())
        if call.backend.heaps is None:
            raise UnavailableError("heaps", "not served by this node")
        return (encode_result(await call.backend.heaps.call(request)),)
    except HoldfastError as error:
        return (encode_failure(error),)


APIS: Final = (
    Api(key=ApiKey.HEAP, versions=(0, 0), flexible_from=1, raw=heap, pipelined=True),
    Api(key=ApiKey.HEAP_POP, versions=(0, 0), flexible_from=1, raw=heap, long_poll=True),
)
