"""Looking at a segment or a shared object with every checksum computed: for people and for tests.

The one rule: damage is a finding, not an exception; everything else that can be read is still shown. Only bytes that are
no segment at all, or of a version this release cannot read, are an `InvalidError`. Reads all of it: not for the hot path.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from crc32c import crc32c

from holdfast.log.batches import BatchHeader, Buffer, RecordBatchLimits, split_batches
from holdfast.log.segments.blocks import Block, decode_block, walk_blocks
from holdfast.log.segments.index import BlockLocation, SegmentIndex, read_tail, segment_meta
from holdfast.log.segments.layout import (
    BLOCK_MAGIC,
    CODEC_NAMES,
    MAGIC,
    SegmentFooter,
    SegmentHeader,
    parse_header,
    read_footer,
)
from holdfast.log.segments.model import ProducerSection, SegmentMeta
from holdfast.log.segments.producer_section import read_producers
from holdfast.log.segments.shared_object import SegmentLocation, directory_bytes, has_directory, read_directory
from holdfast.vocabulary.errors import CorruptError, InvalidError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IntegrityCheck:
    """One thing that was verified; `found`: what is wrong, or what was seen."""

    what: str
    ok: bool
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReport:
    """One block, from its own header and its batches."""

    number: int
    at: int
    codec: str
    stored_bytes: int
    raw_bytes: int
    batches: int
    records: int
    first_offset: int
    end_offset: int
    max_timestamp_ms: int
    crc: str


@dataclass(slots=True, kw_only=True)
class SegmentReport:
    """What could be read of the segment in bytes [start, end) of an object, and what was verified."""

    start: int
    end: int
    header: SegmentHeader | None = None
    footer: SegmentFooter | None = None
    meta: SegmentMeta | None = None
    blocks: list[BlockReport] = field(default_factory=list)
    producers: ProducerSection = field(default_factory=ProducerSection)
    checks: list[IntegrityCheck] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


@dataclass(slots=True, kw_only=True)
class ObjectReport:
    """The segments of an object; a directory if it is a shared one."""

    directory: tuple[SegmentLocation, ...] | None = None
    segments: list[SegmentReport] = field(default_factory=list)
    checks: list[IntegrityCheck] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks) and all(segment.ok for segment in self.segments)


def inspect_object(data: Buffer) -> ObjectReport:
    """Everything there is to say about an object of segments."""
    view = memoryview(data)
    shared = has_directory(view)
    if not shared and bytes(view[:4]) != MAGIC and bytes(view[-4:]) != MAGIC:
        raise InvalidError("bytes", bytes(view[:8]), "a segment, which begins with STRM")
    report = ObjectReport()
    if shared:
        _inspect_shared(view, report)
    else:
        report.segments.append(inspect_segment(view))
    return report


def _inspect_shared(view: memoryview, report: ObjectReport) -> None:
    ranges = _checked_read(report, "directory", lambda: read_directory(view))
    if ranges is None:
        return
    report.directory = ranges
    starts, ends = [entry.start for entry in ranges], [entry.end for entry in ranges]
    if [*starts, len(view) - directory_bytes(view)] != [0, *ends]:
        report.checks.append(IntegrityCheck("directory", False, "its segments do not lie one behind another"))
    for entry in ranges:
        segment = inspect_segment(view[entry.start : entry.end], start=entry.start)
        report.segments.append(segment)
        meta = segment.meta
        if meta is not None and entry[2:] != (meta.topic_id, meta.partition, meta.base_offset, meta.end_offset):
            report.checks.append(
                IntegrityCheck("directory", False, f"another segment at byte {entry.start} than it lists")
            )


def inspect_segment(view: memoryview, *, start: int = 0) -> SegmentReport:
    """Everything there is to say about one segment."""
    with suppress(CorruptError):
        parse_header(view)  # another version is no damage: it is raised
    report = SegmentReport(start=start, end=start + len(view))
    report.header = _checked_read(report, "header", lambda: parse_header(view))
    report.footer = footer = _checked_read(report, "footer", lambda: _whole_footer(view))
    index = None
    if footer is not None:
        _inspect_sections(view, report, footer)
        index = _checked_read(report, "index", lambda: read_tail(view)[1])
    if footer is not None and index is not None:
        report.meta = segment_meta(footer, index)
        _inspect_blocks(view, report, index, footer)
    elif report.header is not None:
        _checked_read(
            report, "block", partial(_inspect_sequentially, view, report, report.header.header_bytes), quiet=True
        )
        found = f"{len(report.blocks)} found by walking, with no index to compare them with"
        report.checks.append(IntegrityCheck("blocks", False, found))
    return report


def _whole_footer(view: memoryview) -> SegmentFooter:
    footer = read_footer(view)
    if footer.segment_bytes != len(view):
        raise CorruptError("segment", f"{len(view)} bytes, its footer has {footer.segment_bytes}")
    return footer


def _inspect_sections(view: memoryview, report: SegmentReport, footer: SegmentFooter) -> None:
    section = view[footer.producers_at : footer.producers_at + footer.producers_bytes]
    found_producers = _checked_read(report, "producers", lambda: read_producers(section, footer))
    report.producers = found_producers or ProducerSection()
    found = crc32c(view[: len(view) - footer.footer_bytes])
    seen = f"CRC-32C {found:08x}, the footer has {footer.body_crc:08x}"
    report.checks.append(IntegrityCheck("whole segment", found == footer.body_crc, seen))
    header = report.header
    if header is not None and (header.partition, header.base_offset) != (footer.partition, footer.base_offset):
        report.checks.append(IntegrityCheck("header", False, "the footer has another partition or offset"))


def _inspect_blocks(view: memoryview, report: SegmentReport, index: SegmentIndex, footer: SegmentFooter) -> None:
    """Each block where the index lists it. One line for all of them when all are right."""
    if report.header is not None and report.header.topic_id != index.topic_id:
        report.checks.append(IntegrityCheck("index", False, f"it is of topic {index.topic_id}"))
    for number, place in enumerate(index.blocks):
        _checked_read(report, f"block {number}", partial(_inspect_place, view, report, place), quiet=True)
    if len(report.blocks) == len(index.blocks):
        records, batches = (
            sum(counts) for counts in zip(*((b.records, b.batches) for b in report.blocks), strict=True)
        )
        right = (records, batches) == (footer.record_count, footer.batch_count)
        seen = f"{len(report.blocks)} with {batches} batches and {records} records"
        report.checks.append(IntegrityCheck("blocks", right, seen))


def _inspect_place(view: memoryview, report: SegmentReport, place: BlockLocation) -> None:
    block, *others = walk_blocks(view[place.start : place.end], at=place.start)
    if others:
        raise CorruptError("segment index", f"{1 + len(others)} blocks in the place of one, at byte {place.start}")
    _inspect_block(report, block)
    seen = report.blocks[-1]
    listed = place.first_offset, place.end_offset, place.raw_bytes, place.max_timestamp_ms
    held = seen.first_offset, seen.end_offset, seen.raw_bytes, seen.max_timestamp_ms
    if listed != held:
        raise CorruptError("segment index", f"first and end offset, bytes, latest time: {listed}, in the block {held}")


def _inspect_sequentially(view: memoryview, report: SegmentReport, at: int) -> None:
    """Blocks one behind another; whatever is no block ends the walk."""
    while bytes(view[at : at + len(BLOCK_MAGIC)]) == BLOCK_MAGIC:
        block = next(walk_blocks(view[at:], at=at))
        _inspect_block(report, block)
        at += len(block.data)


def _inspect_block(report: SegmentReport, block: Block) -> None:
    headers, batches = decode_block(block)
    report.blocks.append(_block_report(len(report.blocks), block, headers))
    for batch in batches:
        split_batches(batch, limits=RecordBatchLimits(), stored=True)  # each batch has a checksum of its own


def _block_report(number: int, block: Block, headers: Sequence[BatchHeader]) -> BlockReport:
    return BlockReport(
        number=number,
        at=block.at,
        codec=CODEC_NAMES[block.header.codec],
        stored_bytes=len(block.data),
        raw_bytes=block.header.raw_bytes,
        batches=len(headers),
        records=sum(header.count for header in headers),
        first_offset=headers[0].base_offset,
        end_offset=headers[-1].last_offset + 1,
        max_timestamp_ms=max(header.max_timestamp for header in headers),
        crc=f"{block.header.crc:08x}",
    )


def _checked_read(
    report: SegmentReport | ObjectReport, what: str, read: Callable[[], T], *, quiet: bool = False
) -> T | None:
    """What `read` returns, with a check of its outcome (only if it failed, with `quiet`)."""
    try:
        found = read()
    except (CorruptError, InvalidError) as error:
        report.checks.append(IntegrityCheck(what, False, str(error)))
        return None
    if not quiet:
        report.checks.append(IntegrityCheck(what, True, "CRC-32C right"))
    return found
