"""Objects that hold the segments of several partitions, so that quiet partitions do not cost an object each.

    segment | … | segment | directory

The one rule: a shared object is whole segments one behind another. Who reads one segment needs its byte range and nothing
else; the directory is for people and sweepers, who meet the object without knowing who refers to it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.log.batches import Buffer
from holdfast.log.segments.layout import MAJOR, MINOR, check_crc, check_major, text
from holdfast.log.segments.model import BuiltSegment, SegmentMeta
from holdfast.vocabulary.errors import CorruptError, InvalidError

MAGIC: Final = b"STRD"

_WHAT: Final = "object directory"
_ENTRY: Final = Struct(">HQQiqqH")  # entry bytes, start, end, partition, base offset, end offset, bytes of the topic id
_TRAILER: Final = Struct(">IHHII4s")  # entries, major, minor, directory bytes, CRC of the directory before it, magic
_CRC_AND_MAGIC_BYTES: Final = 8


class SegmentLocation(NamedTuple):
    """One segment in an object: bytes [start, end), offsets [base_offset, end_offset)."""

    start: int
    end: int
    topic_id: str
    partition: int
    base_offset: int
    end_offset: int


class BuiltObject(NamedTuple):
    """An object ready to be put, and where in it each segment is, in the order given."""

    parts: list[Buffer]
    ranges: tuple[SegmentLocation, ...]


def build_object(segments: Sequence[BuiltSegment]) -> BuiltObject:
    """One object with all these segments."""
    if not segments:
        raise InvalidError("number of segments", 0, "at least 1")
    parts: list[Buffer] = []
    ranges: list[SegmentLocation] = []
    start = 0
    for segment in segments:
        parts += segment.parts
        ranges.append(_range(segment.meta, start))
        start += segment.meta.bytes
    parts.append(_pack_directory(ranges))
    return BuiltObject(parts, tuple(ranges))


def has_directory(tail: Buffer) -> bool:
    """Whether the object that ends with `tail` is a shared one."""
    return bytes(tail[-len(MAGIC) :]) == MAGIC


def directory_bytes(tail: Buffer) -> int:
    """How much of the end of a shared object is its directory."""
    view = memoryview(tail)
    if len(view) < _TRAILER.size or not has_directory(tail):
        raise CorruptError(_WHAT, f"it does not end with {MAGIC!r}")
    return int(_TRAILER.unpack_from(view, len(view) - _TRAILER.size)[3])


def read_directory(tail: Buffer) -> tuple[SegmentLocation, ...]:
    """The segments of the shared object that ends with `tail`; `directory_bytes` is how much that takes."""
    size_bytes = directory_bytes(tail)
    if size_bytes > len(tail):
        raise InvalidError("bytes of the tail", len(tail), f"at least {size_bytes}, the directory")
    if size_bytes < _TRAILER.size:
        raise CorruptError(_WHAT, f"{size_bytes} bytes announced")
    view = memoryview(tail)[len(tail) - size_bytes :]
    count, major, _, _, crc, _ = _TRAILER.unpack_from(view, size_bytes - _TRAILER.size)
    check_crc(_WHAT, view[:-_CRC_AND_MAGIC_BYTES], crc)
    check_major(major)
    entries = view[: -_TRAILER.size]
    found, at = [], 0
    for _ in range(count):
        entry, entry_bytes = _read_entry(entries[at:])
        found.append(entry)
        at += entry_bytes
    return tuple(found)


def _range(meta: SegmentMeta, start: int) -> SegmentLocation:
    return SegmentLocation(start, start + meta.bytes, meta.topic_id, meta.partition, meta.base_offset, meta.end_offset)


def _pack_directory(ranges: Sequence[SegmentLocation]) -> bytes:
    out = bytearray()
    for entry in ranges:
        name = entry.topic_id.encode()
        out += _ENTRY.pack(
            _ENTRY.size + len(name),
            entry.start,
            entry.end,
            entry.partition,
            entry.base_offset,
            entry.end_offset,
            len(name),
        )
        out += name
    size_bytes = len(out) + _TRAILER.size
    out += _TRAILER.pack(len(ranges), MAJOR, MINOR, size_bytes, 0, MAGIC)[:-_CRC_AND_MAGIC_BYTES]
    return bytes(out) + crc32c(out).to_bytes(4, "big") + MAGIC


def _read_entry(view: memoryview) -> tuple[SegmentLocation, int]:
    if len(view) < _ENTRY.size:
        raise CorruptError(_WHAT, "an entry is cut")
    entry_bytes, start, end, partition, base_offset, end_offset, name_bytes = _ENTRY.unpack_from(view)
    if not _ENTRY.size + name_bytes <= entry_bytes <= len(view):
        raise CorruptError(_WHAT, f"an entry of {entry_bytes} bytes")
    name = bytes(view[_ENTRY.size : _ENTRY.size + name_bytes])
    return SegmentLocation(start, end, text(_WHAT, name), partition, base_offset, end_offset), entry_bytes
