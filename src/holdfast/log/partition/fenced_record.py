"""The partition's record in the store: written under the lease, and never by guess.

The one rule (docs/safety.md, rule 10): after a change whose answer was lost, nothing else is written before `resolve` has found its
outcome. Under the lease nobody else writes the record, so a record that differs from the last one written is corruption, not a
race. With one exception: that of a deleted topic is removed, whoever leads it; whoever finds it gone has lost the partition.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.contracts.store import AtVersion, Committed, Conflict, Entry, Operation, Put, Requirement, Store
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.keys import state_key, topic_id_key
from holdfast.log.metadata import PartitionRecord, SegmentRecord
from holdfast.log.model import PartitionId
from holdfast.log.partition.cancellation import run_to_completion
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, FencedError, HoldfastError, OutcomeUnknownError
from holdfast.vocabulary.random import Random


@dataclass(frozen=True, slots=True)
class _UnresolvedChange:
    """A change that may have happened: the record it wrote, and the segments it named, if any."""

    commit_id: str
    record: PartitionRecord
    segments: tuple[SegmentRecord, ...]


class FencedRecord:
    """The record of one partition as the store holds it. Every change holds `lock`."""

    __slots__ = (
        "_clock",
        "_doubt",
        "_random",
        "_store",
        "ceiling",
        "key",
        "lease",
        "lock",
        "partition_id",
        "record",
        "version",
    )

    def __init__(
        self,
        partition_id: PartitionId,
        lease: Lease,
        record: PartitionRecord,
        version: int,
        *,
        store: Store,
        clock: Clock,
        random: Random,
    ) -> None:
        self.partition_id, self.lease, self.record, self.version = partition_id, lease, record, version
        self.key = state_key(partition_id.topic_id, partition_id.number)
        self.lock = asyncio.Lock()
        self._store, self._clock, self._random = store, clock, random
        self._doubt: _UnresolvedChange | None = None
        # Below this, offsets are reserved whatever became of a change in doubt. Read by every append.
        self.ceiling = record.reserved

    @property
    def in_doubt(self) -> bool:
        """Whether the answer to a change was lost, and it is not resolved yet."""
        return self._doubt is not None

    def require(self) -> tuple[Requirement, ...]:
        """What must hold for a change of the record: the lease is ours, the record as we know it."""
        return self.lease.fence(), AtVersion(self.key, self.version)

    def put(self, record: PartitionRecord) -> Put:
        """The operation that writes `record`."""
        return Put(self.key, msgspec.json.encode(record))

    def applied(self, record: PartitionRecord, version: int) -> None:
        """The store now holds `record` as of commit `version`."""
        self.record, self.version, self.ceiling = record, version, record.reserved

    def mark_unresolved(
        self, lost: OutcomeUnknownError, record: PartitionRecord, segments: tuple[SegmentRecord, ...] = ()
    ) -> None:
        """The answer to a change was lost for good."""
        self._doubt = _UnresolvedChange(lost.commit_id, record, segments)
        self.ceiling = min(self.record.reserved, record.reserved)

    async def resolve(self) -> tuple[SegmentRecord, ...]:
        """Resolve an unresolved change; returns the segments that were published after all."""
        if self._doubt is None:
            return ()
        doubt = self._doubt
        outcome = await self._store.resolve(doubt.commit_id)
        self._doubt = None
        if not isinstance(outcome, Committed):
            self.ceiling = self.record.reserved
            return ()
        self.applied(doubt.record, outcome.version)
        return doubt.segments

    async def change(
        self, record: PartitionRecord, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> None:
        """Write the record, fenced, together with what belongs to it. `FencedError`: the partition is lost.

        A cancellation waits for the answer: an unrecorded change would make the next one look like another writer's.
        """
        await run_to_completion(self._change(record, require, apply))

    async def _change(
        self, record: PartitionRecord, require: Sequence[Requirement], apply: Sequence[Operation]
    ) -> None:
        try:
            outcome = await commit_fenced(
                self._store,
                self.lease,
                clock=self._clock,
                random=self._random,
                require=(AtVersion(self.key, self.version), *require),
                apply=(self.put(record), *apply),
            )
        except OutcomeUnknownError as lost:
            self.mark_unresolved(lost, record)
            raise
        if isinstance(outcome, Conflict):
            present = outcome.found.get(self.key)
            if present is not None and present.version == self.version:
                raise CorruptError(
                    f"partition {self.partition_id}", f"what belongs to its record was changed: {outcome.found}"
                )
            raise await self.changed_error(present)
        self.applied(record, outcome.version)

    async def changed_error(self, present: Entry | None) -> HoldfastError:
        """Why the record is not as it was last written, though the lease is ours: its topic was deleted, or it is corrupt."""
        if present is None and await self._store.get(topic_id_key(self.partition_id.topic_id)) is None:
            return FencedError(self.lease.resource, self.lease.epoch, self.lease.epoch + 1)
        return CorruptError(f"partition {self.partition_id}", "its record was changed without the lease")
