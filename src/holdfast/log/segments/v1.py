"""STRM v1, the older format of whole records: read to import, written to export. Nothing here is on the hot path.

The one rule: nothing is lost silently. Version 1 has no headers, and cannot tell a null value from an empty one, an empty
key from none, or no timestamp from 0: `export_v1` counts such records and refuses, unless the caller accepts the loss.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from struct import Struct
from typing import Final, NamedTuple

import lz4.block

from holdfast.log.batches import Buffer, Record
from holdfast.log.batches.compression import DecompressError, compress, decompress
from holdfast.log.segments.layout import MAGIC
from holdfast.log.segments.section_reader import SectionReader
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.settings import MIB, check_one_of
from holdfast.vocabulary.varint import put_uvarint, put_varint

COMPRESSIONS_V1: Final = ("none", "lz4", "zstd")  # a codec's place is its number
BLOCK_BYTES_V1: Final = 1 * MIB  # a block is closed once it holds this much
INFLATED_BYTES_MAX: Final = 256 * MIB

_VERSION: Final = 1
_HEADER: Final = Struct(">4sHHQQII32s")  # magic, version, codec, base offset, last offset, records, blocks, zeros
_COUNT: Final = Struct(">I")
_ENTRY: Final = Struct(">QQQ")  # first offset, position, first timestamp
_FOOTER: Final = Struct(">QI4s16s")  # position of the index, CRC-32 (IEEE) of all before the footer, magic, zeros
_ZSTD: Final = 4  # Kafka's number for it
_MASK: Final = 2**64 - 1
_WHAT: Final = "STRM v1 segment"


class HeaderV1(NamedTuple):
    """The header. `last_offset` is inclusive."""

    compression: str
    base_offset: int
    last_offset: int
    record_count: int
    block_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLosses:
    """Of how many records version 1 cannot hold something."""

    headers: int = 0
    null_values: int = 0
    empty_keys: int = 0
    missing_timestamps: int = 0

    @property
    def blurred(self) -> int:
        """Those that would read as something else."""
        return self.null_values + self.empty_keys + self.missing_timestamps

    def __str__(self) -> str:
        counted = ((each.name.replace("_", " "), getattr(self, each.name)) for each in fields(self))
        return ", ".join(f"{number} with {name}" for name, number in counted if number) or "none"


class ExportedV1(NamedTuple):
    """A segment of version 1, and what it does not hold."""

    data: bytes
    losses: ExportLosses


def export_v1(
    records: Iterable[Record],
    *,
    compression: str = "none",
    block_bytes: int = BLOCK_BYTES_V1,
    drop_headers: bool = False,
    blur_nulls: bool = False,
) -> ExportedV1:
    """The records, in the order of their offsets, as a segment of version 1.

    Without `drop_headers` records with headers are refused; without `blur_nulls` those whose null value would become
    empty, whose empty key would become none, or whose missing timestamp would become 0.
    """
    check_one_of("compression", compression, COMPRESSIONS_V1)
    kept = list(records)
    if not kept:
        raise InvalidError("number of records", 0, "at least 1")
    losses = _losses(kept)
    if losses.headers and not drop_headers:
        raise InvalidError("records", f"{losses.headers} with headers", "records without headers, or drop_headers")
    if losses.blurred and not blur_nulls:
        raise InvalidError("records", str(losses), "keys and values that read back the same, or blur_nulls")
    out = bytearray(_HEADER.size)
    entries = _write_blocks(kept, out, compression, block_bytes)
    codec = COMPRESSIONS_V1.index(compression)
    _HEADER.pack_into(out, 0, MAGIC, _VERSION, codec, kept[0].offset, kept[-1].offset, len(kept), len(entries), b"")
    index_at = len(out)
    out += _COUNT.pack(len(entries))
    for entry in entries:
        out += _ENTRY.pack(*entry)
    out += _FOOTER.pack(index_at, zlib.crc32(out), MAGIC, b"")
    return ExportedV1(bytes(out), losses)


def _losses(records: list[Record]) -> ExportLosses:
    return ExportLosses(
        headers=sum(1 for record in records if record.headers),
        null_values=sum(1 for record in records if record.value is None),
        empty_keys=sum(1 for record in records if record.key == b""),
        missing_timestamps=sum(1 for record in records if record.timestamp_ms < 0),
    )


def _write_blocks(
    records: list[Record], out: bytearray, compression: str, block_bytes: int
) -> list[tuple[int, int, int]]:
    entries: list[tuple[int, int, int]] = []
    block = bytearray()
    offset_before = timestamp_before = -1
    for record in records:
        if record.offset <= offset_before:
            raise InvalidError("offset", record.offset, f"more than {offset_before}, that of the record before")
        timestamp_ms = max(0, record.timestamp_ms)
        if not block:
            entries.append((record.offset, len(out), timestamp_ms))
            offset_before, timestamp_before = record.offset, timestamp_ms
        put_varint(block, record.offset - offset_before)
        put_varint(block, timestamp_ms - timestamp_before)
        for field in (record.key or b"", record.value or b""):
            put_uvarint(block, len(field))
            block += field
        offset_before, timestamp_before = record.offset, timestamp_ms
        if len(block) >= block_bytes:
            out += _deflate(bytes(block), compression)
            block.clear()
    out += _deflate(bytes(block), compression) if block else b""
    return entries


def _deflate(block: bytes, compression: str) -> bytes:
    if compression == "lz4":
        packed: bytes = lz4.block.compress(block, store_size=True)
        return packed
    return compress(_ZSTD, block) if compression == "zstd" else block


def is_v1(data: Buffer) -> bool:
    """Whether the bytes begin as a segment of version 1 does."""
    return bytes(data[:6]) == MAGIC + _VERSION.to_bytes(2, "big")


def header_v1(data: Buffer) -> HeaderV1:
    """The header."""
    if len(data) < _HEADER.size or not is_v1(data):
        raise InvalidError(_WHAT, bytes(data[:6]), "bytes that begin with STRM and version 1")
    _, _, codec, base_offset, last_offset, record_count, block_count, _ = _HEADER.unpack_from(data)
    if codec >= len(COMPRESSIONS_V1):
        raise CorruptError(_WHAT, f"compression {codec}, known are 0 to {len(COMPRESSIONS_V1) - 1}")
    return HeaderV1(COMPRESSIONS_V1[codec], base_offset, last_offset, record_count, block_count)


def import_v1(data: Buffer) -> list[Record]:
    """All records of a segment of version 1, after its CRC was found right."""
    view = memoryview(data)
    header = header_v1(view)
    entries, index_at = _read_index(view)
    if len(entries) != header.block_count:
        raise CorruptError(_WHAT, f"{len(entries)} blocks in the index, {header.block_count} in the header")
    ends = [*(position for _, position, _ in entries[1:]), index_at]
    records: list[Record] = []
    for (offset, position, timestamp_ms), end in zip(entries, ends, strict=True):
        if not _HEADER.size <= position <= end <= index_at:
            raise CorruptError(_WHAT, f"a block at bytes {position} to {end}")
        records += _read_block(_inflate(view[position:end], header.compression), offset, timestamp_ms)
    if len(records) != header.record_count:
        raise CorruptError(_WHAT, f"{len(records)} records, the header has {header.record_count}")
    if records and (records[0].offset, records[-1].offset) != (header.base_offset, header.last_offset):
        found = f"offsets {records[0].offset} to {records[-1].offset}"
        raise CorruptError(_WHAT, f"{found}, the header has {header.base_offset} to {header.last_offset}")
    return records


def _read_index(view: memoryview) -> tuple[list[tuple[int, int, int]], int]:
    footer_at = len(view) - _FOOTER.size
    if footer_at < _HEADER.size + _COUNT.size:
        raise CorruptError(_WHAT, f"{len(view)} bytes: it is cut")
    index_at, crc, magic, _ = _FOOTER.unpack_from(view, footer_at)
    if magic != MAGIC:
        raise CorruptError(_WHAT, f"its footer has {magic!r}, expected {MAGIC!r}: it is cut")
    found = zlib.crc32(view[:footer_at])
    if found != crc:
        raise CorruptError(_WHAT, f"its CRC-32 is {found:08x}, expected {crc:08x}")
    if not _HEADER.size <= index_at <= footer_at - _COUNT.size:
        raise CorruptError(_WHAT, f"an index at byte {index_at}")
    (count,) = _COUNT.unpack_from(view, index_at)
    entries = view[index_at + _COUNT.size : footer_at]
    if len(entries) != count * _ENTRY.size:
        raise CorruptError(_WHAT, f"{count} blocks in {len(entries)} bytes of index")
    return list(_ENTRY.iter_unpack(entries)), index_at


def _inflate(block: memoryview, compression: str) -> Buffer:
    if compression == "none":
        return block
    try:
        if compression == "zstd":
            return decompress(_ZSTD, block, bytes_max=INFLATED_BYTES_MAX)
        size_bytes = int.from_bytes(block[:4], "little")
        if size_bytes > min(INFLATED_BYTES_MAX, 255 * len(block)):
            raise CorruptError(_WHAT, f"a block of {len(block)} bytes announces {size_bytes}")
        unpacked: bytes = lz4.block.decompress(block)
        return unpacked
    except (DecompressError, lz4.block.LZ4BlockError, ValueError) as error:
        raise CorruptError(_WHAT, f"{compression}: {error}") from None


def _read_block(block: Buffer, offset: int, timestamp_ms: int) -> list[Record]:
    reader = SectionReader(block, _WHAT)
    records = []
    while reader.left:
        offset = offset + reader.varint() & _MASK
        timestamp_ms = timestamp_ms + reader.varint() & _MASK
        key = bytes(reader.take(reader.uvarint())) or None
        value = bytes(reader.take(reader.uvarint()))
        records.append(Record(offset, timestamp_ms, key, value))
    return records
