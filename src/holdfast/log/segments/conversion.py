"""From STRM v1 to v2 and back, record by record: for people who move in or out, not for the hot path.

The one rule: offsets and timestamps stay what they are. Transaction markers are no records and are left out; records of
aborted transactions cannot be told from others by a segment alone and are exported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.log.batches import Buffer, Record, RecordBatch, decode, encode
from holdfast.log.segments.blocks import decode_block, walk_blocks
from holdfast.log.segments.builder import build_segment
from holdfast.log.segments.index import read_tail
from holdfast.log.segments.model import BuiltSegment
from holdfast.log.segments.shared_object import has_directory, read_directory
from holdfast.log.segments.v1 import ExportLosses, export_v1, import_v1
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB

_BATCH_BYTES: Final = 256 * KIB
_BATCH_RECORDS_MAX: Final = 10_000
_BATCH_OFFSETS_MAX: Final = 2**31 - 1
_RECORD_OVERHEAD_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSegment:
    """A segment of version 1, how many records it has, and what it does not hold of them."""

    data: bytes
    record_count: int
    losses: ExportLosses
    markers: int


def segment_of(data: Buffer, number: int | None) -> memoryview:
    """The segment in an object's bytes: the only one, or the one with that number (from 0) in a shared object."""
    view = memoryview(data)
    ranges = [(entry.start, entry.end) for entry in read_directory(view)] if has_directory(view) else [(0, len(view))]
    if number is None and len(ranges) > 1:
        raise InvalidError(
            "object", f"{len(ranges)} segments", f"one segment, or the number of one: 0 to {len(ranges) - 1}"
        )
    if not 0 <= (number or 0) < len(ranges):
        raise InvalidError("number of the segment", number, f"0 to {len(ranges) - 1}")
    start, end = ranges[number or 0]
    return view[start:end]


def to_v1(segment: memoryview, *, compression: str, drop_headers: bool, blur_nulls: bool) -> ExportedSegment:
    """The records of a segment as STRM v1; see `export_v1` for what is refused."""
    index = read_tail(segment)[1]
    records: list[Record] = []
    markers = 0
    for block in walk_blocks(segment[index.blocks[0].start : index.blocks[-1].end], at=index.blocks[0].start):
        for header, batch in zip(*decode_block(block), strict=True):
            if header.is_control:
                markers += header.count
            else:
                records += decode(RecordBatch(header, batch))
    done = export_v1(records, compression=compression, drop_headers=drop_headers, blur_nulls=blur_nulls)
    return ExportedSegment(data=done.data, record_count=len(records), losses=done.losses, markers=markers)


def from_v1(data: Buffer, *, topic_id: str, partition: int, epoch: int, compression: str) -> BuiltSegment:
    """A segment with the records of one of version 1, written under `epoch`."""
    records = import_v1(data)
    if not records:
        raise InvalidError("number of records", 0, "at least 1")
    batches = [encode(part, base_offset=part[0].offset, leader_epoch=epoch) for part in _batches(records)]
    epochs = [(epoch, records[0].offset)]
    return build_segment(batches, topic_id=topic_id, partition=partition, epochs=epochs, compression=compression)


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Records in groups of a size that producers would send."""
    group: list[Record] = []
    size_bytes = 0
    for record in records:
        far = group and record.offset - group[0].offset >= _BATCH_OFFSETS_MAX
        if far or size_bytes >= _BATCH_BYTES or len(group) >= _BATCH_RECORDS_MAX:
            yield group
            group, size_bytes = [], 0
        group.append(record)
        size_bytes += len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
    yield group
