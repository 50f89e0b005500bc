"""The index: where the block is that holds an offset or a time. One entry per block, deltas as varints.

The one rule: an entry holds where its block's offsets *end*, so that the first block that ends behind an offset is the
right one, gap or not; and the greatest timestamp in it, so that the first block that reaches a time holds the first
record that does, however disordered the timestamps are.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.log.batches import Buffer
from holdfast.log.segments.layout import BLOCK_BYTES, SegmentFooter, check_crc, read_footer, text
from holdfast.log.segments.model import EpochStart, SegmentMeta
from holdfast.log.segments.section_reader import SectionReader
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.native import native
from holdfast.vocabulary.varint import put_uvarint, put_varint

_WHAT: Final = "segment index"
_INT64_MAX: Final = 2**63 - 1


class BlockLocation(NamedTuple):
    """One block: bytes [start, end) of the segment, offsets [first_offset, end_offset)."""

    start: int
    end: int
    first_offset: int
    end_offset: int
    raw_bytes: int
    max_timestamp_ms: int


class SegmentIndex:
    """Blocks in order, with look-ups; and, beside the footer's numbers, whose they are and under which epochs."""

    def __init__(self, topic_id: str, epochs: Sequence[EpochStart], blocks: Sequence[BlockLocation]) -> None:
        self.topic_id, self.epochs, self.blocks = topic_id, tuple(epochs), tuple(blocks)
        self._ends = [block.end_offset for block in blocks]

    def locate(self, offset: int) -> BlockLocation | None:
        """The block with the first batch that ends behind `offset`; none when no batch does."""
        at = bisect_right(self._ends, offset)
        return self.blocks[at] if at < len(self.blocks) else None

    def locate_time(self, timestamp_ms: int, *, from_offset: int = 0) -> BlockLocation | None:
        """The first block with a batch that reaches `timestamp_ms`, beginning with the block of `from_offset`."""
        at = bisect_right(self._ends, from_offset)
        return next((block for block in self.blocks[at:] if block.max_timestamp_ms >= timestamp_ms), None)

    def range_for(self, offset: int, bytes_max: int) -> tuple[int, int] | None:
        """The bytes of the segment to get for `bytes_max` bytes of batches from `offset` on: whole blocks, at least one."""
        first = bisect_right(self._ends, offset)
        if first == len(self.blocks):
            return None
        # Up to the limit and not beyond it: the next read then begins with a block, and no block is fetched twice.
        last, room = first, bytes_max - self.blocks[first].raw_bytes
        while last + 1 < len(self.blocks) and self.blocks[last + 1].raw_bytes <= room:
            last += 1
            room -= self.blocks[last].raw_bytes
        return self.blocks[first].start, self.blocks[last].end

    def pack(self, base_offset: int) -> bytes:
        """The section as it is stored."""
        out = bytearray()
        name = self.topic_id.encode()
        put_uvarint(out, len(name))
        out += name
        put_uvarint(out, len(self.epochs))
        before = EpochStart(0, 0)
        for epoch in self.epochs:
            put_uvarint(out, epoch.epoch - before.epoch)
            put_uvarint(out, epoch.start_offset - before.start_offset)
            before = epoch
        put_uvarint(out, self.blocks[0].start)
        put_uvarint(out, len(self.blocks))
        packed = None if native is None else native.pack_blocks(self.blocks, base_offset)
        out += pack_blocks(self.blocks, base_offset) if packed is None else packed
        return bytes(out)


def pack_blocks(blocks: Sequence[BlockLocation], base_offset: int) -> bytes:
    """The entries of the blocks of a segment that begins at `base_offset`."""
    out = bytearray()
    end_offset, timestamp_ms = base_offset, 0
    for block in blocks:
        put_uvarint(out, block.first_offset - end_offset)
        put_uvarint(out, block.end_offset - block.first_offset)
        put_uvarint(out, block.end - block.start)
        put_uvarint(out, block.raw_bytes)
        put_varint(out, block.max_timestamp_ms - timestamp_ms)
        end_offset, timestamp_ms = block.end_offset, block.max_timestamp_ms
    return bytes(out)


def read_tail(tail: Buffer) -> tuple[SegmentFooter, SegmentIndex]:
    """Footer and index of the segment whose last bytes are `tail`; `read_footer` has how many bytes that takes."""
    footer = read_footer(tail)
    if len(tail) < footer.tail_bytes:
        raise InvalidError("bytes of the tail", len(tail), f"at least {footer.tail_bytes}, index and footer")
    return footer, _read_index(memoryview(tail), footer)


def segment_meta(footer: SegmentFooter, index: SegmentIndex) -> SegmentMeta:
    """What footer and index say of a segment, as a noun."""
    return SegmentMeta(
        topic_id=index.topic_id,
        partition=footer.partition,
        base_offset=footer.base_offset,
        end_offset=footer.end_offset,
        record_count=footer.record_count,
        batch_count=footer.batch_count,
        min_timestamp_ms=footer.min_timestamp_ms,
        max_timestamp_ms=footer.max_timestamp_ms,
        epochs=index.epochs,
        bytes=footer.segment_bytes,
    )


def _read_index(view: memoryview, footer: SegmentFooter) -> SegmentIndex:
    at = len(view) - footer.tail_bytes
    section = view[at : at + footer.index_bytes]
    check_crc(_WHAT, section, footer.index_crc)
    reader = SectionReader(section, _WHAT)
    topic_id = text(_WHAT, bytes(reader.take(reader.uvarint())))
    epochs = _read_epochs(reader)
    blocks = _read_blocks(reader, footer)
    return SegmentIndex(topic_id, epochs, blocks)


def _read_epochs(reader: SectionReader) -> list[EpochStart]:
    epochs: list[EpochStart] = []
    epoch = start_offset = 0
    for _ in range(_count(reader, entry_bytes_min=2)):
        epoch += reader.uvarint()
        start_offset += reader.uvarint()
        epochs.append(EpochStart(epoch, start_offset))
    return epochs


def _read_blocks(reader: SectionReader, footer: SegmentFooter) -> list[BlockLocation]:
    start, count = reader.uvarint(), _count(reader, entry_bytes_min=5)
    blocks = _blocks_at_once(reader, count, start, footer.base_offset)
    if blocks is None:
        blocks = read_blocks(reader, count, start, footer.base_offset)
    end, end_offset = (blocks[-1].end, blocks[-1].end_offset) if blocks else (start, footer.base_offset)
    if len(blocks) != footer.block_count or end != footer.producers_at or end_offset > footer.end_offset:
        raise CorruptError(_WHAT, "its blocks are not those of the footer")
    return blocks


def _blocks_at_once(reader: SectionReader, count: int, start: int, base_offset: int) -> list[BlockLocation] | None:
    """The next blocks, read by the C extension; None: without it, or if something is wrong with them."""
    if native is None or start > _INT64_MAX:
        return None
    found = native.read_blocks(reader.data, reader.at, count, start, base_offset, BLOCK_BYTES, BlockLocation)
    if found is None:
        return None
    blocks, reader.at = found
    return blocks


def read_blocks(reader: SectionReader, count: int, start: int, base_offset: int) -> list[BlockLocation]:
    """The next `count` blocks, the first of which is at `start` in its segment."""
    blocks: list[BlockLocation] = []
    end_offset, timestamp_ms = base_offset, 0
    for _ in range(count):
        first_offset = end_offset + reader.uvarint()
        end_offset = first_offset + reader.uvarint()
        end = start + reader.uvarint()
        raw_bytes = reader.uvarint()
        timestamp_ms += reader.varint()
        if end - start <= BLOCK_BYTES or end_offset <= first_offset:
            raise CorruptError(_WHAT, f"block {len(blocks)} is empty")
        blocks.append(BlockLocation(start, end, first_offset, end_offset, raw_bytes, timestamp_ms))
        start = end
    return blocks


def _count(reader: SectionReader, *, entry_bytes_min: int) -> int:
    """How many entries follow; never more than there can be."""
    count = reader.uvarint()
    if count * entry_bytes_min > reader.left:
        raise CorruptError(_WHAT, f"{count} entries announced, {reader.left} bytes are left")
    return count
