"""How bodies are packed on the way in and out: HTTP's encodings. ClickHouse's own blocks are in `blocks`.

Everything is done piece by piece, so that neither side's whole body is ever held.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import lz4.frame
import zstandard

from holdfast.clickhouse.embedded.compressed_blocks import compress_blocks
from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.error_codes import ErrorCode

CHUNK_BYTES: Final = 1 << 20

CLICKHOUSE_BLOCKS: Final = "ClickHouse's blocks"
ENCODINGS: Final = ("zstd", "lz4", "gzip", "deflate")


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Lz4Compressor:
    """LZ4 frames in the shape of the other compressors."""

    def __init__(self) -> None:
        self._frame = lz4.frame.LZ4FrameCompressor()
        self._begun = False

    def compress(self, data: bytes) -> bytes:
        """Pack a piece."""
        head = b"" if self._begun else bytes(self._frame.begin())
        self._begun = True
        return head + bytes(self._frame.compress(data))

    def flush(self) -> bytes:
        """The end of the frame."""
        head = b"" if self._begun else bytes(self._frame.begin())
        return head + bytes(self._frame.flush())


_COMPRESSORS: Final[dict[str, Callable[[], _Compressor]]] = {
    "gzip": lambda: zlib.compressobj(1, zlib.DEFLATED, 31),
    "deflate": lambda: zlib.compressobj(1),
    "zstd": lambda: zstandard.ZstdCompressor(level=1).compressobj(),
    "lz4": _Lz4Compressor,
}


def negotiated_encoding(accepted: str) -> str:
    """The encoding an answer gets for an `Accept-Encoding`; empty: none."""
    asked = {}
    for part in accepted.lower().split(","):
        name, _, quality = part.strip().partition(";")
        asked[name.strip()] = quality.replace(" ", "") not in ("q=0", "q=0.0")
    return next((name for name in ENCODINGS if asked.get(name)), "")


def compressed_body(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """An answer's pieces, packed."""
    if encoding in ("", CLICKHOUSE_BLOCKS):
        yield from compress_blocks(pieces) if encoding else pieces
        return
    packer = _COMPRESSORS[encoding]()
    for piece in pieces:
        if small := packer.compress(piece):
            yield small
    yield packer.flush()


def decompressed_body(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """A request's pieces, as they were before they were packed. What is damaged or cut off is refused."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return pieces
    unpack = _DECOMPRESSORS.get(encoding)
    if unpack is None:
        raise query_error(
            ErrorCode.CANNOT_DECOMPRESS, f"Unknown compression method {encoding}: allowed are {', '.join(ENCODINGS)}"
        )
    return _with_query_errors(unpack(pieces), encoding)


def _with_query_errors(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    try:
        yield from pieces
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        if isinstance(error, QueryError):
            raise
        raise query_error(ErrorCode.CANNOT_DECOMPRESS, f"the body is not {encoding}: {error}") from None


def _inflate_with(window_bits: int) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    def inflate(pieces: Iterator[bytes]) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(window_bits)
        for piece in pieces:
            while piece:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(window_bits)  # another member follows
                yield unpacker.decompress(piece, CHUNK_BYTES)
                piece = unpacker.unconsumed_tail or unpacker.unused_data
        if not unpacker.eof:
            raise EOFError("it is cut off")

    return inflate


def _decompress_zstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    for piece in pieces:
        while piece:
            if unpacker.eof:
                unpacker = zstandard.ZstdDecompressor().decompressobj()
            yield unpacker.decompress(piece)
            piece = unpacker.unused_data
    if not unpacker.eof:
        raise EOFError("it is cut off")


def _decompress_lz4(pieces: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    for piece in pieces:
        more: bytes | None = piece
        while more or (not unpacker.eof and not unpacker.needs_input):
            if unpacker.eof:
                unpacker = lz4.frame.LZ4FrameDecompressor()
            yield unpacker.decompress(more or b"", CHUNK_BYTES)
            more = unpacker.unused_data if unpacker.eof else b""
    if not unpacker.eof:
        raise EOFError("it is cut off")


_DECOMPRESSORS: Final[dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]]] = {
    "gzip": _inflate_with(31),
    "x-gzip": _inflate_with(31),
    "deflate": _inflate_with(47),
    "zstd": _decompress_zstd,
    "lz4": _decompress_lz4,
}
