"""Folding: a partition keeps a bounded number of segment keys in the store, and lists older segments in index objects (SAFETY 14).

The list is uploaded first; one fenced commit then takes the folded keys out and puts the index in. A crash in between leaves an
object nobody names. An index grows by being written anew until it is full, then another one begins.
"""

from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.records import IndexRecord, SegmentRecord
from holdfast.log.upkeep.index_objects import entries_of, index_record, write_index
from holdfast.log.upkeep.relisting import OPERATIONS_MAX, Relisting, changing, relist
from holdfast.log.upkeep.settings import Kit


async def fold(partition: LeadingPartition, kit: Kit) -> int:
    """Fold the oldest keys until few enough are left; how many were folded.

    `FencedError`: the partition is lost. `UnavailableError`, `OutcomeUnknownError`: try again later.
    """
    folded = 0
    while len(partition.segments.recent) > kit.log.segment_keys_max:
        async with changing(partition, kit):
            count = foldable(len(partition.segments.recent), kit.log.segment_keys_max)
            if count:
                await _fold(partition, count, kit)
            folded += count
    return folded


def foldable(keys: int, keys_max: int) -> int:
    """How many keys to fold in one commit: down to half of what is allowed, so that it is not needed again at once."""
    return 0 if keys <= keys_max else min(keys - keys_max // 2, OPERATIONS_MAX // 2)


async def _fold(partition: LeadingPartition, count: int, kit: Kit) -> None:
    indexes, recent = list(partition.segments.indexes), partition.segments.recent
    start = partition.record.start
    entries = [each for each in recent[:count] if each.end_offset > start]
    # What lies below the start is not listed by being in an index, so it has to be unlinked here.
    trash = {each.object: False for each in recent[:count] if each.end_offset <= start}
    fresh: tuple[str, ...] = ()
    if entries:
        if indexes and fits(indexes[-1], entries, kit.log.index_entries_max):
            newest = indexes.pop()
            entries = [*await entries_of(partition, newest, kit.objects), *entries]
            trash[newest.object] = False
        index = index_record(partition, entries, kit.chance)
        await write_index(index, entries, kit.objects)
        kit.steps("index uploaded")
        indexes.append(index)
        fresh = (index.object,)
    record = partition.record
    await relist(
        partition, Relisting(record=record, recent=recent[count:], indexes=indexes, fresh=fresh, trash=trash), kit
    )


def fits(index: IndexRecord, entries: list[SegmentRecord], entries_max: int) -> bool:
    """Whether the index can take the entries as well."""
    return index.entries + len(entries) <= entries_max
