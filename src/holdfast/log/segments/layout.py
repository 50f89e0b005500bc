"""The fixed parts of STRM v2: header, block header, footer. docs/formats/strm.md describes them for everybody else.

    header | block … block | producers | index | footer

The one rule: every part carries its size and a CRC-32C that covers all its bytes, so that a newer minor version may add
fields behind those known here, and no damaged byte goes unseen. What finds and guards them (magic, version, size, CRC of
header and footer) stays where it is in every later version, so that a newer one is told from damage. All positions count
from the first byte of the segment: a segment is the same bytes wherever in an object it lies. Numbers are big-endian.
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.log.batches import Buffer
from holdfast.log.checksums import joined
from holdfast.vocabulary.errors import CorruptError, InvalidError

MAGIC: Final = b"STRM"
MAJOR: Final = 2
MINOR: Final = 0
MINOR_WITH_DELTA: Final = 1  # in the footer of a segment whose producers are a delta

STORED: Final = 0
LZ4: Final = 1
CODEC_NAMES: Final = ("stored", "lz4")

_CRC: Final = Struct(">I")
CRC_BYTES: Final = _CRC.size
_HEADER: Final = Struct(">4sHHIiqH")  # magic, major, minor, header bytes, partition, base offset, bytes of the topic id

BLOCK_MAGIC: Final = b"STRB"
BLOCK: Final = Struct(">4sHBxIIIqI")
BLOCK_BYTES: Final = BLOCK.size  # 32

_FOOTER: Final = Struct(">qqqqQIIQQQIIQIIiI")
_TRAILER: Final = Struct(">HHII4s")  # major, minor, footer bytes, CRC of the footer before it, magic
TRAILER_BYTES: Final = _TRAILER.size
FOOTER_BYTES: Final = _FOOTER.size + TRAILER_BYTES  # 120
_CRC_AND_MAGIC_BYTES: Final = 8
_FOOTER_BYTES_MAX: Final = 64 * 1024

_V1_MAGIC_FROM_END: Final = 20  # STRM v1 ends with its magic and 16 zero bytes


class SegmentHeader(NamedTuple):
    """Whose segment it is."""

    major: int
    minor: int
    header_bytes: int
    topic_id: str
    partition: int
    base_offset: int


class BlockHeader(NamedTuple):
    """How the batches of one block are stored behind it."""

    magic: bytes
    header_bytes: int
    codec: int
    stored_bytes: int
    raw_bytes: int
    batch_count: int
    first_offset: int
    crc: int


class SegmentFooter(NamedTuple):
    """What a segment holds and where its sections are. `body_crc` covers everything before the footer."""

    base_offset: int
    end_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    batch_count: int
    block_count: int
    raw_bytes: int
    segment_bytes: int
    producers_at: int
    producers_bytes: int
    producers_crc: int
    index_at: int
    index_bytes: int
    index_crc: int
    partition: int
    body_crc: int
    major: int
    minor: int
    footer_bytes: int

    @property
    def tail_bytes(self) -> int:
        """How much of the end of the segment holds index and footer."""
        return self.segment_bytes - self.index_at


def pack_header(*, topic_id: str, partition: int, base_offset: int) -> bytes:
    """The first bytes of a segment."""
    name = topic_id.encode()
    size_bytes = _HEADER.size + len(name) + _CRC.size
    fields = _HEADER.pack(MAGIC, MAJOR, MINOR, size_bytes, partition, base_offset, len(name)) + name
    return fields + _CRC.pack(crc32c(fields))


def parse_header(data: Buffer) -> SegmentHeader:
    """The header at the beginning of `data`, validated."""
    view = memoryview(data)
    if len(view) < _HEADER.size:
        raise CorruptError("segment header", f"{len(view)} bytes, expected at least {_HEADER.size}")
    magic, major, minor, header_bytes, partition, base_offset, name_bytes = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise CorruptError("segment header", f"it begins with {magic!r}, expected {MAGIC!r}")
    if major == 1:
        check_major(major)
    if not _HEADER.size + name_bytes + _CRC.size <= header_bytes <= len(view):
        raise CorruptError("segment header", f"{header_bytes} bytes announced, {len(view)} are there")
    crc_at = header_bytes - _CRC.size
    check_crc("segment header", view[:crc_at], _CRC.unpack_from(view, crc_at)[0])
    check_major(major)
    name = bytes(view[_HEADER.size : _HEADER.size + name_bytes])
    return SegmentHeader(major, minor, header_bytes, text("segment header", name), partition, base_offset)


def pack_footer(footer: SegmentFooter) -> bytes:
    """The last bytes of a segment."""
    fields = _FOOTER.pack(*footer[: -len(("major", "minor", "footer_bytes"))])
    covered = fields + _TRAILER.pack(footer.major, footer.minor, FOOTER_BYTES, 0, MAGIC)[:-_CRC_AND_MAGIC_BYTES]
    return covered + _CRC.pack(crc32c(covered)) + MAGIC


def read_footer(tail: Buffer) -> SegmentFooter:
    """The footer at the end of `tail`, validated. `tail` may be any part of the segment's end that holds the footer."""
    view = memoryview(tail)
    if len(view) < TRAILER_BYTES:
        raise CorruptError("segment footer", f"{len(view)} bytes, expected at least {TRAILER_BYTES}")
    major, minor, footer_bytes, crc, magic = _TRAILER.unpack_from(view, len(view) - TRAILER_BYTES)
    if magic != MAGIC:
        if bytes(view[-_V1_MAGIC_FROM_END : 4 - _V1_MAGIC_FROM_END]) == MAGIC:
            check_major(1)
        raise CorruptError("segment footer", f"it ends with {magic!r}, expected {MAGIC!r}: the segment is cut")
    if not FOOTER_BYTES <= footer_bytes <= _FOOTER_BYTES_MAX:
        raise CorruptError(
            "segment footer", f"{footer_bytes} bytes announced, allowed are {FOOTER_BYTES} to {_FOOTER_BYTES_MAX}"
        )
    if footer_bytes > len(view):
        raise InvalidError("bytes of the tail", len(view), f"at least {footer_bytes}, the footer")
    at = len(view) - footer_bytes
    check_crc("segment footer", view[at : len(view) - _CRC_AND_MAGIC_BYTES], crc)
    check_major(major)
    footer = SegmentFooter._make((*_FOOTER.unpack_from(view, at), major, minor, footer_bytes))
    _check_sections(footer)
    return footer


def _check_sections(footer: SegmentFooter) -> None:
    """The sections must lie one behind another, and end where the footer begins."""
    producers_end = footer.producers_at + footer.producers_bytes
    index_end = footer.index_at + footer.index_bytes
    if producers_end != footer.index_at or index_end + footer.footer_bytes != footer.segment_bytes:
        raise CorruptError("segment footer", "its sections do not lie one behind another")
    if not 0 <= footer.base_offset < footer.end_offset:
        raise CorruptError("segment footer", f"offsets {footer.base_offset} to {footer.end_offset}")


def pack_block(
    *,
    codec: int,
    payload_bytes: int,
    payload_crc: int,
    raw_bytes: int,
    batch_count: int,
    first_offset: int,
    gap_bytes: int = 0,
) -> bytes:
    """The header of a block; its CRC covers every byte of the block but itself, and fields to come stand behind it.

    So do `gap_bytes` zeros, for a payload that should not begin right here.
    """
    header_bytes, gap = BLOCK_BYTES + gap_bytes, bytes(gap_bytes)
    fields = BLOCK.pack(BLOCK_MAGIC, header_bytes, codec, payload_bytes, raw_bytes, batch_count, first_offset, 0)
    covered = fields[:-CRC_BYTES]
    crc = joined(crc32c(gap, crc32c(covered)), payload_crc, payload_bytes)
    return covered + _CRC.pack(crc) + gap


def check_major(major: int) -> None:
    """Refuse a format that this release cannot read."""
    if major == 1:
        raise InvalidError("STRM version", major, f"{MAJOR}; version 1 is read by `holdfast segment import-v1`")
    if major != MAJOR:
        raise InvalidError("STRM version", major, f"{MAJOR}: a newer release wrote this segment, read it with that one")


def check_crc(what: str, data: Buffer, expected: int, seed: int = 0) -> None:
    """Refuse bytes that are not those that were written."""
    found = crc32c(data, seed)
    if found != expected:
        raise CorruptError(what, f"its CRC-32C is {found:08x}, expected {expected:08x}")


def text(what: str, name: bytes) -> str:
    """An id as text."""
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise CorruptError(what, f"the topic id is {name!r}") from None
