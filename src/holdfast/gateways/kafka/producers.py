"""Idempotent producers: their ids, and their state in a partition.

    InitProducerId     22   versions 0–5
    DescribeProducers  61   version 0

A producer that keeps its id (from version 3 on) gets its next epoch, which fences batches still in flight; a new id if the epochs
are used up, or if the id was never assigned.

Not implemented: transactions. A transactional id gets UNSUPPORTED_VERSION. Few clients come that far: they look up the transaction
coordinator first, which is refused at once (`transactions`). Version 6 (two-phase commit) is not supported.
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.errors import code_of, not_authorized
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError

_EPOCH_MAX: Final = (1 << 15) - 2  # Kafka and its clients reserve the last one


async def init_producer_id(call: RequestContext, request: Any) -> ResponseFields:
    """A unique id and epoch."""
    known_id, known_epoch = (
        getattr(request, "producer_id", NO_PRODUCER_ID),
        getattr(request, "producer_epoch", NO_EPOCH),
    )
    if request.transactional_id is not None:
        if not call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _failed(ErrorCode.UNSUPPORTED_VERSION)
    if not call.allows_cluster(Operation.IDEMPOTENT_WRITE) and not call.allows_any(Operation.WRITE, ResourceType.TOPIC):
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (known_id == NO_PRODUCER_ID) != (known_epoch == NO_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    ids = call.backend.producer_ids
    try:
        if known_id != NO_PRODUCER_ID and 0 <= known_epoch < _EPOCH_MAX and await ids.was_given(known_id):
            return {"error_code": ErrorCode.NONE, "producer_id": known_id, "producer_epoch": known_epoch + 1}
        return {"error_code": ErrorCode.NONE, "producer_id": await ids.next(), "producer_epoch": 0}
    except (UnavailableError, OutcomeUnknownError):
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # the one code after which every client retries


def _failed(code: ErrorCode) -> ResponseFields:
    return {"error_code": code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_EPOCH}


async def describe_producers(call: RequestContext, request: Any) -> ResponseFields:
    """The producers that a partition has state of."""
    return {
        "topics": [
            {
                "name": topic.name,
                # Each once: its producers are a thousand times as large as its number.
                "partitions": [
                    await _described(call, topic.name, each)
                    async for each in call.each(dict.fromkeys(topic.partition_indexes))
                ],
            }
            async for topic in call.each({each.name: each for each in request.topics}.values())
        ]
    }


async def _described(call: RequestContext, name: str, number: int) -> ResponseFields:
    code, text, active = ErrorCode.NONE, None, []
    try:
        if not call.allows(Operation.READ, ResourceType.TOPIC, name):
            raise not_authorized(ResourceType.TOPIC)
        active = [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "last_sequence": each.batches[-1].last_seq if each.batches else NO_SEQUENCE,
                "last_timestamp": each.last_timestamp_ms,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.transaction_offset,
            }
            for each in await call.backend.log.producers(name, number)
        ]
    except HoldfastError as error:
        code, text = code_of(error), str(error)
    return {"partition_index": number, "error_code": code, "error_message": text, "active_producers": active}


APIS: Final = (
    Api(key=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), flexible_from=2, control=init_producer_id),
    Api(key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible_from=0, control=describe_producers),
)
