"""Roll-up: a partition keeps a bounded number of segment keys in the store, and lists older segments in index objects
(docs/safety.md, rule 14).

The list is uploaded first; one fenced commit then takes the folded keys out and puts the index in. A crash in between leaves an
orphan object. An index grows by being rewritten until it is full, then another one begins.
"""

from holdfast.log.maintenance.index_objects import entries_of, index_record, write_index
from holdfast.log.maintenance.listing_change import (
    OPERATIONS_MAX,
    ListingChange,
    commit_listing_change,
    exclusive_listing,
)
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import IndexRecord, SegmentRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.producer_snapshots import newest_snapshot_at
from holdfast.vocabulary import failpoints


async def roll_up_segment_keys(partition: LeadingPartition, context: MaintenanceContext) -> int:
    """Fold the oldest keys until few enough are left; how many were folded.

    `FencedError`: the partition is lost. `UnavailableError`, `OutcomeUnknownError`: try again later.
    """
    folded = 0
    while len(partition.segments.recent) > context.log.segment_keys_max:
        async with exclusive_listing(partition, context):
            recent = partition.segments.recent
            count = keys_to_roll_up(len(recent), context.log.segment_keys_max)
            # The newest segment needs the snapshot of producers in another one, which has to keep its key.
            count = min(count, newest_snapshot_at(recent) or 0)
            if not count:
                break
            await _roll_up(partition, count, context)
            folded += count
    return folded


def keys_to_roll_up(keys: int, keys_max: int) -> int:
    """How many keys to fold in one commit: down to half of what is allowed, so that it is not needed again at once."""
    return 0 if keys <= keys_max else min(keys - keys_max // 2, OPERATIONS_MAX // 2)


async def _roll_up(partition: LeadingPartition, count: int, context: MaintenanceContext) -> None:
    indexes, recent = list(partition.segments.indexes), partition.segments.recent
    start = partition.record.start
    entries = [each for each in recent[:count] if each.end_offset > start]
    # What lies below the start is not listed by being in an index, so it has to be unlinked here.
    trash = {each.object: False for each in recent[:count] if each.end_offset <= start}
    fresh: tuple[str, ...] = ()
    if entries:
        if indexes and fits(indexes[-1], entries, context.log.index_entries_max):
            newest = indexes.pop()
            entries = [*await entries_of(partition, newest, context.objects), *entries]
            trash[newest.object] = False
        index = index_record(partition, entries, context.random, prefix=context.owner.prefix)
        await write_index(index, entries, context.objects)
        failpoints.reached("maintenance.index-uploaded")
        indexes.append(index)
        fresh = (index.object,)
    record = partition.record
    await commit_listing_change(
        partition,
        ListingChange(record=record, recent=recent[count:], indexes=indexes, fresh=fresh, trash=trash),
        context,
    )


def fits(index: IndexRecord, entries: list[SegmentRecord], entries_max: int) -> bool:
    """Whether the index can take the entries as well."""
    return index.entries + len(entries) <= entries_max
