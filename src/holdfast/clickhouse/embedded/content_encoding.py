"""HTTP content encodings of requests and responses. ClickHouse's own blocks are in `compressed_blocks`.

Bodies are streamed: none is ever held whole.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import lz4.frame
import zstandard

from holdfast.clickhouse.embedded.compressed_blocks import compress_blocks
from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.embedded.request_body import CHUNK_BYTES
from holdfast.clickhouse.error_codes import ClickHouseErrorCode

CLICKHOUSE_BLOCKS: Final = "ClickHouse's blocks"
ENCODINGS: Final = ("zstd", "lz4", "gzip", "deflate")


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Lz4Compressor:
    """LZ4 frames behind the interface of the other compressors."""

    def __init__(self) -> None:
        self._frame = lz4.frame.LZ4FrameCompressor()
        self._begun = False

    def compress(self, data: bytes) -> bytes:
        """Compress a piece."""
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
    """The encoding of the response to an `Accept-Encoding`; empty: none."""
    accepts = {}
    for part in accepted.lower().split(","):
        name, _, quality = part.strip().partition(";")
        accepts[name.strip()] = quality.replace(" ", "") not in ("q=0", "q=0.0")
    return next((name for name in ENCODINGS if accepts.get(name)), "")


def compressed_body(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """A response body, compressed."""
    if encoding in ("", CLICKHOUSE_BLOCKS):
        yield from compress_blocks(pieces) if encoding else pieces
        return
    compressor = _COMPRESSORS[encoding]()
    for piece in pieces:
        if compressed := compressor.compress(piece):
            yield compressed
    yield compressor.flush()


def decompressed_body(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """The uncompressed body of a request. One that is damaged or truncated is an error."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return pieces
    decompress = _DECOMPRESSORS.get(encoding)
    if decompress is None:
        raise query_error(
            ClickHouseErrorCode.CANNOT_DECOMPRESS,
            f"Unknown compression method {encoding}: must be one of {', '.join(ENCODINGS)}",
        )
    return _with_query_errors(decompress(pieces), encoding)


def _with_query_errors(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    try:
        yield from pieces
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        if isinstance(error, QueryError):
            raise
        raise query_error(ClickHouseErrorCode.CANNOT_DECOMPRESS, f"the body is not valid {encoding}: {error}") from None


def _inflate_with(window_bits: int) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    def inflate(pieces: Iterator[bytes]) -> Iterator[bytes]:
        decompressor = zlib.decompressobj(window_bits)
        for piece in pieces:
            while piece:
                if decompressor.eof:
                    decompressor = zlib.decompressobj(window_bits)  # another member follows
                yield decompressor.decompress(piece, CHUNK_BYTES)
                piece = decompressor.unconsumed_tail or decompressor.unused_data
        if not decompressor.eof:
            raise EOFError("truncated")

    return inflate


def _decompress_zstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    for piece in pieces:
        while piece:
            if decompressor.eof:
                decompressor = zstandard.ZstdDecompressor().decompressobj()
            yield decompressor.decompress(piece)
            piece = decompressor.unused_data
    if not decompressor.eof:
        raise EOFError("truncated")


def _decompress_lz4(pieces: Iterator[bytes]) -> Iterator[bytes]:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    for piece in pieces:
        more: bytes | None = piece
        while more or (not decompressor.eof and not decompressor.needs_input):
            if decompressor.eof:
                decompressor = lz4.frame.LZ4FrameDecompressor()
            yield decompressor.decompress(more or b"", CHUNK_BYTES)
            more = decompressor.unused_data if decompressor.eof else b""
    if not decompressor.eof:
        raise EOFError("truncated")


_DECOMPRESSORS: Final[dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]]] = {
    "gzip": _inflate_with(31),
    "x-gzip": _inflate_with(31),
    "deflate": _inflate_with(47),
    "zstd": _decompress_zstd,
    "lz4": _decompress_lz4,
}
