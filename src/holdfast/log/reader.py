"""Reading a partition: from the tail in RAM, or from segments in object storage; by offset and by time.

It reads a `ReadablePartition`: one that is led here, or the published part as any process sees it (`published_log`). The rules:
nothing at or above the high watermark is returned; batches are returned whole, so the first may begin before the offset asked for;
a segment that is gone was unlinked meanwhile (retention, compaction), so the read is planned again; where only a gap is left,
batches without records lead over it (`gaps`).
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.contracts.objects import Missing, Objects
from holdfast.kafka.special_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from holdfast.log import leader_epochs
from holdfast.log.batches import Buffer, decode, parse_header
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.gaps import gap_batches_by_epoch
from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import PartitionId
from holdfast.log.partition.tail import Tail
from holdfast.log.read_ahead import ReadAhead, ReadPosition
from holdfast.log.segment_list import SegmentList, StaleListingError
from holdfast.log.segments import EpochStart, OffsetAndTimestamp, SegmentReader
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.tasks import ConcurrencyLimit

_PLANS_MAX: Final = 5  # so often may retention be faster than a reader before it is no coincidence


class ReadableTail(Protocol):
    """What is in memory of a partition, from `start` on; below `end` it has offsets."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

    def read(self, offset: int, *, below: int, bytes_max: int) -> list[Buffer]:
        """Whole batches from the one that holds `offset`, ending below `below`; at least one if there is one."""
        ...


class FetchablePartition(Protocol):
    """A partition as a fetch sees it."""

    @property
    def partition_id(self) -> PartitionId: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def epochs(self) -> Sequence[EpochStart]: ...
    @property
    def segments(self) -> SegmentList: ...
    @property
    def tail(self) -> ReadableTail: ...

    def check_readable(self) -> None:
        """Raise if what is shown may be out of date in a way that matters."""
        ...

    async def wait_beyond(self, offset: int, wait_ms: float) -> bool:
        """Wait until the high watermark is above `offset`, at most `wait_ms`."""
        ...

    async def refresh(self) -> None:
        """Reload the list of segments."""
        ...


class ReadablePartition(FetchablePartition, Protocol):
    """A partition whose whole tail is known, with its times."""

    @property
    def tail(self) -> Tail: ...


class FetchedBatches(NamedTuple):
    """Whole batches in offset order, and where the log began and ended when they were read."""

    batches: list[Buffer]
    start_offset: int
    high_watermark: int
    size_bytes: int


class _SegmentRead(NamedTuple):
    """What one read of a segment brought: whole batches, and the offset after the last."""

    segment: SegmentRecord
    batches: list[memoryview]
    end: int

    def cut(self, bytes_max: int) -> "tuple[_SegmentRead, _SegmentRead | None]":
        """The first batches, at least one and at most `bytes_max`, and the others."""
        room = bytes_max - len(self.batches[0])
        for at, batch in enumerate(self.batches[1:], 1):
            room -= len(batch)
            if room < 0:
                first = self._replace(batches=self.batches[:at], end=_end(self.batches[at - 1]))
                return first, self._replace(batches=self.batches[at:])
        return self, None


class LogReader:
    """Reads partitions of one process: keeps the indexes of segments that were read lately, bounds concurrent reads."""

    def __init__(self, objects: Objects, *, clock: Clock, settings: LogSettings) -> None:
        self.objects = objects
        self._clock, self._settings = clock, settings
        self._limit = ConcurrencyLimit(settings.segment_reads_max, slow_ms=settings.segment_read_slow_ms)
        self._readers: OrderedDict[tuple[str, int], SegmentReader] = OrderedDict()
        self._ahead: ReadAhead[_SegmentRead | None] = ReadAhead(settings.reads_ahead_max)

    async def close(self) -> None:
        """End what is being read ahead."""
        await self._ahead.close()

    async def fetch(
        self, log: FetchablePartition, offset: int, *, bytes_max: int, wait_ms: float = 0, bytes_min: int = 1
    ) -> FetchedBatches:
        """Batches from the one that holds `offset` on: at least one if there is one, else at most `bytes_max`.

        Waits up to `wait_ms` for `bytes_min`. `OffsetOutOfRangeError`: below the start, or above everything that was appended.
        In between there is nothing to read yet: a reader comes from there that was shown a publication before this leader had the
        answer to it.
        """
        deadline_ms = self._clock.boot_ms() + wait_ms
        while True:
            log.check_readable()
            start, end = log.start_offset, log.high_watermark
            if not start <= offset <= max(end, log.tail.end):
                raise OffsetOutOfRangeError(str(log.partition_id), offset, start, end)
            batches = await self._read(log, offset, end, bytes_max)
            size_bytes = sum(map(len, batches))
            left_ms = deadline_ms - self._clock.boot_ms()
            if size_bytes >= min(bytes_min, bytes_max) or left_ms <= 0:
                return FetchedBatches(batches, start, end, size_bytes)
            await log.wait_beyond(end, left_ms)

    def fetch_now(self, log: FetchablePartition, offset: int, *, bytes_max: int) -> FetchedBatches | None:
        """`fetch` of what is in memory, without waiting; None: it has to be read from object storage."""
        log.check_readable()
        start, end = log.start_offset, log.high_watermark
        if not start <= offset <= max(end, log.tail.end):
            raise OffsetOutOfRangeError(str(log.partition_id), offset, start, end)
        found: list[Buffer] = []
        size, at = 0, offset
        if at < min(end, log.tail.start) and bytes_max > 0:
            piece = self._next_read_ahead(log, at, bytes_max)
            if piece is None:
                return None
            found.extend(piece.batches)
            size, at = sum(map(len, found)), piece.end
        if log.tail.start <= at < end and size < bytes_max:
            for batch in log.tail.read(at, below=end, bytes_max=bytes_max - size):
                if found and size + len(batch) > bytes_max:
                    break
                found.append(batch)
                size += len(batch)
        return FetchedBatches(found, start, end, size)

    def _next_read_ahead(self, log: FetchablePartition, at: int, bytes_max: int) -> _SegmentRead | None:
        """The batches from `at` on, if they were read ahead and are as many as a read would bring."""
        segment = log.segments.find_recent(at)
        if segment is None or not segment.base_offset <= at < segment.end_offset:
            return None
        spot = ReadPosition(log.partition_id.topic_id, log.partition_id.number, at)
        piece = self._ahead.peek(spot)
        if piece is None or piece.segment != segment or not piece.batches:
            return None
        first, rest = piece.cut(bytes_max)
        enough = min(bytes_max, self._settings.fetch_enough_bytes)
        if 2 * sum(map(len, first.batches)) < enough and first.end < log.tail.start:
            return None
        self._ahead.discard(spot)
        return self._served(log, spot, first, rest, goes_on=self._goes_on(spot, segment))

    async def _read(self, log: FetchablePartition, offset: int, end: int, bytes_max: int) -> list[Buffer]:
        found: list[Buffer] = []
        size, at = 0, offset
        enough = min(bytes_max, self._settings.fetch_enough_bytes)
        while at < end and size < bytes_max:
            if at >= log.tail.start:
                more: Sequence[Buffer] = log.tail.read(at, below=end, bytes_max=bytes_max - size)
                at = end
            elif 2 * size >= enough:
                break  # what is left holds less than a read brings, most of which would be thrown away
            else:
                more, at = await self._read_segment(log, at, bytes_max - size)
            for batch in more:
                if found and size + len(batch) > bytes_max:
                    return found
                found.append(batch)
                size += len(batch)
        if not found and at >= end > offset:
            return list(gap_batches_by_epoch(offset, end, log.epochs, bytes_max=bytes_max))
        return found

    async def _read_segment(self, log: FetchablePartition, at: int, bytes_max: int) -> tuple[Sequence[Buffer], int]:
        """What the segment of `at` holds from there on, and where to go on."""
        for _ in range(_PLANS_MAX):
            until = log.tail.start  # what is published while we look is not part of a gap
            try:
                segment = await log.segments.find(at, self.objects)
            except StaleListingError:
                await log.refresh()
                continue
            if segment is None or segment.base_offset >= until:
                if log.start_offset > at:  # retention was faster
                    raise OffsetOutOfRangeError(str(log.partition_id), at, log.start_offset, log.high_watermark)
                return (), until  # a gap, which a takeover left
            piece = await self._next_of(log, segment, max(at, segment.base_offset), bytes_max)
            if piece is not None:
                return piece.batches, piece.end
            self._forget(segment)
            await log.refresh()
            if log.start_offset > at:
                raise OffsetOutOfRangeError(str(log.partition_id), at, log.start_offset, log.high_watermark)
        raise CorruptError(f"partition {log.partition_id}", f"the segment of offset {at} is listed and missing")

    async def _next_of(
        self, log: FetchablePartition, segment: SegmentRecord, at: int, bytes_max: int
    ) -> _SegmentRead | None:
        """The batches of a segment from `at` on; a sequential reader finds them read ahead. None: it is gone."""
        spot = ReadPosition(log.partition_id.topic_id, log.partition_id.number, at)
        goes_on = self._goes_on(spot, segment)
        piece = await self._ahead.take(spot)
        if piece is None or piece.segment != segment:  # not read ahead, or the segment was replaced meanwhile
            piece = await self._read_from(segment, at, bytes_max)
        if piece is None or not piece.batches:
            return piece
        return self._served(log, spot, *piece.cut(bytes_max), goes_on=goes_on)

    def _goes_on(self, spot: ReadPosition, segment: SegmentRecord) -> bool:
        """Whether a reader at this spot is likely to read on."""
        return self._ahead.continues(spot) or spot.offset == segment.base_offset

    def _served(
        self,
        log: FetchablePartition,
        spot: ReadPosition,
        piece: _SegmentRead,
        rest: _SegmentRead | None,
        *,
        goes_on: bool,
    ) -> _SegmentRead:
        """The part of a read that is returned; the rest is kept, and what follows is read ahead."""
        then = spot._replace(offset=piece.end)
        self._ahead.expect(then)
        if rest is not None:
            self._ahead.put_back(then, rest)
        if goes_on:
            self._look_ahead(log, rest.end if rest is not None else piece.end, self._settings.reads_ahead_depth)
        return piece

    def _look_ahead(self, log: FetchablePartition, at: int, depth: int) -> None:
        """Have the next `depth` reads from `at` on under way."""
        if depth > 0 and at < log.tail.start:
            spot = ReadPosition(log.partition_id.topic_id, log.partition_id.number, at)
            known = self._ahead.end_of(spot)
            if known is None:
                self._ahead.begin(spot, self._guess(log, spot, depth - 1))
            else:
                self._look_ahead(log, known, depth - 1)

    async def _guess(self, log: FetchablePartition, spot: ReadPosition, depth: int) -> _SegmentRead | None:
        segment = await log.segments.find(spot.offset, self.objects)
        if segment is None or segment.base_offset >= log.tail.start:
            return None
        bytes_max = self._settings.read_ahead_bytes
        if segment.end - segment.start <= bytes_max:  # it will be read to its end: what follows need not wait for it
            self._ahead.ends(spot, segment.end_offset)
            self._look_ahead(log, segment.end_offset, depth)
        piece = await self._read_from(segment, max(spot.offset, segment.base_offset), bytes_max)
        if piece is not None:
            self._ahead.ends(spot, piece.end)
            self._look_ahead(log, piece.end, depth)
        return piece

    async def _read_from(self, segment: SegmentRecord, at: int, bytes_max: int) -> _SegmentRead | None:
        async with self._limit.slot():
            batches = await self._reader(segment).read(at, bytes_max)
        if isinstance(batches, Missing):
            return None
        return _SegmentRead(segment, batches, _end(batches[-1]) if batches else segment.end_offset)

    async def offset_for_timestamp(self, log: ReadablePartition, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record at or after a time, exactly; None if there is none.

        `EARLIEST` and `LATEST` are the start and the high watermark, with timestamp -1. `MAX_TIMESTAMP` is the first record
        that has the greatest timestamp.
        """
        log.check_readable()
        if timestamp_ms == EARLIEST:
            return OffsetAndTimestamp(log.start_offset, -1)
        if timestamp_ms == LATEST:
            return OffsetAndTimestamp(log.high_watermark, -1)
        if timestamp_ms == MAX_TIMESTAMP:
            timestamp_ms = await self._greatest_timestamp(log)
        if timestamp_ms < 0:
            return None
        for _ in range(_PLANS_MAX):
            try:
                return await self._first_at(log, timestamp_ms)
            except StaleListingError:
                await log.refresh()
        raise CorruptError(f"partition {log.partition_id}", "a segment is listed and missing")

    async def _first_at(self, log: ReadablePartition, timestamp_ms: int) -> OffsetAndTimestamp | None:
        seen = log.start_offset
        while True:
            until = log.tail.start
            async for segment in log.segments.all(self.objects):
                if segment.end_offset > seen and segment.max_timestamp_ms >= timestamp_ms:
                    async with self._limit.slot():
                        reached = await self._reader(segment).offset_for_timestamp(timestamp_ms, from_offset=seen)
                    if isinstance(reached, Missing):
                        self._forget(segment)
                        raise StaleListingError(f"object {segment.object}", "it is gone")
                    if reached is not None:
                        return reached
            if log.tail.start <= until:
                return _first_in_tail(log, timestamp_ms)
            seen = until  # what was in the tail has become a segment meanwhile

    async def _greatest_timestamp(self, log: ReadablePartition) -> int:
        start, end = log.start_offset, log.high_watermark
        # The tail first: what leaves it meanwhile appears among the segments, where it is seen twice and not missed.
        times = [entry.max_timestamp_ms for entry in log.tail.entries(log.tail.start, end) if entry.end_offset > start]
        for _ in range(_PLANS_MAX):
            try:
                listed = [each async for each in log.segments.all(self.objects)]
                times += [each.max_timestamp_ms for each in listed if each.end_offset > start and each.records]
                return max(times, default=-1)
            except StaleListingError:
                await log.refresh()
        raise CorruptError(f"partition {log.partition_id}", "its list of segments is missing")

    def _reader(self, segment: SegmentRecord) -> SegmentReader:
        partition_id = (segment.object, segment.start)
        reader = self._readers.pop(partition_id, None)
        if reader is None:
            reader = SegmentReader(self.objects, segment.object, segment.start, segment.end)
        self._readers[partition_id] = reader  # the youngest again
        while len(self._readers) > self._settings.segment_readers_max:
            self._readers.popitem(last=False)
        return reader

    def _forget(self, segment: SegmentRecord) -> None:
        self._readers.pop((segment.object, segment.start), None)


def end_of_epoch(log: ReadablePartition, epoch: int) -> tuple[int, int]:
    """Kafka's OffsetForLeaderEpoch: the largest known epoch ≤ `epoch`, and where it ended; (-1, -1) if none is known."""
    log.check_readable()
    return leader_epochs.end_of_epoch(log.epochs, epoch, log.high_watermark)


def _first_in_tail(log: ReadablePartition, timestamp_ms: int) -> OffsetAndTimestamp | None:
    for entry in log.tail.entries(log.tail.start, log.high_watermark):
        if entry.max_timestamp_ms < timestamp_ms or entry.end_offset <= log.start_offset:
            continue
        for batch in entry.batches():
            if batch.header.max_timestamp < timestamp_ms:
                continue
            for record in decode(batch.data):
                if record.timestamp_ms >= timestamp_ms and record.offset >= log.start_offset:
                    return OffsetAndTimestamp(record.offset, record.timestamp_ms)
    return None


def _end(batch: Buffer) -> int:
    return parse_header(batch).last_offset + 1
