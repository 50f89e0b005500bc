"""Reads the partitions of one fetch: at least `bytes_min`, at most `bytes_max`, and one wait for all of them.

The first partition with records returns at least one batch, however large, so that every reader makes progress; the others share
the rest. An error ends the wait. Waiting holds no records.

A reader in another zone that is behind is sent to a replica in its own zone, if Metadata lists one: clients cannot ask any other.
It reads published segments straight from object storage; at their end, the reader is sent back to the leader.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import RequestContext
from holdfast.gateways.kafka.errors import code_of
from holdfast.gateways.kafka.fetch_sessions import FetchPartition
from holdfast.gateways.kafka.leaders import preferred_replica, replicas_of
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_NODE, NO_OFFSET
from holdfast.log.batches import Buffer
from holdfast.log.errors import NotLeaderError, OffsetOutOfRangeError
from holdfast.log.service import ReadProgress
from holdfast.vocabulary.errors import HoldfastError

_NEARLY_FULL: Final = 16


class FetchLimits(NamedTuple):
    """Limits of a request."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    rack: str


@dataclass(slots=True)
class PartitionFetch:
    """The result for one partition."""

    wanted: FetchPartition
    topic: str | None = None
    code: ErrorCode = ErrorCode.NONE
    high_watermark: int = NO_OFFSET
    start_offset: int = NO_OFFSET
    batches: Sequence[Buffer] = ()
    size: int = 0
    preferred: int = NO_NODE
    progress: ReadProgress | None = field(default=None, repr=False)


async def read_partitions(
    call: RequestContext, wanted: Sequence[FetchPartition], limits: FetchLimits
) -> list[PartitionFetch]:
    """The results of all partitions, in the order of the request."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limits.wait_ms / 1000
    reads: list[PartitionFetch | None] = [None] * len(wanted)
    while True:
        left = limits.bytes_max
        settled = False
        for at, each in enumerate(wanted):
            known = reads[at]
            if known is None or (known.progress is not None and known.progress.high_watermark > known.high_watermark):
                # Nearly full: a read would mostly return more than fits, and be wasted.
                room = left if left == limits.bytes_max or left > limits.bytes_max // _NEARLY_FULL else 0
                known = reads[at] = await _read(call, each, room, limits)
                if known.size > max(0, min(left, each.bytes_max)) and left < limits.bytes_max:
                    known.batches, known.size = (), 0  # the others filled the response: next time
            left -= known.size
            settled = settled or known.code is not ErrorCode.NONE or known.preferred >= 0
        got = limits.bytes_max - left
        done = [each for each in reads if each is not None]
        if settled or got >= limits.bytes_min or (got and got >= limits.bytes_max) or loop.time() >= deadline:
            return done
        if not await _wait_for_records(done, deadline - loop.time()):
            reads = [None] * len(wanted)  # one is no longer led here: read again for its error


async def _wait_for_records(reads: Sequence[PartitionFetch], wait_s: float) -> bool:
    """Wait until a partition has new records; False: one of them is no longer led here."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = [(read.progress, read.high_watermark) for read in reads if read.progress is not None]
    for progress, seen in waiting:
        progress.resolve_beyond(seen, waiter)
    try:
        async with asyncio.timeout(wait_s):
            await waiter
    except TimeoutError:
        return True
    except HoldfastError:
        return False
    finally:
        for progress, seen in waiting:
            progress.forget(seen)
    return True


async def _read(call: RequestContext, wanted: FetchPartition, left: int, limits: FetchLimits) -> PartitionFetch:
    named, number = wanted.key
    topic = call.backend.cluster.name_of(named.hex) if isinstance(named, UUID) else named
    read = PartitionFetch(wanted, topic)
    if topic is None:
        read.code = ErrorCode.UNKNOWN_TOPIC_ID
        return read
    try:
        await _fill(call, read, topic, number, max(0, min(left, wanted.bytes_max)), limits.rack)
    except OffsetOutOfRangeError as error:
        read.code, read.start_offset, read.high_watermark = ErrorCode.OFFSET_OUT_OF_RANGE, error.start, error.end
    except HoldfastError as error:
        read.code = code_of(error)
    return read


async def _fill(call: RequestContext, read: PartitionFetch, topic: str, number: int, bytes_max: int, rack: str) -> None:
    log, offset, epoch = call.backend.log, read.wanted.offset, read.wanted.leader_epoch
    try:
        if rack and await _redirect(call, read, topic, number, rack):
            return
        found = await log.read(topic, number, offset, bytes_max=bytes_max, leader_epoch=epoch)
    except NotLeaderError:
        if not rack or not _is_replica_in(call, topic, number, rack):
            raise
        published = await log.fetch_published(topic, number, offset, bytes_max=bytes_max)
        if published is None:
            raise  # only the leader has it
        read.high_watermark, read.start_offset = published.high_watermark, published.start_offset
        read.batches, read.size = published.batches, published.size_bytes
        return
    read.batches, read.size, read.start_offset, read.high_watermark, _, read.progress = found


async def _redirect(call: RequestContext, read: PartitionFetch, topic: str, number: int, rack: str) -> bool:
    """Send a reader whose offset is published to a replica of its own zone, if there is one and we are in another."""
    me = call.backend.me()
    if me is None or me.rack == rack:
        return False
    preferred = preferred_replica(replicas_of(call.backend.cluster, topic, number), leader=me.node, rack=rack)
    if preferred == NO_NODE:
        return False
    status = await call.backend.log.describe(topic, number, leader_epoch=read.wanted.leader_epoch)
    if not status.start_offset <= read.wanted.offset < status.published_until:
        return False
    read.preferred, read.high_watermark, read.start_offset = preferred, status.high_watermark, status.start_offset
    return True


def _is_replica_in(call: RequestContext, topic: str, number: int, rack: str) -> bool:
    """Whether this node is a replica of the partition in the reader's zone: one to which the leader may have sent it."""
    me = call.backend.me()
    return me is not None and any(
        member.node == me.node and member.zone == rack for member in replicas_of(call.backend.cluster, topic, number)
    )
