"""What a task has staged: consecutive RecordBatches of some partitions, in an object or, if small, inline.

    {cluster id}/spark/staged/{hour}/{token}     the batches of a piece, or the list of a plan's pieces; `hour` counts from 1970

The one rule: a piece is complete before its key leaves the task, and never changes. Its contents are listed beside it, so that
sequences are assigned without reading a record.
"""

from typing import Final

import msgspec

from holdfast.client.producer import TopicRef

STAGED_PREFIX: Final = "spark/staged/"
HOUR_MS: Final = 3_600_000


class PieceContent(msgspec.Struct, frozen=True, array_like=True):
    """The batches of one partition in a piece: `target` is an index into the list's targets; sizes in bytes, counts in records."""

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
    """Pieces in the order in which they are published, and the topics they refer to."""

    targets: list[TopicRef]
    pieces: list[StagedPiece]

    @property
    def records(self) -> int:
        """How many records there are in all."""
        return sum(sum(content.counts) for piece in self.pieces for content in piece.contents)

    @property
    def keys(self) -> list[str]:
        """The objects that hold the pieces."""
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
    indexes: dict[TopicRef, int] = {}
    pieces = []
    for each in lists:
        new_indexes = [indexes.setdefault(target, len(indexes)) for target in each.targets]
        for piece in each.pieces:
            contents = [msgspec.structs.replace(found, target=new_indexes[found.target]) for found in piece.contents]
            pieces.append(msgspec.structs.replace(piece, contents=contents))
    return StagedPieceList(list(indexes), pieces)


def hour_of(now_ms: int) -> int:
    """The hour of a staged key made now."""
    return now_ms // HOUR_MS


def staged_key(hour: int, token: str, *, prefix: str) -> str:
    """The key of a piece, or of a list of pieces. `prefix` is that of the objects' owner."""
    return f"{prefix}{STAGED_PREFIX}{hour:09d}/{token}"


def hour_in(key: str) -> int:
    """The hour of a staged key."""
    return int(key.partition(STAGED_PREFIX)[2].partition("/")[0])
