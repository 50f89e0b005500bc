"""Writing and reading the snapshots of a partition that is led here, for the service above the log that owns it.

Object first, list second: a death in between leaves an orphan, which the sweeper removes. The one rule: the list changes by a
commit that is fenced by the partition's lease, and that puts what it drops into the trash; so a leader that was replaced lists
nothing, and neither is an object listed that the sweeper is about to delete.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.contracts.objects import Buffer, Missing
from holdfast.contracts.store import Absent, AtVersion, Conflict, Put
from holdfast.kernel.lease import commit_fenced
from holdfast.log.keys import deletion_mark_key, snapshots_key
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.maintenance.trash import to_trash
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition_snapshots import SnapshotList, SnapshotRecord, read_snapshot_list, snapshot_object_key
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UnavailableError

KEPT: Final = 2  # if the newest is damaged, there is the one before


class OwnedSnapshots:
    """The snapshots of one leadership. `load` before anything else."""

    def __init__(self, led: LeadingPartition, context: MaintenanceContext) -> None:
        self._led, self._context = led, context
        self._key = snapshots_key(led.partition_id.topic_id, led.partition_id.number)
        self._version: int | None = None
        self.list = SnapshotList()

    async def load(self) -> SnapshotList:
        """The snapshots as the store lists them."""
        entry = await self._context.store.get(self._key)
        self._version = None if entry is None else entry.version
        self.list = SnapshotList() if entry is None else read_snapshot_list(entry.value)
        return self.list

    async def read(self, snapshot: SnapshotRecord) -> Buffer | Missing:
        """The bytes of a snapshot."""
        return await self._context.objects.get(snapshot.object)

    async def put(self, offset: int, body: Sequence[Buffer]) -> SnapshotRecord:
        """Write a snapshot as of `offset`, below which everything is durable; older ones than the last two go to the trash.

        `FencedError`: the partition is lost. `UnavailableError`: it may be an orphan now; take another one later.
        """
        which, context = self._led.partition_id, self._context
        key = snapshot_object_key(
            which.topic_id, which.number, offset, self._led.epoch, context.random.token(), prefix=context.owner.prefix
        )
        record = SnapshotRecord(
            object=key,
            offset=offset,
            epoch=self._led.epoch,
            size_bytes=sum(len(part) for part in body),
            taken_at_ms=context.clock.now_ms(),
        )
        await context.objects.put(key, body)
        failpoints.reached("heap.snapshot-uploaded")
        await self._list(record)
        failpoints.reached("heap.snapshot-listed")
        return record

    async def _list(self, record: SnapshotRecord) -> None:
        if record.offset <= self.list.newest_offset:
            raise UnavailableError(f"snapshot of {self._led.partition_id}", "there is a newer one")
        kept = SnapshotList((*self.list.snapshots[-(KEPT - 1) :], record))
        gone = [each for each in self.list.snapshots if each not in kept.snapshots]
        due_ms = self._context.due_ms()
        outcome = await commit_fenced(
            self._context.store,
            self._led.lease,
            clock=self._context.clock,
            random=self._context.random,
            require=(
                Absent(self._key) if self._version is None else AtVersion(self._key, self._version),
                Absent(deletion_mark_key(record.object)),
            ),
            apply=(
                Put(self._key, msgspec.json.encode(kept)),
                *(to_trash(each.object, due_ms) for each in gone),
            ),
        )
        if isinstance(outcome, Conflict):
            await self.load()
            raise UnavailableError(f"snapshot of {self._led.partition_id}", f"its list has changed: {outcome.found}")
        self._version, self.list = outcome.version, kept
