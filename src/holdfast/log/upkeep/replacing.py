"""Replacing a run of segments by others that cover the same offsets.

New segments were uploaded without the partition's record being held; a slow upload may have been taken for an orphan since. So they
are looked for again under the lock: what is there then and doomed later is seen by the commit.
"""

from collections.abc import Sequence

from holdfast.contracts.objects import Missing
from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.records import IndexRecord, SegmentRecord
from holdfast.log.upkeep.index_objects import entries_of, index_record, write_index
from holdfast.log.upkeep.relisting import Relisting, changing, relist
from holdfast.log.upkeep.settings import Kit
from holdfast.vocabulary.errors import UnavailableError


async def replace_run(
    partition: LeadingPartition, old: Sequence[SegmentRecord], new: Sequence[SegmentRecord], kit: Kit
) -> None:
    """List `new` instead of `old`. `UnavailableError`: they are no longer listed side by side; plan again."""
    async with changing(partition, kit):
        segments, record = partition.segments, partition.record
        before, after = {each.object for each in old}, {each.object for each in new}
        fresh, trash = tuple(after - before), dict.fromkeys(before - after, False)
        for key in fresh:
            if isinstance(await kit.objects.get(key, start=0, end=1), Missing):
                raise UnavailableError(f"object {key}", "it was swept before it could be listed")
        index = _index_over(segments.indexes, old[0])  # a fold may have moved them since they were read
        if index is None:
            recent = _replaced(partition, segments.recent, old, new)
            change = Relisting(record=record, recent=recent, indexes=segments.indexes, fresh=fresh, trash=trash)
        else:
            entries = _replaced(partition, await entries_of(partition, index, kit.objects), old, new)
            longer = index_record(partition, entries, kit.chance)
            await write_index(longer, entries, kit.objects)
            kit.steps("index uploaded")
            change = Relisting(
                record=record,
                recent=segments.recent,
                indexes=[longer if each is index else each for each in segments.indexes],
                fresh=(*fresh, longer.object),
                trash={**trash, index.object: False},
            )
        await relist(partition, change, kit)
        partition.was_rewritten(old[-1].end_offset)


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
        raise UnavailableError(f"partition {partition.place}", "segments changed while they were being rewritten")
    return [*listed[:at], *new, *listed[at + len(old) :]]
