"""Building a segment from batches, as fast as LZ4 and memory allow.

The one rule: batches are stored as they are. Their headers are read, their records never. Call it on a thread: packing
and checksums release the GIL, and joining small batches does once for megabytes of them, so that the event loop is not
made to wait for it again and again. The result may share the memory of large batches: leave them unchanged for as long
as it is used.

Packing what cannot be packed is the largest waste there is, so blocks after one that LZ4 did not shrink are stored without
trying: one more after each failure in a row, so that a change of data is noticed within a few blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from crc32c import crc32c

from holdfast.log.batches import Buffer
from holdfast.log.batches.kernels import BEST, BatchKernel, BatchSummary
from holdfast.log.batches.rules import fault_error
from holdfast.log.checksums import joined
from holdfast.log.segments.blocks import encode_block
from holdfast.log.segments.index import BlockLocation, SegmentIndex, segment_meta
from holdfast.log.segments.keys import check_id, check_offset_range
from holdfast.log.segments.layout import (
    FOOTER_BYTES,
    MAJOR,
    MINOR,
    MINOR_WITH_DELTA,
    SegmentFooter,
    pack_footer,
    pack_header,
)
from holdfast.log.segments.model import BuiltSegment, EpochStart, ProducerSection
from holdfast.log.segments.producer_section import pack_producers
from holdfast.log.segments.settings import BLOCK_BYTES, COMPRESSIONS
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB, check_between, check_one_of

_BLOCK_BYTES_MAX: Final = 64 * MIB
_UNTRIED_MAX: Final = 15
# With one call. A block that is stored as it is keeps all that was joined with it in memory.
_JOINED_BYTES: Final = MIB


@dataclass(slots=True)
class _Body:
    """Header and blocks as they come, and what is known of the batches in them."""

    parts: list[Buffer]
    at: int
    crc: int
    places: list[BlockLocation] = field(default_factory=list)
    end_offset: int = 0
    record_count: int = 0
    batch_count: int = 0
    min_timestamp_ms: int = -1
    unpackable: int = 0  # blocks in a row that LZ4 did not shrink
    untried: int = 0  # blocks to come that are stored without trying

    def add(self, raw: Buffer, summary: BatchSummary, *, pack: bool) -> None:
        """One more block, of the batches in `raw`."""
        if not summary.batch_count:
            raise InvalidError("bytes of a batch", 0, "at least one whole batch")
        self._count(summary)
        pack = pack and 2 * summary.packed_bytes < len(raw) and self._is_tried()
        first_offset = summary.first_offset
        header, payload, payload_crc = encode_block(
            raw, at=self.at, batch_count=summary.batch_count, first_offset=first_offset, pack=pack
        )
        self.crc = joined(crc32c(header, self.crc), payload_crc, len(payload))
        if pack:
            self.unpackable = self.unpackable + 1 if payload is raw else 0
            self.untried = min(self.unpackable, _UNTRIED_MAX)
        start, self.at = self.at, self.at + len(header) + len(payload)
        self.parts += (header, payload)
        place = (start, self.at, first_offset, self.end_offset, len(raw), summary.max_timestamp_ms)
        self.places.append(BlockLocation(*place))

    def _is_tried(self) -> bool:
        """Whether LZ4 gets a chance with the next block."""
        if self.untried:
            self.untried -= 1
            return False
        return True

    def _count(self, summary: BatchSummary) -> None:
        self.end_offset = summary.end_offset
        self.record_count += summary.record_count
        self.batch_count += summary.batch_count
        first_ms = summary.min_timestamp_ms
        if first_ms >= 0 and (first_ms < self.min_timestamp_ms or self.min_timestamp_ms < 0):
            self.min_timestamp_ms = first_ms


def build_segment(
    batches: Sequence[Buffer],
    *,
    topic_id: str,
    partition: int,
    epochs: Sequence[tuple[int, int]] = (),
    producers: ProducerSection = ProducerSection(),  # noqa: B008 - a frozen value
    compression: str = "lz4",
    block_bytes: int = BLOCK_BYTES,
    base_offset: int | None = None,
    end_offset: int | None = None,
    kernel: BatchKernel = BEST,
) -> BuiltSegment:
    """The segment with these batches, which have their final offsets, in order. A buffer may hold several of them.

    `epochs` are (epoch, start offset), oldest first. `base_offset` and `end_offset` are for compaction: a segment from
    which batches were removed still covers the offsets it covered. With "lz4", blocks are packed unless most of their
    bytes were packed by the producers.
    """
    check_id("topic id", topic_id)
    check_one_of("compression", compression, COMPRESSIONS)
    check_between("block_bytes", block_bytes, 1, _BLOCK_BYTES_MAX)
    if not batches:
        raise InvalidError("number of batches", 0, "at least 1")
    base = base_offset if base_offset is not None else int.from_bytes(batches[0][:8], "big")
    check_offset_range(partition, base, base + 1)
    header = pack_header(topic_id=topic_id, partition=partition, base_offset=base)
    body = _Body([header], len(header), crc32c(header), end_offset=base)
    _add_blocks(body, list(batches), block_bytes, compression == "lz4", kernel)
    end = end_offset if end_offset is not None else body.end_offset
    if end < body.end_offset:
        raise InvalidError("end offset", end, f"at least {body.end_offset}, that of the batches")
    check_offset_range(partition, base, end)
    return _finish(body, SegmentIndex(topic_id, _checked(epochs, end), body.places), partition, (base, end), producers)


def _add_blocks(body: _Body, batches: list[Buffer], block_bytes: int, pack: bool, kernel: BatchKernel) -> None:
    """Batches joined: as many buffers as fit `block_bytes`; one that does not fit has a block of its own, where it lies."""
    at = 0
    while at < len(batches):
        found = kernel.join_blocks(batches, at, block_bytes, _JOINED_BYTES, body.end_offset, BatchSummary)
        if len(found) != 2:
            raise fault_error(found, stored=False)
        blocks, at = found
        for raw, summary in blocks:
            body.add(raw, summary, pack=pack)


def _finish(
    body: _Body, index: SegmentIndex, partition: int, offsets: tuple[int, int], producers: ProducerSection
) -> BuiltSegment:
    """Append the sections and the footer."""
    base_offset, end_offset = offsets
    producer_section, index_section = pack_producers(producers), index.pack(base_offset)
    body.parts += (producer_section, index_section)
    footer = SegmentFooter(
        base_offset=base_offset,
        end_offset=end_offset,
        min_timestamp_ms=body.min_timestamp_ms,
        max_timestamp_ms=max(place.max_timestamp_ms for place in body.places),
        record_count=body.record_count,
        batch_count=body.batch_count,
        block_count=len(body.places),
        raw_bytes=sum(place.raw_bytes for place in body.places),
        segment_bytes=body.at + len(producer_section) + len(index_section) + FOOTER_BYTES,
        producers_at=body.at,
        producers_bytes=len(producer_section),
        producers_crc=crc32c(producer_section),
        index_at=body.at + len(producer_section),
        index_bytes=len(index_section),
        index_crc=crc32c(index_section),
        partition=partition,
        body_crc=crc32c(index_section, crc32c(producer_section, body.crc)),
        major=MAJOR,
        minor=MINOR if producers.is_snapshot else MINOR_WITH_DELTA,
        footer_bytes=FOOTER_BYTES,
    )
    body.parts.append(pack_footer(footer))
    return BuiltSegment(parts=body.parts, meta=segment_meta(footer, index), producers_since=producers.since)


def _checked(epochs: Sequence[tuple[int, int]], end_offset: int) -> tuple[EpochStart, ...]:
    known = tuple(EpochStart(*epoch) for epoch in epochs)
    ascending = all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in pairwise(known))
    inside = all(epoch.epoch >= 0 and 0 <= epoch.start_offset <= end_offset for epoch in known)
    if not ascending or not inside:
        raise InvalidError("epochs", list(known), f"growing, from 0 on, with starts that grow up to {end_offset}")
    return known
