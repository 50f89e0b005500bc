"""Offsets by timestamp, and the end offsets of leader epochs.

    ListOffsets           2   versions 1–11
    OffsetForLeaderEpoch 23   versions 2–4

Timestamps: LATEST is the high watermark, EARLIEST the start, MAX_TIMESTAMP (from version 7 on) the record with the greatest
timestamp, EARLIEST_LOCAL (8) the start, too. LATEST_TIERED (9) and EARLIEST_PENDING_UPLOAD (11) are about Kafka's own tiering and
answered like a Kafka without it: there is no such offset. Without transactions, both isolation levels are the same.

The timeout of versions from 10 on is how long a lookup may take; `lookup_ms` is the limit of all versions.

Not implemented: version 0 of ListOffsets (a list of segments).
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import code_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
)
from holdfast.log.topics import TopicNameError
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import ConcurrencyLimit, cancellation_first, task_group, unwrap_exception_group

T = TypeVar("T")

# The first version of ListOffsets with a special timestamp.
_TIMESTAMP_SINCE_VERSION: Final = {
    EARLIEST: 0,
    LATEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

_TIMEOUT_SINCE_VERSION: Final = 10


async def list_offsets(call: RequestContext, request: Any) -> ResponseFields:
    """The offsets of timestamps, partition by partition, all side by side: one whose object does not answer holds up no other."""
    lookups = _Lookups(call, request, await _duplicates(call, request.topics))
    return {"topics": await _side_by_side(call, map(lookups.topic, request.topics))}


async def _duplicates(call: RequestContext, topics: Sequence[Any]) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    found = set()
    for topic in topics:
        async for each in call.each(topic.partitions):
            which = topic.name, each.partition_index
            if which in seen:
                found.add(which)
            seen.add(which)
    return found


async def _side_by_side(call: RequestContext, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, each begun in its turn. The first failure cancels the rest."""
    results: dict[int, T] = {}  # not the tasks: thousands that end together take their time

    async def note(at: int, one: Coroutine[Any, Any, T]) -> None:
        results[at] = await one

    try:
        async with cancellation_first(), task_group() as group:
            async for at, one in call.each(enumerate(work)):
                group.create_task(note(at, one))
    except BaseExceptionGroup as failed:
        raise unwrap_exception_group(failed) from None
    return [results[at] for at in range(len(results))]


class _Lookups:
    """The lookups of one request."""

    def __init__(self, call: RequestContext, request: Any, duplicates: set[tuple[str, int]]) -> None:
        settings = call.backend.settings
        self._call = call
        self._limit = ConcurrencyLimit(settings.lookups_max, slow_ms=settings.lookup_slow_ms)
        asked_ms = request.timeout.total_seconds() * 1000 if call.version >= _TIMEOUT_SINCE_VERSION else 0
        timeout_ms = min(settings.lookup_ms, asked_ms) if asked_ms > 0 else settings.lookup_ms
        self._until_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._duplicates = duplicates
        self._is_slow: asyncio.TimerHandle | None = None

    async def topic(self, topic: Any) -> ResponseFields:
        """The offsets of all partitions of a topic."""
        call = self._call
        async with self._limit.slot():
            refusal = await check_topic(call, topic.name)
        partitions: Sequence[ResponseFields]
        if refusal is not ErrorCode.NONE:
            partitions = [_none(each.partition_index, refusal) async for each in call.each(topic.partitions)]
        elif all(each.timestamp in (EARLIEST, LATEST) for each in topic.partitions):  # known at once
            partitions = [await self._lookup(topic.name, each) async for each in call.each(topic.partitions)]
        else:
            if self._is_slow is None:  # object storage holds up nobody who does not need it
                slow_s, leave = call.backend.settings.lookup_slow_ms / 1000, call.backend.large_requests.leave
                self._is_slow = asyncio.get_running_loop().call_later(slow_s, leave, call)
            partitions = await _side_by_side(call, (self._within_limits(topic.name, each) for each in topic.partitions))
        return {"name": topic.name, "partitions": partitions}

    async def _within_limits(self, name: str, wanted: Any) -> ResponseFields:
        try:
            async with asyncio.timeout_at(self._until_s), self._limit.slot():
                return await self._lookup(name, wanted)
        except TimeoutError:
            return _none(wanted.partition_index, ErrorCode.REQUEST_TIMED_OUT)

    async def _lookup(self, name: str, wanted: Any) -> ResponseFields:
        if (name, wanted.partition_index) in self._duplicates:
            return _none(wanted.partition_index, ErrorCode.INVALID_REQUEST)
        try:
            return await _offset(self._call, name, wanted)
        except HoldfastError as error:
            return _none(wanted.partition_index, code_of(error))


async def _offset(call: RequestContext, name: str, wanted: Any) -> ResponseFields:
    number, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < 0 and call.version < _TIMESTAMP_SINCE_VERSION.get(timestamp, call.version + 1):
        return _none(number, ErrorCode.UNSUPPORTED_VERSION)
    epoch = getattr(wanted, "current_leader_epoch", NO_EPOCH)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        await call.backend.log.describe(name, number, leader_epoch=epoch)
        return _none(number, ErrorCode.NONE)
    if timestamp == EARLIEST_LOCAL:
        timestamp = EARLIEST
    reached = await call.backend.log.offset_for_timestamp(name, number, timestamp, leader_epoch=epoch)
    if reached is None:
        return _none(number, ErrorCode.NONE)
    return {
        "partition_index": number,
        "error_code": ErrorCode.NONE,
        "timestamp": reached.timestamp_ms,
        "offset": reached.offset,
        "leader_epoch": reached.leader_epoch,
    }


def _none(number: int, code: ErrorCode) -> ResponseFields:
    return {
        "partition_index": number,
        "error_code": code,
        "timestamp": NO_TIMESTAMP,
        "offset": NO_OFFSET,
        "leader_epoch": NO_EPOCH,
    }


async def check_topic(call: RequestContext, name: str) -> ErrorCode:
    """Whether the topic exists and the client may look at it: asked once for all its partitions."""
    if not call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    backend = call.backend
    try:
        if backend.cluster.topic(name) is None:
            await backend.log.topics.get(name)
    except TopicNameError:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except HoldfastError as error:
        return code_of(error)
    return ErrorCode.NONE


async def offset_for_leader_epoch(call: RequestContext, request: Any) -> ResponseFields:
    """The end offset of an epoch, by which a reader detects truncation."""
    topics = []
    async for topic in call.each(request.topics):
        refusal = await check_topic(call, topic.topic)
        partitions = [
            await _end_of_epoch(call.backend, topic.topic, each, refusal) async for each in call.each(topic.partitions)
        ]
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


async def _end_of_epoch(backend: KafkaBackend, name: str, wanted: Any, refusal: ErrorCode) -> ResponseFields:
    epoch, end = NO_EPOCH, NO_OFFSET
    if refusal is not ErrorCode.NONE:
        return {"error_code": refusal, "partition": wanted.partition, "leader_epoch": epoch, "end_offset": end}
    try:
        code = ErrorCode.NONE
        epoch, end = await backend.log.end_of_epoch(
            name, wanted.partition, wanted.leader_epoch, leader_epoch=wanted.current_leader_epoch
        )
    except HoldfastError as error:
        code = code_of(error)
    return {"error_code": code, "partition": wanted.partition, "leader_epoch": epoch, "end_offset": end}


APIS: Final = (
    Api(key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible_from=6, control=list_offsets),
    Api(key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible_from=4, control=offset_for_leader_epoch),
)
