"""Segments: batches of one partition in one immutable run of bytes, packed, indexed and checksummed (STRM v2).

    built = build_segment(batches, topic_id=topic, partition=0, epochs=[(3, 0)])     # on a thread
    await objects.put(segment_key(topic, 0, base, end, 3, upload_id, prefix=owner.prefix), built.parts)
    reader = SegmentReader(objects, key, 0, built.meta.bytes)
    batches = await reader.read(offset, bytes_max)

The one rule: a segment never changes, and describes itself: a reader needs an object's key and a byte range. Which
segments count is the store's to say; when to roll and publish is the partition's. The format: docs/formats/strm.md.
"""

from holdfast.log.segments.blocks import decode_blocks
from holdfast.log.segments.builder import build_segment
from holdfast.log.segments.index import BlockLocation, SegmentIndex, read_tail, segment_meta
from holdfast.log.segments.keys import SegmentKey, parse_segment_key, partition_prefix, segment_key, shared_key
from holdfast.log.segments.layout import SegmentFooter, SegmentHeader, parse_header, read_footer
from holdfast.log.segments.model import (
    BuiltSegment,
    EpochStart,
    ProducerSection,
    ProducerSnapshot,
    SegmentMeta,
    SequenceRange,
)
from holdfast.log.segments.producer_section import read_producers
from holdfast.log.segments.reader import OffsetAndTimestamp, SegmentReader
from holdfast.log.segments.settings import SegmentSettings
from holdfast.log.segments.shared_object import BuiltObject, SegmentLocation, build_object, read_directory

__all__ = [
    "BlockLocation",
    "BuiltObject",
    "BuiltSegment",
    "EpochStart",
    "OffsetAndTimestamp",
    "ProducerSection",
    "ProducerSnapshot",
    "SegmentFooter",
    "SegmentHeader",
    "SegmentIndex",
    "SegmentKey",
    "SegmentLocation",
    "SegmentMeta",
    "SegmentReader",
    "SegmentSettings",
    "SequenceRange",
    "build_object",
    "build_segment",
    "decode_blocks",
    "parse_header",
    "parse_segment_key",
    "partition_prefix",
    "read_directory",
    "read_footer",
    "read_producers",
    "read_tail",
    "segment_key",
    "segment_meta",
    "shared_key",
]
