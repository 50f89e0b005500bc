"""Blocks: batches one behind another, packed with LZ4 unless their producers packed them.

The one rule: a block is trusted only after its CRC; what it unpacks to must then be exactly the batches it announces.
Unpacking releases the GIL. Nothing here looks at records.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import lz4.block
from crc32c import crc32c

from holdfast.log.batches import BatchHeader, Buffer
from holdfast.log.batches.kernels import BEST, BatchSummary
from holdfast.log.batches.rules import fault_error
from holdfast.log.checksums import batch_checksum
from holdfast.log.segments.layout import (
    BLOCK,
    BLOCK_BYTES,
    BLOCK_MAGIC,
    CODEC_NAMES,
    CRC_BYTES,
    LZ4,
    STORED,
    BlockHeader,
    check_crc,
    pack_block,
)
from holdfast.vocabulary.alignment import alignment_padding
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.settings import KIB

_LZ4_INPUT_MAX: Final = 0x7E000000
_LZ4_RATIO_MAX: Final = 255  # no LZ4 stream grows by more: a block that claims to would only eat memory
_NO_LIMIT: Final = 2**31 - 1
_PROBE_BYTES: Final = 64 * KIB
_GIL_HELD_MAX_BYTES: Final = 256 * KIB  # for a checksum: 15 microseconds
_IN_PLACE_MIN_BYTES: Final = 512 * KIB  # the gaps take less than a hundredth


class Block(NamedTuple):
    """One block where it lies: `at` bytes into its segment; `data` includes its header."""

    at: int
    header: BlockHeader
    data: memoryview

    @property
    def name(self) -> str:
        """For errors."""
        return f"segment block at byte {self.at}"


def encode_block(raw: Buffer, *, at: int, batch_count: int, first_offset: int, pack: bool) -> tuple[bytes, Buffer, int]:
    """The header and payload of a block of batches: `raw` itself, unless `pack` and LZ4 saves a quarter or more.

    And the payload's checksum, so that it is not computed again. `at` is where the block will lie in its segment: a
    large payload gets a gap before it, so that it can be stored from where it is.
    """
    codec, payload = STORED, raw
    if pack and len(raw) <= _LZ4_INPUT_MAX and _is_compressible(raw):
        packed: bytes = lz4.block.compress(raw, store_size=False)
        if _saves_enough(packed, raw):
            codec, payload = LZ4, packed
    payload_crc = batch_checksum(raw) if payload is raw and batch_count == 1 else _checksum(payload)
    header = pack_block(
        codec=codec,
        payload_bytes=len(payload),
        payload_crc=payload_crc,
        raw_bytes=len(raw),
        batch_count=batch_count,
        first_offset=first_offset,
        gap_bytes=alignment_padding(payload, at + BLOCK_BYTES, min_bytes=_IN_PLACE_MIN_BYTES),
    )
    return header, payload, payload_crc


def _checksum(payload: Buffer) -> int:
    """Of one block, which takes microseconds: to let go of the GIL and wait for it again takes longer."""
    return crc32c(payload, gil_release_mode=0 if len(payload) <= _GIL_HELD_MAX_BYTES else -1)


def _is_compressible(raw: Buffer) -> bool:
    """Whether the beginning of a large block shrinks: what is true of it is mostly true of the rest."""
    if len(raw) < 4 * _PROBE_BYTES:
        return True
    beginning = memoryview(raw)[:_PROBE_BYTES]
    return _saves_enough(lz4.block.compress(beginning, store_size=False), beginning)


def _saves_enough(packed: Buffer, raw: Buffer) -> bool:
    return len(packed) <= len(raw) - len(raw) // 4


def scan_batches(raw: Buffer) -> list[BatchHeader] | tuple[int, int, int, int]:
    """The headers of batches one behind another, or the first fault; checksums are the block's."""
    return BEST.scan(raw, True, _NO_LIMIT, _NO_LIMIT, BatchHeader)


def summarize_batches(raw: Buffer, end_offset: int = 0, *, stored: bool) -> BatchSummary:
    """What batches one behind another, from `end_offset` on, are in sum. The first fault is an error; `stored`: of our storage."""
    found = BEST.summarize(raw, end_offset, BatchSummary)
    if not isinstance(found, BatchSummary):
        raise fault_error(found, stored=stored)
    return found


def decode_blocks(data: Buffer, *, at: int = 0) -> list[memoryview]:
    """All batches of consecutive whole blocks; `at` is where they lie in the segment, for the error."""
    return [batch for block in walk_blocks(data, at=at) for batch in decode_block(block)[1]]


def walk_blocks(data: Buffer, *, at: int = 0) -> Iterator[Block]:
    """One block after another. Sizes are checked, CRCs not yet."""
    view = memoryview(data)
    while view:
        what = f"segment block at byte {at}"
        if len(view) < BLOCK_BYTES:
            raise CorruptError(what, f"{len(view)} bytes, expected at least {BLOCK_BYTES}")
        header = BlockHeader(*BLOCK.unpack_from(view))
        if header.magic != BLOCK_MAGIC or header.header_bytes < BLOCK_BYTES:
            raise CorruptError(what, f"it begins with {header.magic!r}, expected {BLOCK_MAGIC!r} and its size")
        size_bytes = header.header_bytes + header.stored_bytes
        if size_bytes > len(view):
            raise CorruptError(what, f"{size_bytes} bytes announced, {len(view)} are there")
        yield Block(at, header, view[:size_bytes])
        view = view[size_bytes:]
        at += size_bytes


def decode_block(block: Block) -> tuple[list[BatchHeader], list[memoryview]]:
    """The batches of one block, verified by the block's CRC: views of the block's bytes, or of what they unpack to."""
    raw, what = memoryview(_verified(block)), block.name
    headers = scan_batches(raw)
    if isinstance(headers, tuple):
        raise CorruptError(what, str(fault_error(headers, stored=True)))
    _check_announced(block, len(headers), headers[0].base_offset if headers else -1)
    batches, start = [], 0
    for found in headers:
        end = start + found.size_bytes
        batches.append(raw[start:end])
        start = end
    return headers, batches


def read_block(block: Block) -> Buffer:
    """The same batches one behind another, for who takes all of them, however many there are."""
    raw = _verified(block)
    try:
        summary = summarize_batches(raw, stored=True)
    except CorruptError as error:
        raise CorruptError(block.name, str(error)) from None
    _check_announced(block, summary.batch_count, summary.first_offset)
    return raw


def _verified(block: Block) -> Buffer:
    """What the block holds, as its CRC has it."""
    header = block.header
    check_crc(block.name, block.data[BLOCK_BYTES:], header.crc, seed=crc32c(block.data[: BLOCK_BYTES - CRC_BYTES]))
    return _unpack(header, block.data[header.header_bytes :], block.name)


def _check_announced(block: Block, batch_count: int, first_offset: int) -> None:
    header = block.header
    if not batch_count or batch_count != header.batch_count or first_offset != header.first_offset:
        raise CorruptError(block.name, f"{batch_count} batches, not the {header.batch_count} it announces")


def _unpack(header: BlockHeader, payload: memoryview, what: str) -> Buffer:
    raw: Buffer
    if header.codec == STORED:
        raw = payload
    elif header.codec != LZ4:
        raise CorruptError(what, f"codec {header.codec}, known are 0 to {len(CODEC_NAMES) - 1}")
    elif header.raw_bytes > min(_LZ4_INPUT_MAX, len(payload) * _LZ4_RATIO_MAX):
        raise CorruptError(what, f"{header.raw_bytes} bytes cannot have been packed into {len(payload)}")
    else:
        try:
            raw = lz4.block.decompress(payload, uncompressed_size=header.raw_bytes)
        except lz4.block.LZ4BlockError as error:
            raise CorruptError(what, f"LZ4: {error}") from None
    if len(raw) != header.raw_bytes:
        raise CorruptError(what, f"{len(raw)} bytes of batches, expected {header.raw_bytes}")
    return raw
