"""The coordinator of one batch: the leader of its lowest partition. Pure: it says what is next, its driver sends, appends and
commits.

The one rule: everybody prepared, then one commit that requires everybody's epoch, then the answer, then resolving. Until that
commit the coordinator may drop the batch at any time without a trace; afterwards the batch can only be completed, by whoever
leads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Delete, Operation, Put, Requirement
from holdfast.heap.batch.model import Decision, check_partitions, decision_key
from holdfast.kernel.keys import epoch_key


class BatchState(Enum):
    """How far a batch is."""

    PREPARING = auto()
    DECIDING = auto()  # the commit may be under way: its outcome is what the store says
    COMMITTED = auto()
    ABORTED = auto()
    DONE = auto()  # everybody has resolved it


@dataclass(frozen=True, slots=True)
class Promise:
    """A partition has prepared, under a lease won in commit `version`."""

    resource: str
    epoch: int
    version: int


class BatchCoordinator:
    """One batch in these partitions."""

    def __init__(self, topic_id: str, batch: str, partitions: Sequence[int]) -> None:
        check_partitions(len(partitions))
        self.batch, self.partitions = batch, tuple(sorted(partitions))
        self.state = BatchState.PREPARING
        self.key = decision_key(topic_id, self.partitions[0], batch)
        self._promises: dict[int, Promise] = {}
        self._resolved: set[int] = set()

    @classmethod
    def recovered(cls, topic_id: str, batch: str, partitions: Sequence[int]) -> "BatchCoordinator":
        """A batch that a former coordinator committed."""
        coordinator = cls(topic_id, batch, partitions)
        coordinator.state = BatchState.COMMITTED
        return coordinator

    @property
    def coordinator(self) -> int:
        """The partition whose leader coordinates."""
        return self.partitions[0]

    @property
    def promises(self) -> Mapping[int, Promise]:
        """Who has prepared."""
        return self._promises

    def prepared(self, partition: int, promise: Promise) -> bool:
        """A partition has prepared, durably; whether all have, and the batch is to be decided."""
        if self.state is not BatchState.PREPARING:
            return False
        self._promises[partition] = promise
        return len(self._promises) == len(self.partitions)

    def abort(self) -> bool:
        """Drop the batch: a partition refused, or did not answer. False: it may be decided already."""
        if self.state is BatchState.PREPARING:
            self.state = BatchState.ABORTED
        return self.state is BatchState.ABORTED

    def decision(self) -> tuple[Sequence[Requirement], Sequence[Operation]]:
        """The commit that decides. From here on the store knows best."""
        if self.state is not BatchState.PREPARING or len(self._promises) < len(self.partitions):
            raise RuntimeError("not everybody has prepared")
        self.state = BatchState.DECIDING
        return self._requirements(), (Put(self.key, msgspec.json.encode(Decision(self.partitions))),)

    def _requirements(self) -> Sequence[Requirement]:
        epochs = (AtVersion(epoch_key(each.resource), each.version) for each in self._promises.values())
        return (Absent(self.key), *epochs)

    def decided(self, *, committed: bool) -> None:
        """The commit's outcome. A conflict means that a partition has another leader: nobody can commit the batch any more."""
        self.state = BatchState.COMMITTED if committed else BatchState.ABORTED

    def unresolved(self) -> Sequence[int]:
        """The partitions that are to be told."""
        return [partition for partition in self.partitions if partition not in self._resolved]

    def resolved(self, partition: int) -> bool:
        """A partition has resolved the batch, durably; whether all have. A committed batch's key may go then, and not earlier."""
        self._resolved.add(partition)
        return not self.unresolved()

    def forget(self) -> Sequence[Operation]:
        """What removes the key of a batch that everybody has resolved."""
        if self.unresolved():
            raise RuntimeError("not everybody has resolved the batch")
        self.state = BatchState.DONE
        return (Delete(self.key),)
