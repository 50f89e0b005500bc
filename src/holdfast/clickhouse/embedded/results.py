"""An answer: its pieces, and what is known about it when the first of them is there.

chDB streams an answer as blocks, each written as if it were a whole of its own. Formats whose wholes can be laid end to end are
streamed; those with a head per whole have the later heads taken off; all others are answered in one piece, which has a limit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_SCHEMA_PREFIX: Final = 8


@dataclass(slots=True)
class QueryResult:
    """What a statement gives. `whole`: it is in memory, and its figures are final."""

    pieces: Iterator[bytes]
    format: str = "TabSeparated"
    whole: bytes | None = None
    statistics: dict[str, int] = field(default_factory=dict)


def concatenated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks that need nothing between them."""
    return pieces


def merged_arrow_streams(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Many Arrow streams of one schema as one: the schema once, the end once."""
    first, ended = True, b""
    for piece in pieces:
        begins = 0 if first else _SCHEMA_PREFIX + int.from_bytes(piece[4:8], "little")
        first = False
        ended = _END_OF_STREAM if piece.endswith(_END_OF_STREAM) else b""
        yield piece[begins : len(piece) - len(ended)]
    if ended:
        yield ended


def merged_row_binary(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Rows in binary under a head of names and types: the head once."""
    head: int | None = None
    for piece in pieces:
        yield piece[head or 0 :]
        if head is None:
            head = _header_length(piece)


def _header_length(piece: bytes) -> int:
    columns, at = _read_varint(piece, 0)
    for _ in range(2 * columns):
        length, at = _read_varint(piece, at)
        at += length
    return at


def _read_varint(piece: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = piece[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


_Merge = Callable[[Iterator[bytes]], Iterator[bytes]]
_ROW_FORMATS: Final = (
    "Native",
    "RowBinary",
    "JSONEachRow",
    "JSONLines",
    "NDJSON",
    "JSONCompactEachRow",
    "JSONStringsEachRow",
)
_TEXT_FORMATS: Final = ("TabSeparated", "TSV", "TabSeparatedRaw", "TSVRaw", "CSV", "LineAsString")
STREAMABLE_FORMATS: Final[dict[str, _Merge]] = {
    **dict.fromkeys((*_ROW_FORMATS, *_TEXT_FORMATS), concatenated),
    "ArrowStream": merged_arrow_streams,
    "RowBinaryWithNamesAndTypes": merged_row_binary,
}

SELF_DESCRIBING_FORMATS: Final = frozenset(
    ("Native", "ArrowStream", "RowBinaryWithNamesAndTypes")
)  # say their columns even without a row

_JSON: Final = "application/json; charset=UTF-8"
_CONTENT_TYPES: Final = (
    ("JSONEachRow", "application/x-ndjson; charset=UTF-8"),
    ("JSON", _JSON),
    ("CSV", "text/csv; charset=UTF-8; header=absent"),
    ("TabSeparated", "text/tab-separated-values; charset=UTF-8"),
    ("TSV", "text/tab-separated-values; charset=UTF-8"),
    ("XML", "application/xml; charset=UTF-8"),
    ("Arrow", "application/octet-stream"),
    ("Parquet", "application/octet-stream"),
    ("Native", "application/octet-stream"),
    ("RowBinary", "application/octet-stream"),
)


def content_type(format_name: str) -> str:
    """What HTTP calls a format."""
    if format_name.startswith("CSVWithNames"):
        return "text/csv; charset=UTF-8; header=present"
    return next((kind for start, kind in _CONTENT_TYPES if format_name.startswith(start)), "text/plain; charset=UTF-8")
