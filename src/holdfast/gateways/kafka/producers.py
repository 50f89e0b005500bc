"""Idempotent producers: ids for them, and what a partition remembers of them.

    InitProducerId     22   versions 0–5
    DescribeProducers  61   version 0

A producer that asks to go on with its id (from version 3 on) gets the next epoch of it, which bars what it sent before and may
still be on its way; a fresh id if the epochs are used up, or if it was never given that id.

Not implemented: transactions. Who brings a transactional id hears UNSUPPORTED_VERSION. Few come that far: clients look for the
transaction's coordinator first, which FindCoordinator refuses; Java's producer fails with that at once, librdkafka at its time-out.
Version 6 (transactions in two phases) is not offered.
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import code_of
from holdfast.kafka.error_codes import ErrorCode
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError

NO_ID: Final = -1
NO_EPOCH: Final = -1

_EPOCH_MAX: Final = (1 << 15) - 2  # Kafka keeps the last one for itself, and so do its clients


async def init_producer_id(call: RequestContext, request: Any) -> ResponseFields:
    """An id and an epoch nobody else has."""
    known_id, known_epoch = getattr(request, "producer_id", NO_ID), getattr(request, "producer_epoch", NO_EPOCH)
    if request.transactional_id is not None:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if (known_id == NO_ID) != (known_epoch == NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    ids = call.backend.producer_ids
    try:
        if known_id != NO_ID and 0 <= known_epoch < _EPOCH_MAX and await ids.was_given(known_id):
            return {"error_code": ErrorCode.NONE, "producer_id": known_id, "producer_epoch": known_epoch + 1}
        return {"error_code": ErrorCode.NONE, "producer_id": await ids.next(), "producer_epoch": 0}
    except (UnavailableError, OutcomeUnknownError):
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # what makes every client ask again, and nothing else


def _refused(code: ErrorCode) -> ResponseFields:
    return {"error_code": code, "producer_id": NO_ID, "producer_epoch": NO_EPOCH}


async def describe_producers(call: RequestContext, request: Any) -> ResponseFields:
    """Who has written to a partition and may still be writing."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [await _described(call.backend, topic.name, each) for each in topic.partition_indexes],
            }
            for topic in request.topics
        ]
    }


async def _described(backend: KafkaBackend, name: str, number: int) -> ResponseFields:
    code, text, active = ErrorCode.NONE, None, []
    try:
        led = await backend.log.led(name, number)
        led.check_readable()
        active = [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "last_sequence": each.batches[-1].last_seq if each.batches else -1,
                "last_timestamp": each.last_timestamp_ms,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.transaction_offset,
            }
            for each in led.producers_at(led.next_offset)
        ]
    except HoldfastError as error:
        code, text = code_of(error), str(error)
    return {"partition_index": number, "error_code": code, "error_message": text, "active_producers": active}


APIS: Final = (
    Api(key=22, name="InitProducerId", versions=(0, 5), flexible_from=2, control=init_producer_id),
    Api(key=61, name="DescribeProducers", versions=(0, 0), flexible_from=0, control=describe_producers),
)
