"""The batches of a range, in order: published segments from object storage, the rest from the leader.

The one rule: every offset is read from where it is now. Publishing goes on while a range is read: at the end of the published part
the store is read again, and only what is still unpublished comes from the leader. If a segment is missing, it was replaced or
removed: the segments are listed again from the first offset that was not returned.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from holdfast.client.brokers import BrokerClient, TopicInfo
from holdfast.client.counted_objects import CountedObjects
from holdfast.client.splits import ANY_TIME, PublishedPart, TimeBounds, find_segments
from holdfast.client.types import DataLossError, PartitionRange, ReadCounters, TopicChangedError
from holdfast.contracts.objects import Missing, Objects
from holdfast.log.batches import Buffer, RecordBatchLimits, parse_header, split_batches
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.metadata import SegmentRecord
from holdfast.log.segments import SegmentReader
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.settings import KIB, MIB

_log: Final = logging.getLogger(__name__)

READ_AHEAD_BYTES_MAX: Final = 32 * MIB  # of segments that are prefetched
READ_AHEAD_MAX: Final = 8
_WHOLE_BYTES: Final = 16 * KIB  # a segment of at most this size is read by one request
_FETCH_BYTES: Final = 8 * MIB
_RELISTS_MAX: Final = 5
_NO_LIMIT: Final = 1 << 62


@dataclass(slots=True, kw_only=True)
class ReadRequest:
    """What to read: a range, the id of its topic, which times, and whether to skip what is lost."""

    range: PartitionRange
    topic_id: str = ""  # "": any topic of that name
    times: TimeBounds = ANY_TIME
    skip_lost: bool = False
    counters: ReadCounters = field(default_factory=ReadCounters)


class Chunk(NamedTuple):
    """Whole batches; their records before `start` are not part of the range: retention may remove them at any time."""

    batches: Sequence[Buffer]
    start: int


class ReadableCluster(Protocol):
    """A cluster that ranges are read from: `ClusterAccess`, or what was granted of one."""

    @property
    def objects(self) -> Objects: ...
    @property
    def brokers(self) -> BrokerClient | None: ...
    async def topic(self, name: str) -> TopicInfo: ...
    async def published(self, topic: TopicInfo, partition: int) -> PublishedPart | None: ...


class RangeReader:
    """Reads one range."""

    def __init__(self, cluster: ReadableCluster, request: ReadRequest) -> None:
        self._cluster, self._request = cluster, request
        self._at = request.range.start  # everything below was returned
        self._start = request.range.start

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Whole batches, some at a time; together they hold every record of the range that is kept."""
        try:
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (UnknownTopicError, TopicChangedError) as error:
            if not self._request.skip_lost:
                raise
            _log.warning("skipped: %s", error)

    async def _chunks(self) -> AsyncGenerator[Chunk, None]:
        request, wanted = self._request, self._request.range
        topic = await self._cluster.topic(wanted.topic)
        if request.topic_id and topic.id != request.topic_id:
            raise TopicChangedError(wanted.topic, request.topic_id, topic.id)
        if wanted.partition >= topic.partitions:
            raise InvalidError(f"partition of {topic.name}", wanted.partition, f"0 to {topic.partitions - 1}")
        log = await self._cluster.published(topic, wanted.partition)
        if log is not None:
            async with aclosing(self._published(log)) as published:
                async for chunk in published:
                    yield chunk
        if self._at < wanted.end:
            if self._cluster.brokers is None:
                end = log.high_watermark if log is not None else self._at
                self._lose(end, wanted.end, "they are not published, and without bootstrap no broker can be reached")
                return
            async with aclosing(self._tail(self._cluster.brokers, topic)) as tail:
                async for chunk in tail:
                    yield chunk

    async def _published(self, log: PublishedPart) -> AsyncGenerator[Chunk, None]:
        """From object storage, until that has no more of the range."""
        wanted, relists = self._request.range, 0
        objects = CountedObjects(self._cluster.objects, self._request.counters)
        while self._at < min(wanted.end, log.high_watermark):
            self._check_start(log.start_offset)
            end, before = min(wanted.end, log.high_watermark), self._at
            segments = await find_segments(log, objects, self._at, end)
            missing = False
            async with aclosing(self._read_segments(segments, objects, end)) as found:
                async for batches in found:
                    if batches is None:
                        missing = True
                    else:
                        yield Chunk(batches, self._start)
            if not missing:
                self._at = max(self._at, end)
            relists = relists + 1 if self._at == before else 0
            if relists == _RELISTS_MAX:
                raise CorruptError(
                    f"partition {log.partition_id}",
                    f"the segment of offset {self._at} is listed, but its object is missing",
                )
            if self._at < wanted.end:
                await log.refresh()

    async def _read_segments(
        self, segments: Sequence[SegmentRecord], objects: Objects, end: int
    ) -> AsyncGenerator[Sequence[Buffer] | None, None]:
        """Batches of one segment after the other, the next ones being prefetched; None where one is missing."""
        waiting = deque(each for each in segments if self._request.times.may_contain(each))
        reading: deque[tuple[SegmentRecord, asyncio.Task[list[memoryview] | Missing]]] = deque()
        try:
            while waiting or reading:
                while waiting and _has_room(reading, waiting[0]):
                    segment = waiting.popleft()
                    read = self._read(segment, objects, max(self._at, segment.base_offset), end)
                    reading.append((segment, asyncio.ensure_future(read)))
                segment, task = reading.popleft()
                batches = await task
                if isinstance(batches, Missing):
                    _log.info("segment %s is missing: listing the segments of its partition again", segment.object)
                    yield None
                    return
                self._at = min(end, segment.end_offset)
                if batches:
                    yield batches
        finally:
            for _, task in reading:
                task.cancel()
            if reading:
                await asyncio.wait([task for _, task in reading])

    async def _read(self, segment: SegmentRecord, objects: Objects, at: int, end: int) -> list[memoryview] | Missing:
        """Batches of one segment from `at` to `end`; blocks that are older than the times wanted are not fetched."""
        reader = SegmentReader(objects, segment.object, segment.start, segment.end)
        floor_ms = self._request.times.floor_ms
        if segment.size_bytes <= _WHOLE_BYTES:
            return await reader.read(at, _NO_LIMIT)
        index = await reader.index()
        if isinstance(index, Missing):
            return index
        if floor_ms is not None:
            block = index.locate_time(floor_ms, from_offset=at)
            if block is None:
                return []
            at = max(at, block.first_offset)
        wanted = [each.raw_bytes for each in index.blocks if each.end_offset > at and each.first_offset < end]
        return await reader.read(at, sum(wanted)) if wanted else []

    async def _tail(self, brokers: BrokerClient, topic: TopicInfo) -> AsyncGenerator[Chunk, None]:
        """From the leader: what is not published yet."""
        wanted = self._request.range
        while self._at < wanted.end:
            try:
                fetched = await brokers.fetch(topic, wanted.partition, self._at, bytes_max=_FETCH_BYTES)
            except OffsetOutOfRangeError as error:
                if error.start > self._at:
                    self._check_start(error.start)
                    continue
                self._lose(error.end, wanted.end, "the log ends before them")
                return
            self._request.counters.bytes_agents += len(fetched.records)
            batches = split_batches(_complete_batches(fetched.records), limits=RecordBatchLimits(), stored=True)
            if not batches:
                self._lose(fetched.high_watermark, wanted.end, "the log ends before them")
                return
            self._at = batches[-1].header.last_offset + 1
            yield Chunk([each.data for each in batches], self._start)

    def _check_start(self, start: int) -> None:
        """Continue at `start` if the log begins there; what lies before it is lost."""
        if start > self._at:
            self._lose(self._at, min(start, self._request.range.end), f"the log begins at {start}")
            self._at = self._start = min(start, self._request.range.end)

    def _lose(self, start: int, end: int, reason: str) -> None:
        wanted = self._request.range
        lost = DataLossError(wanted.topic, wanted.partition, (wanted.start, wanted.end), (start, end), reason)
        if not self._request.skip_lost:
            raise lost
        _log.warning("skipped: %s", lost)


def _has_room(
    reading: "deque[tuple[SegmentRecord, asyncio.Task[list[memoryview] | Missing]]]", more: SegmentRecord
) -> bool:
    size = sum(segment.size_bytes for segment, _ in reading)
    return not reading or (len(reading) < READ_AHEAD_MAX and size + more.size_bytes <= READ_AHEAD_BYTES_MAX)


def _complete_batches(records: memoryview) -> memoryview:
    """Without the last batch if it is truncated: a broker may send part of one."""
    at = 0
    while at + HEADER_BYTES <= len(records):
        size = parse_header(records, at).size_bytes
        if not 0 < size <= len(records) - at:
            break
        at += size
    return records[:at]
