"""Changing which segments a partition lists: one fenced commit, applied to the partition in memory as well.

The one rule (docs/safety.md, rule 13): unlink first. The commit that takes an object from the list puts it into the trash, from
where it is deleted after a grace; and it requires that no object it adds to the list has been marked for deletion meanwhile.
Everything that shortens, folds or rewrites a log goes through here; publishing, which only adds, has its own commit.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Conflict, Delete, Operation, Put
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.lease import commit_fenced
from holdfast.log.keys import deletion_mark_key, index_entry_key, segment_entry_key
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.maintenance.trash import to_trash
from holdfast.log.metadata import IndexRecord, PartitionRecord, SegmentRecord
from holdfast.log.partition.cancellation import run_to_completion
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.segment_list import load_segments
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError

# What is left of a commit for keys of segments and trash, after fence, record and the marks of what is new.
OPERATIONS_MAX = StoreLimits().ops_max - 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingChange:
    """How a partition is listed from now on. `trash`: objects that are no longer; True: with all that they list."""

    record: PartitionRecord
    recent: list[SegmentRecord]
    indexes: list[IndexRecord]
    fresh: tuple[str, ...] = ()
    trash: Mapping[str, bool] = field(default_factory=dict)


@asynccontextmanager
async def exclusive_listing(partition: LeadingPartition, context: MaintenanceContext) -> AsyncIterator[None]:
    """Hold the partition's record for the body; what the store lists is known then, and only the body changes it."""
    async with partition.record_lock:
        await partition.resolve_record()
        segments = partition.segments
        if segments.stale:
            loaded = await load_segments(context.store, partition.partition_id.topic_id, partition.partition_id.number)
            segments.recent, segments.indexes, segments.stale = loaded.recent, loaded.indexes, False
        yield


async def commit_listing_change(
    partition: LeadingPartition, change: ListingChange, context: MaintenanceContext
) -> None:
    """Apply `change` in one commit. The caller is inside `changing`.

    `FencedError`: the partition is lost. `UnavailableError`: nothing was changed, plan again. `OutcomeUnknownError`: it may have
    been, and the next change resolves it. A cancellation waits for the answer first: an unrecorded change would make the next
    one look like another writer's.
    """
    failpoints.reached("maintenance.before-relisting")
    await run_to_completion(_commit(partition, change, context))
    failpoints.reached("maintenance.relisted")


async def _commit(partition: LeadingPartition, change: ListingChange, context: MaintenanceContext) -> None:
    fenced_record, segments = partition.fenced_record, partition.segments
    segments.stale = True
    try:
        outcome = await commit_fenced(
            context.store,
            partition.lease,
            clock=context.clock,
            random=context.random,
            require=(
                AtVersion(fenced_record.key, fenced_record.version),
                *(Absent(deletion_mark_key(each)) for each in change.fresh),
            ),
            apply=(fenced_record.put(change.record), *_difference(partition, change, context)),
        )
    except OutcomeUnknownError as lost:
        fenced_record.mark_unresolved(lost, change.record)
        raise
    except (UnavailableError, FencedError):
        segments.stale = False
        raise
    segments.stale = False
    if isinstance(outcome, Conflict):
        present = outcome.found.get(fenced_record.key)
        if present is None or present.version != fenced_record.version:
            raise await fenced_record.changed_error(present)
        raise UnavailableError(
            f"partition {partition.partition_id}",
            "a sweeper took a new object for an orphan; it has to be written again",
        )
    fenced_record.applied(change.record, outcome.version)
    segments.recent, segments.indexes = change.recent, change.indexes


def _difference(partition: LeadingPartition, change: ListingChange, context: MaintenanceContext) -> Iterable[Operation]:
    partition_id, due_ms = partition.partition_id, context.due_ms()
    before = {
        **{
            segment_entry_key(partition_id.topic_id, partition_id.number, each.base_offset): each
            for each in partition.segments.recent
        },
        **{
            index_entry_key(partition_id.topic_id, partition_id.number, each.base_offset): each
            for each in partition.segments.indexes
        },
    }
    after: dict[str, SegmentRecord | IndexRecord] = {
        **{
            segment_entry_key(partition_id.topic_id, partition_id.number, each.base_offset): each
            for each in change.recent
        },
        **{
            index_entry_key(partition_id.topic_id, partition_id.number, each.base_offset): each
            for each in change.indexes
        },
    }
    yield from (Delete(key) for key in before if key not in after)
    yield from (Put(key, msgspec.json.encode(each)) for key, each in after.items() if before.get(key) != each)
    yield from (to_trash(key, due_ms, contents=contents) for key, contents in change.trash.items())
