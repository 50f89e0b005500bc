"""The batches of a plan with their sequence numbers: the same in every execution.

The one rule: numbers follow from the plan alone. A partition's batches are numbered from its first sequence on, in the order of the
pieces; the bytes of a batch, its checksum included, are then the same in every execution.
"""

from collections.abc import Iterator

from holdfast.client.producer import SEQUENCE_MODULUS, SequencedBatch, TargetPartition, stamp_producer
from holdfast.spark.sink.pieces import StagedPiece, StagedPieceList
from holdfast.vocabulary.errors import CorruptError


class SequenceAssigner:
    """Assigns the sequences of one plan, piece by piece, in their order."""

    def __init__(self, *, producer_id: int, producer_epoch: int, sequences: dict[str, dict[int, int]]) -> None:
        self._producer = (producer_id, producer_epoch)
        self._sequences = sequences
        self._ordinals: dict[TargetPartition, int] = {}

    def assign(self, pieces: StagedPieceList, piece: StagedPiece, body: bytes) -> Iterator[SequencedBatch]:
        """The batches of a piece. `body` is its staged bytes."""
        if len(body) != sum(sum(content.sizes) for content in piece.contents):
            raise CorruptError(f"staged piece {piece.key or 'in the plan'}", f"its size is {len(body)} bytes")
        at = 0
        for content in piece.contents:
            target = TargetPartition(pieces.targets[content.target], content.partition)
            first = self._sequences.get(target.topic.id, {}).get(target.partition, 0)
            for size, count in zip(content.sizes, content.counts, strict=True):
                ordinal = self._ordinals.get(target, 0)
                sequence = (first + ordinal) % SEQUENCE_MODULUS
                yield SequencedBatch(
                    target, ordinal, count, stamp_producer(bytearray(body[at : at + size]), self._producer, sequence)
                )
                self._ordinals[target] = ordinal + count
                at += size
