"""What a task has staged: RecordBatches of some partitions one behind the other, in an object or, if small, at hand.

    spark/staged/{hour}/{token}     the batches of a piece, or the list of a plan's pieces; `hour` counts from 1970

The one rule: a piece is complete before anybody is told of it, and never changes. Its list of contents travels beside it, so that a
plan can be numbered without reading a byte of the records.
"""

from typing import Final

import msgspec

STAGED_PREFIX: Final = "spark/staged/"
HOUR_MS: Final = 3_600_000


class TopicRef(msgspec.Struct, frozen=True, array_like=True):
    """A topic as it was when rows were placed."""

    name: str
    id: str


class PieceContent(msgspec.Struct, frozen=True, array_like=True):
    """The batches of one partition in a piece: `target` is a place in the list's topics; sizes in bytes, counts in records."""

    target: int
    partition: int
    sizes: list[int]
    counts: list[int]


class StagedPiece(msgspec.Struct, frozen=True, array_like=True):
    """Batches in the order of `contents`, under `key`; without a key they are `body`."""

    key: str
    body: bytes
    contents: list[PieceContent]


class StagedPieceList(msgspec.Struct, frozen=True, array_like=True):
    """Pieces in the order in which they are published, and the topics they speak of."""

    targets: list[TopicRef]
    pieces: list[StagedPiece]

    @property
    def records(self) -> int:
        """How many records there are in all."""
        return sum(sum(content.counts) for piece in self.pieces for content in piece.contents)

    @property
    def keys(self) -> list[str]:
        """The objects it is made of."""
        return [piece.key for piece in self.pieces if piece.key]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(StagedPieceList)


def pack(pieces: StagedPieceList) -> bytes:
    """The list as bytes."""
    return _encoder.encode(pieces)


def unpack(data: bytes) -> StagedPieceList:
    """The list that `pack` wrote."""
    return _decoder.decode(data)


def merge_piece_lists(lists: list[StagedPieceList]) -> StagedPieceList:
    """Several tasks' lists as one, in this order."""
    places: dict[TopicRef, int] = {}
    pieces = []
    for each in lists:
        moved = [places.setdefault(target, len(places)) for target in each.targets]
        for piece in each.pieces:
            contents = [msgspec.structs.replace(found, target=moved[found.target]) for found in piece.contents]
            pieces.append(msgspec.structs.replace(piece, contents=contents))
    return StagedPieceList(list(places), pieces)


def hour_of(now_ms: int) -> int:
    """The hour that keys of this moment carry."""
    return now_ms // HOUR_MS


def staged_key(hour: int, token: str) -> str:
    """Where a piece, or a list of pieces, is kept."""
    return f"{STAGED_PREFIX}{hour:09d}/{token}"


def hour_in(key: str) -> int:
    """The hour that a key carries."""
    return int(key.removeprefix(STAGED_PREFIX).partition("/")[0])
