"""A plan as batches per partition, numbered: the same for whoever carries it out.

The one rule: numbers follow from the plan alone. A lane's batches get the sequences from its first on, in the order of the pieces;
the bytes of a batch, its checksum included, are then the same in every execution.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from holdfast.log.batches.header import CRC_AT, checksum
from holdfast.spark.sink.pieces import StagedPiece, StagedPieceList, TopicRef
from holdfast.spark.sink.query_state import SEQUENCE_MODULUS
from holdfast.vocabulary.errors import CorruptError

_PRODUCER_FIELDS: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_UINT32: Final = Struct(">I")


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """One partition of one topic."""

    target: TopicRef
    partition: int


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """A batch ready to be sent; `ordinal` counts the lane's records before it, within the plan."""

    lane: TargetPartition
    ordinal: int
    count: int
    data: bytes


class SequenceAssigner:
    """Gives out the numbers of one plan, piece by piece, in their order."""

    def __init__(self, *, producer_id: int, producer_epoch: int, sequences: dict[str, dict[int, int]]) -> None:
        self._producer = (producer_id, producer_epoch)
        self._sequences = sequences
        self._ordinals: dict[TargetPartition, int] = {}

    def number(self, listed: StagedPieceList, piece: StagedPiece, body: bytes) -> Iterator[SequencedBatch]:
        """The batches of a piece. `body` is what was staged for it."""
        if len(body) != sum(sum(content.sizes) for content in piece.contents):
            raise CorruptError(f"staged piece {piece.key or 'in the plan'}", f"{len(body)} bytes")
        at = 0
        for content in piece.contents:
            lane = TargetPartition(listed.targets[content.target], content.partition)
            first = self._sequences.get(lane.target.id, {}).get(lane.partition, 0)
            for size, count in zip(content.sizes, content.counts, strict=True):
                ordinal = self._ordinals.get(lane, 0)
                sequence = (first + ordinal) % SEQUENCE_MODULUS
                yield SequencedBatch(lane, ordinal, count, self._stamped(body[at : at + size], sequence))
                self._ordinals[lane] = ordinal + count
                at += size

    def _stamped(self, batch: bytes, sequence: int) -> bytes:
        stamped = bytearray(batch)
        _PRODUCER_FIELDS.pack_into(stamped, _PRODUCER_AT, *self._producer, sequence)
        _UINT32.pack_into(stamped, CRC_AT, checksum(stamped))
        return bytes(stamped)
