"""Fetch (1), versions 4 to 18. By hand: batches go from the log's memory to the socket as they are.

Versions 0 to 3 carried older message formats. Not implemented: fetching by replicas (a replica id is ignored), transactions (the
last stable offset is the high watermark, and nothing is aborted), diverging epochs.
The connection writes the throttle time: it knows what the response took.
"""

from functools import partial
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks
from holdfast.gateways.kafka.fetch_reader import FetchLimits, PartitionFetch, read_partitions
from holdfast.gateways.kafka.fetch_sessions import (
    FINAL_EPOCH,
    FetchKey,
    FetchPartition,
    FetchPlan,
    FetchSession,
    LastSent,
)
from holdfast.gateways.kafka.large_requests import SMALL_BYTES
from holdfast.gateways.kafka.leaders import current_leader_tags, endpoints_tags, leader_of
from holdfast.gateways.kafka.request_spans import trace_fetch
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_EPOCH
from holdfast.kafka.wire import INT16, INT32, INT64, NO_TAGS, WireReader, encode_length, encode_string
from holdfast.log.batches import Buffer
from holdfast.vocabulary.clock import stopwatch_ns

_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_EPOCHS_FROM: Final = 9
_RACKS_FROM: Final = 11
_LEADERS_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_REPLICAS_BELOW: Final = 15
_ENDPOINTS_FROM: Final = 16
_FEW: Final = 100  # partitions of a session
_CURRENT_LEADER_TAG: Final = 1

_SEEN: Final = Struct(">ihqq")  # partition, error code, high watermark, last stable offset


class _FetchRequest(NamedTuple):
    limits: FetchLimits
    session_id: int
    session_epoch: int
    wanted: list[FetchPartition]
    forgotten: list[FetchKey]


async def fetch(call: RequestContext, body: memoryview) -> ResponseChunks:
    """Read every partition of the request, or of its session."""
    if len(body) <= SMALL_BYTES:
        return await _fetch(call, body)
    named_max = len(body) // _partition_bytes(call.version)
    fetching = _fetch(call, body)
    del body  # a long poll must not hold the memory of its request
    try:
        async with call.backend.fetch_room.taken(named_max) as call.place:
            return await fetching
    finally:
        fetching.close()  # it may not have begun


def _partition_bytes(version: int) -> int:
    """What naming a partition takes of a request."""
    return 16 + 8 * (version >= _START_FROM) + 4 * (version >= _EPOCHS_FROM) + 5 * (version >= _LEADERS_FROM)


async def _fetch(call: RequestContext, body: memoryview) -> ResponseChunks:
    large = call.backend.large_requests
    reader = WireReader(body, flexible=call.api.is_flexible(call.version), entries_max=large.entries_max)
    request = await large.read(call, body, partial(_parse, call, reader))
    del body, reader  # as above
    now_ms = call.backend.clock.boot_ms()
    plan = call.backend.fetch_sessions.plan(
        request.session_id,
        request.session_epoch,
        request.wanted,
        request.forgotten,
        now_ms,
        by_id=call.version >= _TOPIC_IDS_FROM,
    )
    if isinstance(plan, ErrorCode):
        return await _encode(call, [], plan, 0, request.limits.rack)
    session, limits = plan.session, request.limits
    del request  # what is in line holds nothing
    if session is None or call.place is not None or len(session.wanted) <= _FEW:
        return await _read(call, plan, limits)
    async with call.backend.session_room.taken(len(session.wanted)) as call.place:
        return await _read(call, plan, limits)


async def _read(call: RequestContext, plan: FetchPlan, limits: FetchLimits) -> ResponseChunks:
    reads = await read_partitions(call, plan.wanted, limits)
    if call.backend.tracer is not None:
        trace_fetch(call.backend.tracer, call, reads, stopwatch_ns() - call.arrived_ns)
    session_id = plan.session.id if plan.session is not None else 0
    return await _encode(call, _changed_partitions(plan, reads), ErrorCode.NONE, session_id, limits.rack)


def _changed_partitions(plan: FetchPlan, reads: list[PartitionFetch]) -> list[PartitionFetch]:
    """The partitions of the response: all, or in a session those that changed since the last one."""
    session = plan.session
    if session is None:
        return reads
    changed = [read for read in reads if _has_changed(session, read) or plan.full]
    for read in changed:
        key = read.wanted.key
        session.last_sent[key] = LastSent(read.high_watermark, read.start_offset, read.code)
        if read.size and key in session.wanted:
            session.move_to_end(key)
    return changed


def _has_changed(session: FetchSession, read: PartitionFetch) -> bool:
    if read.size or read.code is not ErrorCode.NONE or read.preferred >= 0:
        return True
    return session.last_sent.get(read.wanted.key) != LastSent(read.high_watermark, read.start_offset, read.code)


def _parse(call: RequestContext, reader: WireReader) -> _FetchRequest:
    version, settings = call.version, call.backend.settings
    if version < _REPLICAS_BELOW:
        reader.int32()  # replica id
    wait_ms, bytes_min, bytes_max = reader.int32(), reader.int32(), reader.int32()
    reader.int8()  # isolation level: without transactions, all are the same
    session_id, session_epoch = 0, FINAL_EPOCH
    if version >= _SESSIONS_FROM:
        session_id, session_epoch = reader.int32(), reader.int32()
    wanted = [each for _ in range(reader.array()) for each in _topic(version, reader)]
    forgotten: list[FetchKey] = []
    if version >= _SESSIONS_FROM:
        for _ in range(reader.array()):
            named = _named(version, reader)
            forgotten += [(named, reader.int32()) for _ in range(reader.array())]
            reader.tags()
    rack = reader.text() if version >= _RACKS_FROM else ""
    reader.tags()
    bytes_max = max(1, min(bytes_max, settings.fetch_bytes_max))  # 0 is allowed, and brings one batch
    limits = FetchLimits(
        wait_ms=max(0, min(wait_ms, settings.fetch_wait_max_ms)),
        bytes_min=bytes_min,
        bytes_max=bytes_max if call.meter is None else call.meter.limits.fetch_bytes_max(bytes_max),
        rack=rack,
    )
    return _FetchRequest(limits, session_id, session_epoch, wanted, forgotten)


def _topic(version: int, reader: WireReader) -> list[FetchPartition]:
    named = _named(version, reader)
    wanted = []
    for _ in range(reader.array()):
        number = reader.int32()
        leader_epoch = reader.int32() if version >= _EPOCHS_FROM else NO_EPOCH
        offset = reader.int64()
        if version >= _LEADERS_FROM:
            reader.int32()  # last fetched epoch, of replicas
        if version >= _START_FROM:
            reader.int64()  # log start offset, of replicas
        wanted.append(FetchPartition((named, number), offset, max(1, reader.int32()), leader_epoch))
        reader.tags()
    reader.tags()
    return wanted


def _named(version: int, reader: WireReader) -> str | UUID:
    return reader.uuid() if version >= _TOPIC_IDS_FROM else reader.text()


async def _encode(
    call: RequestContext, reads: list[PartitionFetch], code: ErrorCode, session_id: int, rack: str
) -> ResponseChunks:
    version, flexible = call.version, call.api.is_flexible(call.version)
    chunks: list[Buffer] = []
    leaders: set[int] = set()
    out = bytearray(INT32.pack(0))  # throttle time
    if version >= _SESSIONS_FROM:
        out += INT16.pack(code) + INT32.pack(session_id)
    by_topic: dict[str | UUID, list[PartitionFetch]] = {}
    for read in reads:
        by_topic.setdefault(read.wanted.key[0], []).append(read)
        if call.turn_is_over:
            await call.next_turn()
    out += encode_length(len(by_topic), flexible=flexible)
    for named, listed in by_topic.items():
        out += named.bytes if isinstance(named, UUID) else encode_string(named, flexible=flexible)
        out += encode_length(len(listed), flexible=flexible)
        for read in listed:
            out += _partition(version, read) + encode_length(read.size, flexible=flexible)
            if read.size:
                chunks += (bytes(out), *read.batches)
                out.clear()
            if flexible:
                out += _leader_tags(call, read, leaders, rack)
            if call.turn_is_over:
                await call.next_turn()
        if flexible:
            out += NO_TAGS
    if flexible:
        out += endpoints_tags(call.backend, leaders) if version >= _ENDPOINTS_FROM else NO_TAGS
    chunks.append(bytes(out))
    return chunks


def _partition(version: int, read: PartitionFetch) -> bytes:
    out = _SEEN.pack(read.wanted.key[1], read.code, read.high_watermark, read.high_watermark)
    if version >= _START_FROM:
        out += INT64.pack(read.start_offset)
    out += _NULL_ARRAY if version < _LEADERS_FROM else b"\0"  # no aborted transactions
    if version >= _RACKS_FROM:
        out += INT32.pack(read.preferred)
    return out


def _leader_tags(call: RequestContext, read: PartitionFetch, leaders: set[int], rack: str) -> bytes:
    """The leader of the partition, to who took another one, or another epoch, for it.

    Not to readers of a zone that this node leads it now: librdkafka (2.16) returns from a replica that refuses to the leader that
    it knew, and if it is told at the same time that the replica is the leader, it stays with the other one until that changes.
    """
    if read.topic is None or read.code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return NO_TAGS
    number, me = read.wanted.key[1], call.backend.me() if rack else None
    if me is not None and leader_of(call.backend.cluster, read.topic, number).node == me.node:
        return NO_TAGS
    return current_leader_tags(call.backend, read.topic, number, tag=_CURRENT_LEADER_TAG, leaders=leaders)


_NULL_ARRAY: Final = INT32.pack(-1)

APIS: Final = (Api(key=ApiKey.FETCH, versions=(4, 18), flexible_from=12, raw=fetch, long_poll=True),)
