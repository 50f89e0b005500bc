"""The batches of one partition, as its log says: prepared and not resolved, and those it coordinates and may not forget. Pure.

The one rule: whoever prepared asks the store. A batch is committed if its key is there; it is aborted if the key is not there
although an epoch that the decision would have required has passed; otherwise it is undecided, and only its coordinator may end
it.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from holdfast.heap.batch.model import Forgotten, Prepared, Resolved


class Outcome(Enum):
    """What became of a batch."""

    COMMITTED = auto()
    ABORTED = auto()
    UNDECIDED = auto()


def outcome_of(prepared: Prepared, *, own_epoch: int, coordinator_epoch: int, is_decided: bool) -> Outcome:
    """What became of a prepared batch. The epochs were read before the key was looked for."""
    if is_decided:
        return Outcome.COMMITTED
    if own_epoch != prepared.epoch or coordinator_epoch != prepared.coordinator_epoch:
        return Outcome.ABORTED
    return Outcome.UNDECIDED


class PartitionBatches:
    """What a replay of one partition's records leaves."""

    def __init__(self, partition: int) -> None:
        self.partition: Final = partition
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

    def apply(self, record: Prepared | Resolved | Forgotten) -> tuple[int, ...]:
        """Take a record; the offsets of messages that become ready by it, or are no more."""
        match record:
            case Prepared():
                self._prepared[record.batch] = record
                return ()
            case Resolved():
                prepared = self._prepared.pop(record.batch, None)
                if prepared is None:
                    return ()
                if record.committed and prepared.coordinator == self.partition:
                    self._to_forget[record.batch] = prepared
                return prepared.messages
            case Forgotten():
                self._to_forget.pop(record.batch, None)
                return ()
