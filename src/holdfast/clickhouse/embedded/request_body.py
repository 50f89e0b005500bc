"""A request body, streamed from the socket. The one rule: a body that ends early is an error, never an end."""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Final

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.error_codes import ClickHouseErrorCode

CHUNK_BYTES: Final = 1 << 20
_LINE_MAX: Final = 1024


class BodyReader:
    """The raw body. `finished`: all of it was read, so the connection can be reused."""

    def __init__(self, source: BufferedIOBase, length: int | None, *, chunked: bool) -> None:
        self._source, self._left, self._chunked = source, length or 0, chunked
        self.finished = not chunked and not self._left

    def pieces(self) -> Iterator[bytes]:
        """The rest of it."""
        if self._chunked and not self.finished:
            yield from self._chunks()
        else:
            yield from self._plain()
        self.finished = True

    def _plain(self) -> Iterator[bytes]:
        while self._left:
            piece = self._source.read(min(self._left, CHUNK_BYTES))
            if not piece:
                raise _truncated_body()
            self._left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while self._left or (size := self._chunk_size()):
            if not self._left:
                self._left = size
            yield from self._plain()
            if self._source.readline(_LINE_MAX) not in (b"\r\n", b"\n"):
                raise _truncated_body()
        while line := self._source.readline(64 * _LINE_MAX):
            if line in (b"\r\n", b"\n"):
                return
        raise _truncated_body()

    def _chunk_size(self) -> int:
        line = self._source.readline(_LINE_MAX)
        try:
            size = int(line.partition(b";")[0].strip(), 16)
        except ValueError:
            raise _truncated_body() from None
        if size < 0 or not line.endswith(b"\n"):
            raise _truncated_body()
        return size


def _truncated_body() -> Exception:
    return query_error(ClickHouseErrorCode.INCORRECT_DATA, "the body is truncated")


def limited(pieces: Iterator[bytes], bytes_max: int) -> Iterator[bytes]:
    """The pieces; an error once they exceed `bytes_max` together."""
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > bytes_max:
            raise query_error(ClickHouseErrorCode.TOO_MANY_BYTES, f"the body exceeds the limit of {bytes_max} bytes")
        yield piece
