"""The batches of a range, in order: what is published from object storage, the rest from agents.

The one rule: every offset of the range is looked for where it is now. Publishing goes on while a range is read: at the border the
store is asked again, and only what is still not published comes from an agent. A segment that is gone was replaced or removed; then
the plan is made again from the first offset that was not returned.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.client.brokers import BrokerClient, OutOfRangeError, TopicInfo
from holdfast.client.splits import ANY_TIME, TimeBounds, find_segments
from holdfast.client.types import DataLossError, OffsetRange, ReadCounters, TopicChangedError
from holdfast.contracts.objects import Missing, Objects
from holdfast.log.batches import Buffer, RecordBatchLimits, split_batches
from holdfast.log.metadata import SegmentRecord
from holdfast.log.published_log import PublishedLog
from holdfast.log.segments import SegmentReader
from holdfast.log.topics import UnknownTopicError
from holdfast.objects.counters import FREE, CountingObjects, ObjectCounters, RequestTotals
from holdfast.spark.clusters import ClusterAccess
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.settings import KIB, MIB

_log: Final = logging.getLogger(__name__)

READ_AHEAD_BYTES_MAX: Final = 32 * MIB  # of segments that are being read before anybody asks for them
AHEAD_MAX: Final = 8
_WHOLE_BYTES: Final = 16 * KIB  # a segment of so few bytes comes with the first read of it
_FETCH_BYTES: Final = 8 * MIB
_REPLANS_MAX: Final = 5
_NO_LIMIT: Final = 1 << 62


@dataclass(slots=True, kw_only=True)
class ReadRequest:
    """What is to be read: a range, of which topic, which times, and what to do about what is gone."""

    range: OffsetRange
    topic_id: str = ""  # "": whichever topic has the name
    times: TimeBounds = ANY_TIME
    skip_lost: bool = False
    counters: ReadCounters = field(default_factory=ReadCounters)


class Chunk(NamedTuple):
    """Whole batches; of their records, those from `start` on are wanted: what was before may be removed at any time."""

    batches: Sequence[Buffer]
    start: int


class RangeReader:
    """Reads one range."""

    def __init__(self, opened: ClusterAccess, asked: ReadRequest) -> None:
        self._opened, self._request = opened, asked
        self._at = asked.range.start  # everything below was returned
        self._start = asked.range.start
        self._counted = ObjectCounters(prices=FREE)

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Whole batches, some at a time; together they hold every record of the range that is kept."""
        asked = self._request
        try:
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (UnknownTopicError, TopicChangedError) as error:
            if not asked.skip_lost:
                raise
            _log.warning("skipped: %s", error)

    async def _chunks(self) -> AsyncGenerator[Chunk, None]:
        asked = self._request
        topic = await self._opened.topic(asked.range.topic)
        if asked.topic_id and topic.id != asked.topic_id:
            raise TopicChangedError(asked.range.topic, asked.topic_id, topic.id)
        if asked.range.partition >= topic.partitions:
            raise InvalidError(f"partition of {topic.name}", asked.range.partition, f"0 to {topic.partitions - 1}")
        log = await self._opened.published(topic, asked.range.partition)
        if log is not None:
            async with aclosing(self._published(log)) as published:
                async for chunk in published:
                    yield chunk
        if self._at < asked.range.end:
            if self._opened.agents is None:
                end = log.high_watermark if log is not None else self._at
                self._lose(end, asked.range.end, "more is not published, and without bootstrap agents cannot be asked")
                return
            async with aclosing(self._tail(self._opened.agents, topic)) as tail:
                async for chunk in tail:
                    yield chunk

    async def _published(self, log: PublishedLog) -> AsyncGenerator[Chunk, None]:
        """From object storage, until that has no more of the range."""
        asked, plans = self._request, 0
        direct = self._opened.direct
        assert direct is not None
        objects = CountingObjects(direct.objects, counters=self._counted, clock=self._opened.clock)
        while self._at < min(asked.range.end, log.high_watermark):
            self._check_start(log.start_offset)
            end, before = min(asked.range.end, log.high_watermark), self._at
            segments = await find_segments(log, objects, self._at, end)
            gone = False
            async with aclosing(self._read_segments(segments, objects, end)) as found:
                async for batches in found:
                    if batches is None:
                        gone = True
                    else:
                        yield Chunk(batches, self._start)
            if not gone:
                self._at = max(self._at, end)
            plans = plans + 1 if self._at == before else 0
            if plans == _REPLANS_MAX:
                raise CorruptError(
                    f"partition {log.partition_id}", f"the segment of offset {self._at} is listed and is not there"
                )
            if self._at < asked.range.end:
                await log.refresh()

    async def _read_segments(
        self, segments: Sequence[SegmentRecord], objects: Objects, end: int
    ) -> AsyncGenerator[Sequence[Buffer] | None, None]:
        """Batches of one segment after the other, the next ones being read meanwhile; None where one is gone."""
        todo = deque(each for each in segments if self._request.times.may_contain(each))
        under_way: deque[tuple[SegmentRecord, asyncio.Task[list[memoryview] | Missing]]] = deque()
        try:
            while todo or under_way:
                while todo and _has_room(under_way, todo[0]):
                    segment = todo.popleft()
                    reading = self._read(segment, objects, max(self._at, segment.base_offset), end)
                    under_way.append((segment, asyncio.ensure_future(reading)))
                segment, task = under_way.popleft()
                batches = await task
                self._note_objects()
                if isinstance(batches, Missing):
                    _log.info("segment %s is gone: its partition is looked at again", segment.object)
                    yield None
                    return
                self._at = min(end, segment.end_offset)
                if batches:
                    yield batches
        finally:
            for _, task in under_way:
                task.cancel()
            if under_way:
                await asyncio.wait([task for _, task in under_way])

    async def _read(self, segment: SegmentRecord, objects: Objects, at: int, end: int) -> list[memoryview] | Missing:
        """Batches of one segment from `at` to `end`; blocks that are too old for the times wanted are not fetched."""
        reader = SegmentReader(objects, segment.object, segment.start, segment.end)
        floor_ms = self._request.times.floor_ms
        if segment.size_bytes <= _WHOLE_BYTES:
            return await reader.read(at, _NO_LIMIT)
        index = await reader.index()
        if isinstance(index, Missing):
            return index
        if floor_ms is not None:
            partition_id = index.locate_time(floor_ms, from_offset=at)
            if partition_id is None:
                return []
            at = max(at, partition_id.first_offset)
        wanted = [each.raw_bytes for each in index.blocks if each.end_offset > at and each.first_offset < end]
        return await reader.read(at, sum(wanted)) if wanted else []

    async def _tail(self, agents: BrokerClient, topic: TopicInfo) -> AsyncGenerator[Chunk, None]:
        """From the leader: what object storage does not have yet."""
        wanted = self._request.range
        while self._at < wanted.end:
            try:
                fetched = await agents.fetch(topic, wanted.partition, self._at, bytes_max=_FETCH_BYTES)
            except OutOfRangeError as error:
                if error.start > self._at:
                    self._check_start(error.start)
                    continue
                self._lose(error.end, wanted.end, "the log ends before")
                return
            self._request.counters.bytes_agents += len(fetched.records)
            batches = split_batches(_complete_batches(fetched.records), limits=RecordBatchLimits(), stored=True)
            if not batches:
                self._lose(fetched.high_watermark, wanted.end, "the log ends before")
                return
            self._at = batches[-1].header.last_offset + 1
            yield Chunk([each.data for each in batches], self._start)

    def _check_start(self, start: int) -> None:
        """Go on at `start` if what lies before it is gone, or say that it is."""
        if start > self._at:
            self._lose(self._at, min(start, self._request.range.end), f"the log begins at {start}")
            self._at = self._start = min(start, self._request.range.end)

    def _lose(self, start: int, end: int, reason: str) -> None:
        wanted = self._request.range
        lost = DataLossError(wanted.topic, wanted.partition, (wanted.start, wanted.end), (start, end), reason)
        if not self._request.skip_lost:
            raise lost
        _log.warning("skipped: %s", lost)

    def _note_objects(self) -> None:
        tallies: list[RequestTotals] = [tally for _, _, tally in self._counted.each()]
        self._request.counters.bytes_objects += sum(tally.bytes_read for tally in tallies)
        for tally in tallies:
            tally.bytes_read = 0


def _has_room(
    under_way: "deque[tuple[SegmentRecord, asyncio.Task[list[memoryview] | Missing]]]", more: SegmentRecord
) -> bool:
    size = sum(segment.size_bytes for segment, _ in under_way)
    return not under_way or (len(under_way) < AHEAD_MAX and size + more.size_bytes <= READ_AHEAD_BYTES_MAX)


def _complete_batches(records: memoryview) -> memoryview:
    """Without the last batch if it is cut: brokers may answer with part of one."""
    at = 0
    while at + 12 <= len(records):
        size = 12 + int.from_bytes(records[at + 8 : at + 12])
        if at + size > len(records):
            break
        at += size
    return records[:at]
