"""Offsets by time, and where leader epochs ended.

    ListOffsets           2   versions 1–11
    OffsetForLeaderEpoch 23   versions 2–4

Times: -1 is the high watermark, -2 the start, -3 (from version 7 on) the record with the greatest timestamp, -4 (8) the earliest
local offset, which is the start. -5 (9) and -6 (11) ask about Kafka's own tiering and are answered as by a Kafka without it:
there is no such offset. Both isolation levels are answered alike as long as there are no transactions.

Not implemented: version 0 of ListOffsets (a list of segments), and the time limit of versions from 10 on, which is about tiering.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import code_of
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.leader_epochs import epoch_at
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.reader import EARLIEST, LATEST, MAX_TIMESTAMP
from holdfast.log.topics import TopicNameError
from holdfast.vocabulary.errors import HoldfastError

EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_NOT_TIERED: Final = -6

# Since which version a time that is none may be asked for.
_TIMESTAMP_SINCE_VERSION: Final = {
    EARLIEST: 0,
    LATEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_NOT_TIERED: 11,
}

NO_EPOCH: Final = -1
_LOOKUPS_MAX: Final = 32  # side by side


async def list_offsets(call: RequestContext, request: Any) -> ResponseFields:
    """The offset of a time, partition by partition."""
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for each in topic.partitions:
            which = (topic.name, each.partition_index)
            (twice if which in seen else seen).add(which)
    slots = asyncio.Semaphore(_LOOKUPS_MAX)

    async def look(name: str, asked: Any) -> ResponseFields:
        if (name, asked.partition_index) in twice:
            return _none(asked.partition_index, ErrorCode.INVALID_REQUEST)
        try:
            if asked.timestamp in (EARLIEST, LATEST):  # known at once: needs no turn
                return await _offset(call, name, asked)
            async with slots:
                return await _offset(call, name, asked)
        except HoldfastError as error:
            return _none(asked.partition_index, code_of(error))

    topics = []
    for topic in request.topics:
        refusal = await check_topic(call.backend, topic.name)
        if refusal is not ErrorCode.NONE:
            partitions: Sequence[ResponseFields] = [_none(each.partition_index, refusal) for each in topic.partitions]
        elif all(each.timestamp in (EARLIEST, LATEST) for each in topic.partitions):
            partitions = [await look(topic.name, each) for each in topic.partitions]
        else:
            partitions = await asyncio.gather(*(look(topic.name, each) for each in topic.partitions))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _offset(call: RequestContext, name: str, asked: Any) -> ResponseFields:
    number, timestamp = asked.partition_index, asked.timestamp
    if timestamp < 0 and call.version < _TIMESTAMP_SINCE_VERSION.get(timestamp, call.version + 1):
        return _none(number, ErrorCode.UNSUPPORTED_VERSION)
    led = await call.backend.log.led(name, number)
    led.check_readable()
    code = check_leader_epoch(led, getattr(asked, "current_leader_epoch", NO_EPOCH))
    if code is not ErrorCode.NONE or timestamp in (LATEST_TIERED, EARLIEST_NOT_TIERED):
        return _none(number, code)
    if timestamp == EARLIEST_LOCAL:
        timestamp = EARLIEST
    reached = await call.backend.log.offset_for_timestamp(name, number, timestamp)
    if reached is None:
        return _none(number, ErrorCode.NONE)
    return {
        "partition_index": number,
        "error_code": ErrorCode.NONE,
        "timestamp": reached.timestamp_ms,
        "offset": reached.offset,
        "leader_epoch": led.lease.epoch if timestamp == LATEST else epoch_at(led.epochs, reached.offset),
    }


def _none(number: int, code: ErrorCode) -> ResponseFields:
    return {"partition_index": number, "error_code": code, "timestamp": -1, "offset": -1, "leader_epoch": NO_EPOCH}


async def check_topic(backend: KafkaBackend, name: str) -> ErrorCode:
    """Whether there is such a topic: looked up once, however many of its partitions are asked about."""
    try:
        if backend.cluster.topic(name) is None:
            await backend.log.topics.get(name)
    except TopicNameError:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except HoldfastError as error:
        return code_of(error)
    return ErrorCode.NONE


def check_leader_epoch(led: LeadingPartition, epoch: int) -> ErrorCode:
    """Whether the client knows the leadership we have: an older one is fenced, a newer one has not reached us."""
    if epoch == NO_EPOCH or epoch == led.lease.epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if epoch < led.lease.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


async def offset_for_leader_epoch(call: RequestContext, request: Any) -> ResponseFields:
    """Where an epoch ended, so that a reader can tell whether what it read is still there."""
    topics = []
    for topic in request.topics:
        refusal = await check_topic(call.backend, topic.topic)
        partitions = [await _end_of_epoch(call.backend, topic.topic, each, refusal) for each in topic.partitions]
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


async def _end_of_epoch(backend: KafkaBackend, name: str, asked: Any, refusal: ErrorCode) -> ResponseFields:
    epoch, end = NO_EPOCH, -1
    if refusal is not ErrorCode.NONE:
        return {"error_code": refusal, "partition": asked.partition, "leader_epoch": epoch, "end_offset": end}
    try:
        led = await backend.log.led(name, asked.partition)
        code = check_leader_epoch(led, asked.current_leader_epoch)
        if code is ErrorCode.NONE:
            epoch, end = await backend.log.end_of_epoch(name, asked.partition, asked.leader_epoch)
    except HoldfastError as error:
        code = code_of(error)
    return {"error_code": code, "partition": asked.partition, "leader_epoch": epoch, "end_offset": end}


APIS: Final = (
    Api(key=2, name="ListOffsets", versions=(1, 11), flexible_from=6, control=list_offsets),
    Api(key=23, name="OffsetForLeaderEpoch", versions=(2, 4), flexible_from=4, control=offset_for_leader_epoch),
)
