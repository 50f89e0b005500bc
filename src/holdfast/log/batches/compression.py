"""Kafka's compression codecs, with decompression that stops at a limit.

The one rule: decompression never produces more than `bytes_max`, and takes exactly one complete stream: a bomb, a cut
stream and bytes after the stream are all refused. Each call makes its own codec objects, so any thread may call; the
codecs release the GIL. Input is any buffer.
"""

import zlib
from struct import Struct
from typing import Final

import cramjam
import lz4.frame
import zstandard

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB

Buffer = bytes | bytearray | memoryview

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")  # a codec's place is its number on the wire

_GZIP_WBITS: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_XERIAL_BLOCK_BYTES: Final = 32 * KIB  # what Java's clients write
_INT32: Final = Struct(">i")


class DecompressError(Exception):
    """The stream is broken (`given` bytes of it were there), or is larger than allowed (`given` is the limit)."""

    def __init__(self, reason: str, given: int, *, too_large: bool = False) -> None:
        super().__init__(reason, given)
        self.reason, self.given, self.too_large = reason, given, too_large


def codec_number(name: str) -> int:
    """The number of a codec on the wire."""
    if name not in CODECS:
        raise InvalidError("compression", name, "one of " + ", ".join(CODECS))
    return CODECS.index(name)


def compress(codec: int, data: Buffer) -> bytes:
    """`data` as one stream of the codec with that number, at the codec's default level."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            return zlib.compress(data, wbits=_GZIP_WBITS)
        case 2:
            return _compress_snappy(memoryview(data))
        case 3:
            # Independent blocks of 64 KiB without a content size: what Kafka's own clients write and all can read.
            framed: bytes = lz4.frame.compress(
                data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB, store_size=False
            )
            return framed
        case 4:
            return zstandard.ZstdCompressor().compress(data)
        case _:
            raise InvalidError("compression codec", codec, f"0 to {len(CODECS) - 1}")


def decompress(codec: int, data: Buffer, *, bytes_max: int) -> Buffer:
    """What was compressed, at most `bytes_max` of it; otherwise an `DecompressError`."""
    match codec:
        case 0:
            if len(data) > bytes_max:
                raise _too_large(bytes_max)
            return data
        case 1:
            return _inflate_gzip(data, bytes_max)
        case 2:
            return _inflate_snappy(memoryview(data), bytes_max)
        case 3:
            return _inflate_lz4(data, bytes_max)
        case 4:
            return _inflate_zstd(data, bytes_max)
        case _:
            raise InvalidError("compression codec", codec, f"0 to {len(CODECS) - 1}")


def _too_large(bytes_max: int) -> DecompressError:
    return DecompressError(f"more than {bytes_max} bytes after decompression", bytes_max, too_large=True)


def _inflate_gzip(data: Buffer, bytes_max: int) -> bytes:
    stream = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        plain = stream.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise DecompressError(f"gzip: {error}", len(data)) from None
    if len(plain) > bytes_max:
        raise _too_large(bytes_max)
    if not stream.eof or stream.unused_data:
        raise DecompressError("gzip: not exactly one complete stream", len(data))
    return plain


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _inflate_snappy(data: memoryview, bytes_max: int) -> bytes:
    """Java's clients frame Snappy in blocks (xerial); librdkafka sends one raw block."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _inflate_snappy_block(data, bytes_max, 0)
    parts: list[bytes] = []
    total, at = 0, len(_XERIAL_HEADER)
    if len(data) < at:
        raise DecompressError("snappy: header cut", len(data))
    while at < len(data):
        if len(data) - at < _INT32.size:
            raise DecompressError("snappy: block length cut", len(data))
        (length,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        if not 0 < length <= len(data) - at:
            raise DecompressError("snappy: block cut", len(data))
        parts.append(_inflate_snappy_block(data[at : at + length], bytes_max, total))
        total += len(parts[-1])
        at += length
    return b"".join(parts)


def _inflate_snappy_block(data: memoryview, bytes_max: int, before: int) -> bytes:
    try:
        # The announced length is what the codec allocates: check it first.
        if before + cramjam.snappy.decompress_raw_len(data) > bytes_max:
            raise _too_large(bytes_max)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise DecompressError(f"snappy: {error}", len(data)) from None


def _inflate_lz4(data: Buffer, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    stream = lz4.frame.LZ4FrameDecompressor()
    fed: Buffer = data
    # The codec allocates what it is asked for, so it is asked for more only as more comes.
    step = max(64 * KIB, 4 * len(data))
    try:
        while not stream.eof:
            part = stream.decompress(fed, max_length=min(step, bytes_max + 1 - total))
            fed = b""
            total += len(part)
            if total > bytes_max:
                raise _too_large(bytes_max)
            if not part and not stream.eof:
                raise DecompressError("lz4: stream cut", len(data))
            parts.append(part)
    except RuntimeError as error:
        raise DecompressError(f"lz4: {error}", len(data)) from None
    if stream.unused_data:
        raise DecompressError("lz4: bytes after the stream", len(data))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflate_zstd(data: Buffer, bytes_max: int) -> bytes:
    try:
        announced = zstandard.get_frame_parameters(data).content_size
    except zstandard.ZstdError as error:
        raise DecompressError(f"zstd: {error}", len(data)) from None
    known = announced != zstandard.CONTENTSIZE_UNKNOWN
    if known and announced > bytes_max:
        raise _too_large(bytes_max)
    # Without an announced size the codec allocates all it may fill: guess, and grow when the guess was too small.
    room = min(bytes_max, max(64 * KIB, 16 * len(data)))
    window_bytes_max = max(8 * MIB, 1 << (bytes_max - 1).bit_length())
    while True:
        codec = zstandard.ZstdDecompressor(max_window_size=window_bytes_max)
        try:
            return codec.decompress(data, max_output_size=room, allow_extra_data=False)
        except zstandard.ZstdError as error:
            if known or room == bytes_max:
                if not known and _zstd_exceeds(data, bytes_max, window_bytes_max):
                    raise _too_large(bytes_max) from None
                raise DecompressError(f"zstd: {error}", len(data)) from None
            room = min(bytes_max, room * 8)


def _zstd_exceeds(data: Buffer, bytes_max: int, window_bytes_max: int) -> bool:
    """Whether there is more than `bytes_max` in a stream that announces no size: the codec's error does not tell."""
    left = bytes_max
    try:
        with zstandard.ZstdDecompressor(max_window_size=window_bytes_max).stream_reader(data) as reader:
            while left >= 0 and (part := reader.read(min(MIB, left + 1))):
                left -= len(part)
    except zstandard.ZstdError:
        return False
    return left < 0
