"""Reading records as they become visible.

The one rule: nothing is read ahead of a client but what waits in one response: the next read of a partition begins when the one
before was taken, and a response is taken when the client's flow-control window has room for it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final

from holdfast.client.admin.positions import Beginning, EndPosition, Position
from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.entries import check_count
from holdfast.gateways.grpc.open_streams import open_stream
from holdfast.gateways.grpc.records import from_record, pages, to_position
from holdfast.gateways.log_access.log_reads import LogReads, ReadResult
from holdfast.gateways.log_access.topic_tail import PARTITIONS_MAX, Followed, ReadSizes, following
from holdfast.log.topics import Topic
from holdfast.v1 import fetch_service_pb2 as pb
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.settings import KIB, MIB

_BYTES: Final = MIB
_BYTES_MAX: Final = 3 * MIB  # stock clients take 4 MiB
_READ_BYTES_MIN: Final = 64 * KIB
_RECORDS: Final = 1_000
_RECORDS_MAX: Final = 10_000
_HEARTBEAT_MS: Final = 10_000


class FetchService:
    """`holdfast.v1.FetchService`."""

    def __init__(self, backend: GrpcBackend, reading: LogReads) -> None:
        self._backend, self._reading = backend, reading

    async def fetch(self, request: pb.FetchRequest, access: CallAccess) -> AsyncIterator[pb.FetchResponse]:
        """Responses until the client goes, or has everything that was there."""
        bytes_max = _limit("max_bytes", request.max_bytes, _BYTES, _BYTES_MAX)
        records_max = _limit("max_records", request.max_records, _RECORDS, _RECORDS_MAX)
        heartbeat_ms = _limit("heartbeat_ms", request.heartbeat_ms, _HEARTBEAT_MS, 600_000)
        topic = await self._reading.topic(request.topic)
        starts = _starts(request, topic)
        with open_stream(self._backend):
            positions = {number: await self._reading.offset(topic, number, at) for number, at in starts.items()}
            last = (
                {n: await self._reading.offset(topic, n, EndPosition()) for n in positions}
                if request.stop_at_end
                else None
            )
            if _is_done(positions, last):
                return
            # All partitions together have read no more than a response may have.
            sizes = ReadSizes(records_max=records_max, bytes_max=max(_READ_BYTES_MIN, bytes_max // len(positions)))
            ends = [self._backend.stopping.wait()]
            async with following(self._reading, topic, positions, sizes=sizes, ends=ends, skip_removed=False) as found:
                while not _is_done(positions, last):
                    item = await _next(found.queue, heartbeat_ms)
                    if item is None:
                        yield pb.FetchResponse()
                        continue
                    if isinstance(item, HoldfastError):
                        raise item
                    partition, read = item
                    self._backend.counters.records_read += len(read.records)
                    for response in _responses(partition, read, bytes_max):
                        yield response
                    positions[partition] = read.next_offset


def _responses(partition: int, read: ReadResult, bytes_max: int) -> Iterator[pb.FetchResponse]:
    chosen = list(pages(read.records, bytes_max)) or [()]
    for number, page in enumerate(chosen, 1):
        last = number == len(chosen)
        yield pb.FetchResponse(
            partition=partition,
            records=map(from_record, page),
            next_offset=read.next_offset if last else page[-1].offset + 1,
            start_offset=read.start_offset,
            end_offset=read.high_watermark,
        )


async def _next(found: asyncio.Queue[Followed], heartbeat_ms: int) -> Followed | None:
    """What was read next; None: nothing for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(heartbeat_ms / 1000):
            return await found.get()
    return None


def _is_done(positions: dict[int, int], ends: dict[int, int] | None) -> bool:
    return ends is not None and all(positions[number] >= end for number, end in ends.items())


def _starts(request: pb.FetchRequest, topic: Topic) -> dict[int, Position]:
    """Where to begin in each partition."""
    default = to_position("start", request.start, Beginning())
    if not request.partitions:
        if topic.partitions > PARTITIONS_MAX:
            raise InvalidError("partitions", "none", f"given: topic {topic.name} has more than {PARTITIONS_MAX}")
        return dict.fromkeys(range(topic.partitions), default)
    check_count("partitions", request.partitions, PARTITIONS_MAX)
    starts: dict[int, Position] = {}
    for at, each in enumerate(request.partitions):
        where = f"partitions[{at}]"
        if not 0 <= each.partition < topic.partitions:
            allowed = f"0 to {topic.partitions - 1}, as topic {topic.name} has"
            raise InvalidError(f"{where}.partition", each.partition, allowed)
        if each.partition in starts:
            raise InvalidError(f"{where}.partition", each.partition, "given once")
        starts[each.partition] = to_position(f"{where}.start", each.start, default)
    return starts


def _limit(name: str, given: int, default: int, most: int) -> int:
    if not 0 <= given <= most:
        raise InvalidError(name, given, f"0 to {most}")
    return given or default
