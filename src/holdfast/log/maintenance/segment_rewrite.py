"""Reading segments whole and writing them again as one: what compaction and merging share.

The new segment covers the offsets of the old ones, and takes over what the last of them knew of producers. It is uploaded and not
listed yet: `replace_segments` does that.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from holdfast.contracts.objects import Missing
from holdfast.log.batches import Buffer
from holdfast.log.maintenance.retention import empty_batch
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import SegmentRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.producer_snapshots import newest_snapshot_at, read_section, read_state
from holdfast.log.segments import ProducerSection, SegmentReader, build_segment
from holdfast.log.segments.blocks import summarize_batches
from holdfast.log.segments.keys import segment_key
from holdfast.vocabulary.errors import UnavailableError

T = TypeVar("T")

_ALL_BYTES: Final = 1 << 62
_WAIT_SHARE: Final = 16


def wait_alike(one: SegmentRecord, other: SegmentRecord, delete_retention_ms: int) -> bool:
    """Whether the tombstones of both wait for about the same moment; neither was compacted, or both were.

    Joined, all wait for the later one. The bounds are fixed: otherwise a segment that is joined with a younger one again and
    again would keep its tombstones for ever.
    """
    share_ms = max(1, delete_retention_ms // _WAIT_SHARE)
    compacted = bool(one.compacted_at_ms), bool(other.compacted_at_ms)
    return compacted[0] == compacted[1] and one.compacted_at_ms // share_ms == other.compacted_at_ms // share_ms


async def read_batches(segment: SegmentRecord, context: MaintenanceContext) -> list[memoryview]:
    """All batches of a segment. `UnavailableError`: it was unlinked meanwhile; plan again."""
    reader = SegmentReader(context.objects, segment.object, segment.start, segment.end)
    return _found(segment, await reader.read(segment.base_offset, _ALL_BYTES, on_thread=True))


async def read_whole(segment: SegmentRecord, context: MaintenanceContext) -> list[Buffer]:
    """The same, several to a buffer: for who keeps them all, however many there are."""
    reader = SegmentReader(context.objects, segment.object, segment.start, segment.end)
    return _found(segment, await reader.read_whole())


async def upload_rewritten(
    partition: LeadingPartition,
    old: Sequence[SegmentRecord],
    batches: Sequence[Buffer],
    compacted_at_ms: int,
    context: MaintenanceContext,
) -> SegmentRecord:
    """One segment with these batches, for the offsets of all of `old`. A buffer may hold several of them."""
    partition_id, epoch = partition.partition_id, partition.lease.epoch
    base, end = old[0].base_offset, old[-1].end_offset
    built = await asyncio.to_thread(
        build_segment,
        _covering(batches, end),
        topic_id=partition_id.topic_id,
        partition=partition_id.number,
        epochs=[each for each in partition.record.epochs if each.start_offset <= end],
        producers=await _producers(partition, old, context),
        base_offset=base,
        end_offset=end,
    )
    prefix, upload = context.owner.prefix, context.random.token()
    key = segment_key(partition_id.topic_id, partition_id.number, base, end, epoch, upload, prefix=prefix)
    await context.objects.put(key, built.parts)
    meta = built.meta
    return SegmentRecord(
        base_offset=base,
        end_offset=end,
        object=key,
        start=0,
        end=meta.bytes,
        epoch=epoch,
        records=meta.record_count,
        min_timestamp_ms=meta.min_timestamp_ms,
        max_timestamp_ms=meta.max_timestamp_ms,
        compacted_at_ms=compacted_at_ms,
        producers_since=built.producers_since,
        merged_from_ms=min((each.oldest_ms for each in old if each.oldest_ms >= 0), default=-1),
    )


def _covering(batches: Sequence[Buffer], end_offset: int) -> Sequence[Buffer]:
    """The batches, up to the last offset: a reader at an offset that is gone must be led beyond it, even at the log's end."""
    if batches and summarize_batches(batches[-1], stored=True).end_offset == end_offset:
        return batches
    return [*batches, empty_batch(end_offset)]


async def _producers(
    partition: LeadingPartition, old: Sequence[SegmentRecord], context: MaintenanceContext
) -> ProducerSection:
    """The producers of a segment that replaces `old`: a snapshot if theirs is the one that newer segments build on."""
    recent = list(partition.segments.recent)
    at = newest_snapshot_at(recent)
    if at is None or recent[at] not in old:
        return _found(old[-1], await read_section(old[-1], context.objects))
    return ProducerSection(producers=_found(old[-1], await read_state(old[-1], recent, context.objects)))


def _found(segment: SegmentRecord, found: T | Missing) -> T:
    if isinstance(found, Missing):
        # Retention, or another leader, changed the list meanwhile: the next pass plans again.
        raise UnavailableError(f"object {segment.object}", "it was unlinked while it was being rewritten")
    return found
