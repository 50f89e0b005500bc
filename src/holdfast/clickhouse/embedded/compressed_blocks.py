"""ClickHouse's native compression: blocks with a checksum, as `compress=1` and `decompress=1` use them.

16 bytes   CityHash128 of the rest of the block
 1 byte    method: 0x82 LZ4, 0x90 Zstandard, 0x02 none
 4 bytes   compressed size, with these nine bytes
 4 bytes   uncompressed size
"""

import struct
from collections.abc import Iterator
from typing import Final

import lz4.block
import zstandard

from holdfast.clickhouse.embedded.cityhash import city_hash_128
from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.error_codes import ClickHouseErrorCode

_HEADER: Final = struct.Struct("<BII")
_CHECKSUM_BYTES: Final = 16
_BLOCK_BYTES: Final = 1 << 20
_BLOCK_BYTES_MAX: Final = 1 << 28
_LZ4, _ZSTD, _PLAIN = 0x82, 0x90, 0x02


def compress_blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """A response body as LZ4 blocks."""
    for piece in pieces:
        for at in range(0, len(piece), _BLOCK_BYTES):
            plain = piece[at : at + _BLOCK_BYTES]
            packed = lz4.block.compress(plain, store_size=False)
            body = _HEADER.pack(_LZ4, len(packed) + _HEADER.size, len(plain)) + packed
            yield city_hash_128(body) + body


def decompress_blocks(pieces: Iterator[bytes], *, check: bool = True) -> Iterator[bytes]:
    """The uncompressed body of a request. A damaged or truncated block is an error."""
    buffered = bytearray()
    for piece in pieces:
        buffered += piece
        while (size := _first_block_size(buffered)) and len(buffered) >= size:
            yield _decompressed(bytes(buffered[:size]), check=check)
            del buffered[:size]
    if buffered:
        raise query_error(ClickHouseErrorCode.CANNOT_DECOMPRESS, "the body ends in the middle of a compressed block")


def _first_block_size(buffered: bytearray) -> int:
    """Bytes of the first block; 0 while its header is incomplete."""
    if len(buffered) < _CHECKSUM_BYTES + _HEADER.size:
        return 0
    _, size, plain = _HEADER.unpack_from(buffered, _CHECKSUM_BYTES)
    if not _HEADER.size <= size <= _BLOCK_BYTES_MAX or plain > _BLOCK_BYTES_MAX:
        raise query_error(
            ClickHouseErrorCode.CANNOT_DECOMPRESS,
            f"a compressed block of {size} bytes for {plain} exceeds the limit of {_BLOCK_BYTES_MAX}",
        )
    return _CHECKSUM_BYTES + int(size)


def _decompressed(block: bytes, *, check: bool) -> bytes:
    method, _, size = _HEADER.unpack_from(block, _CHECKSUM_BYTES)
    if check and city_hash_128(block[_CHECKSUM_BYTES:]) != block[:_CHECKSUM_BYTES]:
        raise query_error(ClickHouseErrorCode.CANNOT_DECOMPRESS, "the checksum of a compressed block does not match")
    packed = block[_CHECKSUM_BYTES + _HEADER.size :]
    try:
        if method == _LZ4:
            plain = lz4.block.decompress(packed, uncompressed_size=size)
        elif method == _ZSTD:
            plain = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
        elif method == _PLAIN:
            plain = packed
        else:
            raise query_error(
                ClickHouseErrorCode.CANNOT_DECOMPRESS,
                f"unknown compression method {method:#x}: only LZ4 and Zstandard are supported",
            )
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError) as error:
        raise query_error(ClickHouseErrorCode.CANNOT_DECOMPRESS, f"a compressed block is damaged: {error}") from None
    if len(plain) != size:
        raise query_error(
            ClickHouseErrorCode.CANNOT_DECOMPRESS, f"a compressed block has {len(plain)} bytes instead of {size}"
        )
    return bytes(plain)
