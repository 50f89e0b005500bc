"""The batches of one partition, as its log says: prepared and not resolved, and those it coordinates and may not forget. Pure.

The one rule: whoever prepared asks the store. A batch is committed if its key is there; it is aborted if the key is not there
although an epoch that the decision would have required has passed; otherwise it is undecided, and only its coordinator may end
it.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto

from holdfast.heap.batch.model import BatchRecord, Forgotten, Prepared, Resolved


class BatchOutcome(Enum):
    """What became of a batch."""

    COMMITTED = auto()
    ABORTED = auto()
    UNDECIDED = auto()


def outcome_of(prepared: Prepared, *, own_epoch: int, coordinator_epoch: int, is_decided: bool) -> BatchOutcome:
    """What became of a prepared batch. The epochs were read before the key was looked for."""
    if is_decided:
        return BatchOutcome.COMMITTED
    if own_epoch != prepared.epoch or coordinator_epoch != prepared.coordinator_epoch:
        return BatchOutcome.ABORTED
    return BatchOutcome.UNDECIDED


class PartitionBatches:
    """What a replay of one partition's records leaves."""

    def __init__(self) -> None:
        self._prepared: dict[str, Prepared] = {}
        self._to_forget: dict[str, Prepared] = {}

    @property
    def prepared(self) -> Mapping[str, Prepared]:
        """Batches whose messages wait here."""
        return self._prepared

    @property
    def to_forget(self) -> Mapping[str, Prepared]:
        """Committed batches that this partition coordinates, and that others may not have resolved."""
        return self._to_forget

    def apply(self, record: BatchRecord) -> None:
        """Take a record."""
        match record:
            case Prepared():
                self._prepared[record.batch] = record
            case Resolved():
                prepared = self._prepared.pop(record.batch, None)
                if prepared is not None and record.committed and prepared.coordinator == prepared.partition:
                    self._to_forget[record.batch] = prepared
            case Forgotten():
                self._to_forget.pop(record.batch, None)

    def restore(self, prepared: Iterable[Prepared], to_forget: Iterable[Prepared]) -> None:
        """Take over what a snapshot has."""
        self._prepared.update((each.batch, each) for each in prepared)
        self._to_forget.update((each.batch, each) for each in to_forget)
