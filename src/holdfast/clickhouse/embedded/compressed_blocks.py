"""ClickHouse's own packing: blocks with a checksum, as `compress=1` and `decompress=1` have them.

16 bytes   CityHash128 of all that follows
 1 byte    how it is packed: 0x82 LZ4, 0x90 Zstandard, 0x02 not at all
 4 bytes   bytes that follow, with these nine
 4 bytes   bytes before packing
"""

import struct
from collections.abc import Iterator
from typing import Final

import lz4.block
import zstandard

from holdfast.clickhouse.embedded.cityhash import city_hash_128
from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.error_codes import ErrorCode

_HEADER: Final = struct.Struct("<BII")
_CHECKSUM_BYTES: Final = 16
_BLOCK_BYTES: Final = 1 << 20
_BLOCK_BYTES_MAX: Final = 1 << 28
_LZ4, _ZSTD, _PLAIN = 0x82, 0x90, 0x02


def compress_blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """An answer's pieces as blocks of LZ4."""
    for piece in pieces:
        for at in range(0, len(piece), _BLOCK_BYTES):
            plain = piece[at : at + _BLOCK_BYTES]
            small = lz4.block.compress(plain, store_size=False)
            body = _HEADER.pack(_LZ4, len(small) + _HEADER.size, len(plain)) + small
            yield city_hash_128(body) + body


def decompress_blocks(pieces: Iterator[bytes], *, check: bool = True) -> Iterator[bytes]:
    """A request's pieces, as they were before they were packed into blocks."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while (size := _first_block_size(waiting)) and len(waiting) >= size:
            yield _decompressed(bytes(waiting[:size]), check=check)
            del waiting[:size]
    if waiting:
        raise query_error(ErrorCode.CANNOT_DECOMPRESS, "the body ends in the middle of a compressed block")


def _first_block_size(waiting: bytearray) -> int:
    """How many bytes the first block has, once that can be told."""
    if len(waiting) < _CHECKSUM_BYTES + _HEADER.size:
        return 0
    _, size, plain = _HEADER.unpack_from(waiting, _CHECKSUM_BYTES)
    if not _HEADER.size <= size <= _BLOCK_BYTES_MAX or plain > _BLOCK_BYTES_MAX:
        raise query_error(
            ErrorCode.CANNOT_DECOMPRESS, f"a compressed block of {size} bytes for {plain}: at most {_BLOCK_BYTES_MAX}"
        )
    return _CHECKSUM_BYTES + int(size)


def _decompressed(block: bytes, *, check: bool) -> bytes:
    method, _, size = _HEADER.unpack_from(block, _CHECKSUM_BYTES)
    if check and city_hash_128(block[_CHECKSUM_BYTES:]) != block[:_CHECKSUM_BYTES]:
        raise query_error(ErrorCode.CANNOT_DECOMPRESS, "the checksum of a compressed block does not match")
    small = block[_CHECKSUM_BYTES + _HEADER.size :]
    try:
        if method == _LZ4:
            plain = lz4.block.decompress(small, uncompressed_size=size)
        elif method == _ZSTD:
            plain = zstandard.ZstdDecompressor().decompress(small, max_output_size=size)
        elif method == _PLAIN:
            plain = small
        else:
            raise query_error(
                ErrorCode.CANNOT_DECOMPRESS,
                f"blocks packed by method {method:#x} are not known, only LZ4 and Zstandard",
            )
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError) as error:
        raise query_error(ErrorCode.CANNOT_DECOMPRESS, f"a compressed block is damaged: {error}") from None
    if len(plain) != size:
        raise query_error(ErrorCode.CANNOT_DECOMPRESS, f"a compressed block has {len(plain)} bytes and says {size}")
    return bytes(plain)
