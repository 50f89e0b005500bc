"""Replacing a run of segments by others that cover the same offsets.

New segments were uploaded without the partition's record being held; a slow upload may have been taken for an orphan since. So they
are checked again under the lock: a deletion mark that comes later fails the commit.
"""

from collections.abc import Sequence

from holdfast.contracts.objects import Missing
from holdfast.log.maintenance.index_objects import entries_of, index_record, write_index
from holdfast.log.maintenance.listing_change import ListingChange, commit_listing_change, exclusive_listing
from holdfast.log.maintenance.retention import Protect, nothing_protected
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import IndexRecord, SegmentRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UnavailableError


async def replace_segments(
    partition: LeadingPartition,
    old: Sequence[SegmentRecord],
    new: Sequence[SegmentRecord],
    context: MaintenanceContext,
    *,
    same_batches: bool = False,
    protect: Protect = nothing_protected,
) -> bool:
    """List `new` instead of `old`; False: a pipeline may read `old` again by now. `UnavailableError`: they are no longer listed
    next to each other; plan again.

    `same_batches`: they hold what `old` held, so what the tail still has of it stays readable.
    """
    async with exclusive_listing(partition, context):
        segments, record = partition.segments, partition.record
        before, after = dict.fromkeys(each.object for each in old), dict.fromkeys(each.object for each in new)
        fresh = tuple(key for key in after if key not in before)
        trash = {key: False for key in before if key not in after}
        for key in fresh:
            if isinstance(await context.objects.get(key, start=0, end=1), Missing):
                raise UnavailableError(f"object {key}", "it was swept before it could be listed")
        index = _index_over(segments.indexes, old[0])  # a fold may have moved them since they were read
        if index is None:
            recent = _replaced(partition, segments.recent, old, new)
            change = ListingChange(record=record, recent=recent, indexes=segments.indexes, fresh=fresh, trash=trash)
        else:
            entries = _replaced(partition, await entries_of(partition, index, context.objects), old, new)
            longer = index_record(partition, entries, context.random, prefix=context.owner.prefix)
            await write_index(longer, entries, context.objects)
            failpoints.reached("maintenance.index-uploaded")
            change = ListingChange(
                record=record,
                recent=segments.recent,
                indexes=[longer if each is index else each for each in segments.indexes],
                fresh=(*fresh, longer.object),
                trash={**trash, index.object: False},
            )
        protected = protect()
        if protected is not None and old[-1].end_offset > protected:
            return False
        await commit_listing_change(partition, change, context)
        if not same_batches:
            partition.evict_rewritten(old[-1].end_offset)
        return True


def _index_over(indexes: Sequence[IndexRecord], segment: SegmentRecord) -> IndexRecord | None:
    return next((each for each in indexes if each.base_offset <= segment.base_offset < each.end_offset), None)


def _replaced(
    partition: LeadingPartition,
    listed: Sequence[SegmentRecord],
    old: Sequence[SegmentRecord],
    new: Sequence[SegmentRecord],
) -> list[SegmentRecord]:
    at = next((at for at, each in enumerate(listed) if each == old[0]), -1)
    if at < 0 or list(listed[at : at + len(old)]) != list(old):
        raise UnavailableError(
            f"partition {partition.partition_id}", "segments changed while they were being rewritten"
        )
    return [*listed[:at], *new, *listed[at + len(old) :]]
