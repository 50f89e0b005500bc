"""Reading a segment where it lies in object storage, by ranged gets.

The one rule: a reader holds the index and nothing else; what it returns belongs to the caller. One get finds footer and
index (and all of a segment that is small, or wanted whole), then one get per read. An object that is gone is an answer, `Missing`:
retention or compaction unlinked it, and the caller plans again.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.contracts.objects import Missing, Objects
from holdfast.log.batches import Buffer, RecordBatch, decode
from holdfast.log.segments.blocks import decode_block, read_block, walk_blocks
from holdfast.log.segments.index import SegmentIndex, read_tail, segment_meta
from holdfast.log.segments.layout import STORED, SegmentFooter, read_footer
from holdfast.log.segments.model import ProducerSection, SegmentMeta
from holdfast.log.segments.producer_section import read_producers
from holdfast.log.segments.settings import SegmentSettings
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.settings import MIB

_CHECKED_HERE_MAX: Final = 2 * MIB


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _SegmentTail:
    footer: SegmentFooter
    index: SegmentIndex
    tail: Buffer  # the bytes that opened it; empty when it was open before


class SegmentReader:
    """Bytes [start, end) of the object `key`, as a segment. Many tasks may use one reader."""

    def __init__(
        self, objects: Objects, key: str, start: int, end: int, *, settings: SegmentSettings | None = None
    ) -> None:
        if not 0 <= start < end:
            raise InvalidError("byte range", (start, end), "0 <= start < end")
        self._objects, self._key, self._start, self._end = objects, key, start, end
        self._settings = settings if settings is not None else SegmentSettings()
        self._known: tuple[SegmentFooter, SegmentIndex] | None = None

    async def meta(self) -> SegmentMeta | Missing:
        """The segment's metadata."""
        opened = await self._open()
        return opened if isinstance(opened, Missing) else segment_meta(opened.footer, opened.index)

    async def index(self) -> SegmentIndex | Missing:
        """Where its blocks are."""
        opened = await self._open()
        return opened if isinstance(opened, Missing) else opened.index

    async def producers(self) -> ProducerSection | Missing:
        """What the log knew of its producers at the end of the segment, or what had changed of it."""
        opened = await self._open()
        if isinstance(opened, Missing):
            return opened
        start = opened.footer.producers_at
        section = await self._get(opened, start, start + opened.footer.producers_bytes)
        return section if isinstance(section, Missing) else read_producers(section, opened.footer)

    async def read(self, offset: int, bytes_max: int, *, on_thread: bool = False) -> list[memoryview] | Missing:
        """Whole batches, from the one that contains `offset` (or the next, in a gap) on.

        At most `bytes_max` bytes of them, but at least one; none only when no batch of the segment ends behind `offset`.
        `on_thread`: there may be very many.
        """
        size_bytes = self._end - self._start
        opened = await self._open(size_bytes if size_bytes <= bytes_max else 0)
        if isinstance(opened, Missing):
            return opened
        footer, index = opened.footer, opened.index
        if not footer.base_offset <= offset < footer.end_offset:
            raise InvalidError("offset", offset, f"{footer.base_offset} to {footer.end_offset - 1}, the segment's")
        place = index.range_for(offset, bytes_max)
        if place is None:
            return []
        blocks = await self._get(opened, *place)
        if isinstance(blocks, Missing):
            return blocks
        small = len(blocks) < self._settings.thread_bytes_min
        if not on_thread and (small or _is_stored(blocks, place[0])):
            return _batches_from(blocks, place[0], offset, bytes_max)
        return await asyncio.to_thread(_batches_from, blocks, place[0], offset, bytes_max)

    async def read_whole(self) -> list[Buffer] | Missing:
        """All batches, several to a buffer: nothing here takes a step for each."""
        opened = await self._open(self._end - self._start)
        if isinstance(opened, Missing):
            return opened
        start, end = opened.index.blocks[0].start, opened.index.blocks[-1].end
        blocks = await self._get(opened, start, end)
        return blocks if isinstance(blocks, Missing) else await asyncio.to_thread(_read_blocks, blocks, start)

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, from_offset: int = 0
    ) -> OffsetAndTimestamp | Missing | None:
        """The first record at or behind `from_offset` whose timestamp is `timestamp_ms` or later."""
        opened = await self._open()
        if isinstance(opened, Missing):
            return opened
        while (place := opened.index.locate_time(timestamp_ms, from_offset=from_offset)) is not None:
            block = await self._get(opened, place.start, place.end)
            if isinstance(block, Missing):
                return block
            if place.end - place.start < self._settings.thread_bytes_min:
                found = _first_reaching(block, place.start, timestamp_ms, from_offset)
            else:
                found = await asyncio.to_thread(_first_reaching, block, place.start, timestamp_ms, from_offset)
            if found is not None:
                return found
            from_offset = place.end_offset  # the record that reached the time lies before `from_offset`
        return None

    async def _open(self, wanted_bytes: int = 0) -> _SegmentTail | Missing:
        """Footer and index; `wanted_bytes` from the end on are asked for with them, if they are not known yet."""
        # Two tasks that come first both read the tail: cheaper than to let one wait for the other's remote call.
        if self._known is not None:
            return _SegmentTail(*self._known, b"")
        tail = await self._get_tail(max(self._settings.tail_bytes, wanted_bytes))
        if isinstance(tail, Missing):
            return tail
        footer = read_footer(tail)
        if footer.segment_bytes != self._end - self._start:
            raise CorruptError(
                self._key, f"{self._end - self._start} bytes at {self._start}, the footer has {footer.segment_bytes}"
            )
        if footer.tail_bytes > len(tail):
            tail = await self._get_tail(footer.tail_bytes)
            if isinstance(tail, Missing):
                return tail
        self._known = footer, index = read_tail(tail)
        return _SegmentTail(footer, index, tail)

    async def _get_tail(self, size_bytes: int) -> Buffer | Missing:
        return await self._fetch(max(0, self._end - self._start - size_bytes), self._end - self._start)

    async def _get(self, opened: _SegmentTail, start: int, end: int) -> Buffer | Missing:
        """Bytes [start, end) of the segment, from the tail that was just read when they are in it."""
        tail_at = self._end - self._start - len(opened.tail)
        if start >= tail_at and opened.tail:
            return memoryview(opened.tail)[start - tail_at : end - tail_at]
        return await self._fetch(start, end)

    async def _fetch(self, start: int, end: int) -> Buffer | Missing:
        found = await self._objects.get(self._key, start=self._start + start, end=self._start + end)
        if not isinstance(found, Missing) and len(found) != end - start:
            raise CorruptError(
                self._key, f"{len(found)} of the bytes {self._start + start} to {self._start + end}: it is cut"
            )
        return found


def _is_stored(blocks: Buffer, at: int) -> bool:
    """Whether nothing has to be unpacked: checking alone takes less time than another thread takes to begin."""
    return len(blocks) <= _CHECKED_HERE_MAX and all(
        block.header.codec == STORED for block in walk_blocks(blocks, at=at)
    )


def _read_blocks(blocks: Buffer, at: int) -> list[Buffer]:
    return [read_block(block) for block in walk_blocks(blocks, at=at)]


def _batches_from(blocks: Buffer, at: int, offset: int, bytes_max: int) -> list[memoryview]:
    taken: list[memoryview] = []
    room = bytes_max
    for block in walk_blocks(blocks, at=at):
        for header, batch in zip(*decode_block(block), strict=True):
            if header.last_offset < offset:
                continue
            if taken and len(batch) > room:
                return taken
            taken.append(batch)
            room -= len(batch)
    return taken


def _first_reaching(blocks: Buffer, at: int, timestamp_ms: int, from_offset: int) -> OffsetAndTimestamp | None:
    for block in walk_blocks(blocks, at=at):
        for header, batch in zip(*decode_block(block), strict=True):
            if header.max_timestamp < timestamp_ms or header.last_offset < from_offset:
                continue
            for record in decode(RecordBatch(header, batch)):
                if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
                    return OffsetAndTimestamp(record.offset, record.timestamp_ms)
    return None
