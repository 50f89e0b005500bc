"""Results of statements, and the formats that can be streamed.

chDB streams a result as blocks, each a complete document of its format. Formats whose documents can be concatenated are streamed;
those with a header have the later headers removed; all others are sent as one document, which has a size limit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.vocabulary.varint import read_uvarint

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_SCHEMA_PREFIX: Final = 8


@dataclass(slots=True)
class QueryResult:
    """The result of a statement. `body`: all of it is in memory, and its statistics are final."""

    pieces: Iterator[bytes]
    format: str = "TabSeparated"
    body: bytes | None = None
    statistics: dict[str, int] = field(default_factory=dict)


def concatenated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks that can be concatenated."""
    return pieces


def merged_arrow_streams(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Arrow streams of one schema as one stream: one schema, one end marker."""
    first, ended = True, b""
    for piece in pieces:
        begins = 0 if first else _SCHEMA_PREFIX + int.from_bytes(piece[4:8], "little")
        first = False
        ended = _END_OF_STREAM if piece.endswith(_END_OF_STREAM) else b""
        yield piece[begins : len(piece) - len(ended)]
    if ended:
        yield ended


def merged_row_binary(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """RowBinaryWithNamesAndTypes with one header."""
    header: int | None = None
    for piece in pieces:
        yield piece[header or 0 :]
        if header is None:
            header = _header_length(piece)


def _header_length(piece: bytes) -> int:
    columns, at = read_uvarint(piece, 0, len(piece))
    for _ in range(2 * columns):
        length, at = read_uvarint(piece, at, len(piece))
        at += length
    return at


_Merge = Callable[[Iterator[bytes]], Iterator[bytes]]
_ROW_FORMATS: Final = (
    *("Native", "RowBinary", "JSONEachRow", "JSONLines", "NDJSON", "JSONCompactEachRow", "JSONStringsEachRow"),
)
_TEXT_FORMATS: Final = ("TabSeparated", "TSV", "TabSeparatedRaw", "TSVRaw", "CSV", "LineAsString")
STREAMABLE_FORMATS: Final[dict[str, _Merge]] = {
    **dict.fromkeys((*_ROW_FORMATS, *_TEXT_FORMATS), concatenated),
    "ArrowStream": merged_arrow_streams,
    "RowBinaryWithNamesAndTypes": merged_row_binary,
}

# Formats with column names even without a row.
SELF_DESCRIBING_FORMATS: Final = frozenset(("Native", "ArrowStream", "RowBinaryWithNamesAndTypes"))

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
    """The media type of a format."""
    if format_name.startswith("CSVWithNames"):
        return "text/csv; charset=UTF-8; header=present"
    return next((kind for start, kind in _CONTENT_TYPES if format_name.startswith(start)), "text/plain; charset=UTF-8")
