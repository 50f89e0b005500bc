"""The batches of a plan with their sequence numbers: the same in every execution.

The one rule: numbers follow from the plan alone. A partition's batches are numbered from its first sequence on, in the order of the
pieces; the bytes of a batch, its checksum included, are then the same in every execution.
"""

from collections.abc import Iterator

from holdfast.client.producer import SEQUENCE_MODULUS, SequencedBatch, TargetPartition, stamp_producer
from holdfast.spark.sink.pieces import PieceContent


class SequenceAssigner:
    """Assigns the sequences of one plan: of each partition, its parts of the pieces in their order."""

    def __init__(self, *, producer_id: int, producer_epoch: int, sequences: dict[str, dict[int, int]]) -> None:
        self._producer = (producer_id, producer_epoch)
        self._sequences = sequences
        self._ordinals: dict[TargetPartition, int] = {}

    def assign(self, target: TargetPartition, content: PieceContent, data: bytes) -> Iterator[SequencedBatch]:
        """The batches of a partition in a piece. `data` is their staged bytes."""
        first = self._sequences.get(target.topic.id, {}).get(target.partition, 0)
        at = 0
        for size, count in zip(content.sizes, content.counts, strict=True):
            ordinal = self._ordinals.get(target, 0)
            sequence = (first + ordinal) % SEQUENCE_MODULUS
            yield SequencedBatch(
                target, ordinal, count, stamp_producer(bytearray(data[at : at + size]), self._producer, sequence)
            )
            self._ordinals[target] = ordinal + count
            at += size
