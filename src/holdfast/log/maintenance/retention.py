"""Retention: what is too old or too much goes, oldest first; and deleting records on demand.

`decide` is pure. The rest moves the partition's start and unlinks what lies below it, in commits small enough for any store: each
leaves a valid log, so a crash between them costs nothing but the rest of the work. The tail is never touched; only
`delete_records` may move the start into it, and what is published below the start later goes with the next pass.

What producers sent last is in the footer of the newest segment, and in that of the one with the snapshot it builds on
(`log.producer_snapshots`). When one of them goes, a placeholder takes its place: no records, only the producers, so that a
duplicate is still a duplicate after the partition was opened again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from holdfast.contracts.objects import Missing
from holdfast.log.batches import encode
from holdfast.log.errors import PendingRangeError
from holdfast.log.leader_epochs import without_epochs_before
from holdfast.log.maintenance.index_objects import entries_of
from holdfast.log.maintenance.listing_change import (
    OPERATIONS_MAX,
    ListingChange,
    commit_listing_change,
    exclusive_listing,
)
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import PartitionRecord, SegmentRecord
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.producer_snapshots import newest_snapshot_at, read_state
from holdfast.log.segments import ProducerSection, ProducerSnapshot, build_segment
from holdfast.log.segments.keys import segment_key
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import CorruptError, InvalidError

Protect = Callable[[], int | None]  # the first offset a pipeline still has to read, if there is one

KAFKA_HIGH_WATERMARK = -1  # "delete everything that is visible"


def nothing_protected() -> None:
    """No pipeline waits for anything."""
    return


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """Where the log starts from now on, and which of the segments lie wholly below."""

    start: int
    unlink: tuple[SegmentRecord, ...]


def decide_retention(
    segments: Sequence[SegmentRecord],
    start: int,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
    protect_from: int | None,
    *,
    bytes_after: int = 0,
) -> RetentionDecision:
    """What time and bytes let go of `segments`, oldest first; `bytes_after` more follow behind them.

    A segment goes when its newest record is older than `retention_ms`, or when `retention_bytes` are left without it. One
    without timestamps is as old as the next that has any. Nothing at or above `protect_from` goes.
    """
    size_bytes = bytes_after + sum(each.size_bytes for each in segments if each.end_offset > start)
    times = _times(segments)
    for segment, time_ms in zip(segments, times, strict=True):
        if segment.end_offset <= start:
            continue
        if protect_from is not None and segment.end_offset > protect_from:
            break
        too_old = retention_ms is not None and time_ms >= 0 and now_ms - time_ms > retention_ms
        too_much = retention_bytes is not None and size_bytes - segment.size_bytes >= retention_bytes
        if not too_old and not too_much:
            break
        size_bytes -= segment.size_bytes
        start = segment.end_offset
    return RetentionDecision(start, tuple(each for each in segments if each.end_offset <= start))


def _times(segments: Sequence[SegmentRecord]) -> list[int]:
    times: list[int] = []
    known_ms = -1
    for segment in reversed(segments):
        known_ms = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else known_ms
        times.append(known_ms)
    return times[::-1]


def may_have_expired(partition: LeadingPartition, policy: CleanupPolicy, now_ms: int) -> bool:
    """Whether `apply_retention` may have anything to do: most of the time the oldest segment tells that it has not."""
    recent, start = partition.segments.recent, partition.record.start
    if partition.segments.indexes or policy.retention_bytes is not None:
        return True
    if not recent:
        return False
    oldest = recent[0]
    if oldest.max_timestamp_ms < 0 or oldest.end_offset <= start:
        return True
    return policy.retention_ms is not None and now_ms - oldest.max_timestamp_ms > policy.retention_ms


async def apply_retention(
    partition: LeadingPartition,
    policy: CleanupPolicy,
    context: MaintenanceContext,
    *,
    protect: Protect = nothing_protected,
) -> int:
    """Apply the topic's retention to one partition; the offset where it starts now.

    `FencedError`: the partition is lost. `UnavailableError`, `OutcomeUnknownError`: try again later.
    """
    while True:
        start, first = partition.record.start, next(iter(partition.segments.indexes), None)
        head, after_bytes = await _head(partition, policy, context)
        decision = decide_retention(
            head,
            start,
            context.clock.now_ms(),
            policy.retention_ms,
            policy.retention_bytes,
            protect(),
            bytes_after=after_bytes,
        )
        await _move_start(partition, decision.start, context, protect)
        if first is None or decision.start == start or decision.start < first.end_offset:
            return partition.record.start


async def retention_start(partition: LeadingPartition, policy: CleanupPolicy, context: MaintenanceContext) -> int:
    """Where `apply_retention` would let the partition start, as far as its oldest index goes. Changes nothing."""
    head, after_bytes = await _head(partition, policy, context)
    return decide_retention(
        head,
        partition.record.start,
        context.clock.now_ms(),
        policy.retention_ms,
        policy.retention_bytes,
        context.pending_from(partition.partition_id),
        bytes_after=after_bytes,
    ).start


@dataclass(frozen=True, slots=True)
class _OldestSegment:
    """What the last round read from the oldest index: its first live segment, and the bytes of all of them."""

    index: str
    start: int
    segment: SegmentRecord
    size_bytes: int


# A memo, so that a log from which nothing has to go costs no read of its index; it goes with the partition.
_oldest: WeakKeyDictionary[LeadingPartition, _OldestSegment] = WeakKeyDictionary()


async def _head(
    partition: LeadingPartition, policy: CleanupPolicy, context: MaintenanceContext
) -> tuple[Sequence[SegmentRecord], int]:
    """The oldest segments, as far as one index lists them, and the bytes of all that follow."""
    indexes, recent, start = list(partition.segments.indexes), list(partition.segments.recent), partition.record.start
    if not indexes:
        return recent, 0
    after = sum(each.size_bytes for each in indexes[1:]) + sum(each.size_bytes for each in recent)
    seen = _oldest.get(partition)
    if (
        seen is not None
        and (seen.index, seen.start) == (indexes[0].object, start)
        and seen.segment.max_timestamp_ms >= 0
    ):
        rest = after + seen.size_bytes - seen.segment.size_bytes
        now_ms, limits = context.clock.now_ms(), (policy.retention_ms, policy.retention_bytes)
        if decide_retention([seen.segment], start, now_ms, *limits, None, bytes_after=rest).start == start:
            return (seen.segment,), rest
    entries = await entries_of(partition, indexes[0], context.objects)
    if entries:
        size_bytes = sum(each.size_bytes for each in entries)
        _oldest[partition] = _OldestSegment(indexes[0].object, start, entries[0], size_bytes)
    return entries, after


async def delete_records(
    partition: LeadingPartition, offset: int, context: MaintenanceContext, *, protect: Protect | None = None
) -> int:
    """Delete everything below `offset` (-1: everything visible); the offset where the partition starts now.

    `InvalidError`: the offset is beyond the high watermark. `PendingRangeError`: a pipeline still has to read what lies below
    it, which without `protect` is read from the store first.
    """
    high_watermark = partition.high_watermark
    target = high_watermark if offset == KAFKA_HIGH_WATERMARK else offset
    if not 0 <= target <= high_watermark:
        raise InvalidError(f"offset to delete {partition.partition_id} up to", offset, f"0 to {high_watermark}, or -1")
    if protect is None:
        await context.refresh_pending()
        protect = lambda: context.pending_from(partition.partition_id)  # noqa: E731 - asked again for every commit
    protected = protect()
    if protected is not None and max(protected, partition.record.start) < target:
        raise PendingRangeError(str(partition.partition_id), offset, protected)
    await _move_start(partition, target, context, protect)
    return partition.record.start


async def _move_start(partition: LeadingPartition, target: int, context: MaintenanceContext, protect: Protect) -> None:
    """Let the partition start at `target`, or where it does if that is later, and list nothing that ends below."""
    while True:
        async with exclusive_listing(partition, context):
            record = partition.record
            protected = protect()
            until = target if protected is None else min(target, protected)
            change = await _next_change(partition, max(until, record.start), context)
            if change is None:
                return
            await commit_listing_change(partition, change, context)


async def _next_change(partition: LeadingPartition, target: int, context: MaintenanceContext) -> ListingChange | None:
    """The next commit on the way to `target`; None when there is nothing left to do."""
    indexes, recent = partition.segments.indexes, partition.segments.recent
    gone = [each for each in indexes if each.end_offset <= target][: OPERATIONS_MAX // 2]
    if gone:
        return ListingChange(
            record=_started(partition.record, gone[-1].end_offset),
            recent=recent,
            indexes=indexes[len(gone) :],
            trash={each.object: True for each in gone},
        )
    if indexes and indexes[0].base_offset < target and partition.record.start < target:
        entries = await entries_of(partition, indexes[0], context.objects)
        dead = [each for each in entries if each.end_offset <= target][:OPERATIONS_MAX]
        if dead:
            record = _started(partition.record, dead[-1].end_offset)
            return ListingChange(
                record=record, recent=recent, indexes=indexes, trash={each.object: False for each in dead}
            )
    return await _next_recent(partition, target, context)


async def _next_recent(partition: LeadingPartition, target: int, context: MaintenanceContext) -> ListingChange | None:
    indexes, recent = partition.segments.indexes, partition.segments.recent
    below = [each for each in recent if each.end_offset <= target]
    dead = below[: OPERATIONS_MAX // 2]
    start = target if len(dead) == len(below) else dead[-1].end_offset
    kept = await _producers_kept(partition, dead, context)
    gone = [each for each in dead if each not in kept]
    if not gone and start <= partition.record.start:
        return None
    return ListingChange(
        record=_started(partition.record, start),
        recent=[*kept, *recent[len(dead) :]],
        indexes=indexes,
        fresh=tuple(each.object for each in kept if each not in dead),
        trash={each.object: False for each in gone},
    )


async def _producers_kept(
    partition: LeadingPartition, dead: Sequence[SegmentRecord], context: MaintenanceContext
) -> tuple[SegmentRecord, ...]:
    """What takes the place of the oldest segments, `dead`, so that the producers stay known: at most one segment."""
    recent = partition.segments.recent
    at = newest_snapshot_at(recent)
    if at is None or at >= len(dead):
        return ()
    # Without the newest segment the producers are needed as of its end; with it, its snapshot is.
    segment = recent[-1] if len(dead) == len(recent) else recent[at]
    if segment.records == 0 and segment.producers_since < 0:
        return (segment,)  # a placeholder already
    producers = await read_state(segment, recent, context.objects)
    if isinstance(producers, Missing):
        raise CorruptError(f"object {segment.object}", "it, or its snapshot of producers, is missing")
    if not producers and at == len(recent) - 1:
        return ()  # nor is a delta on its way: there is none of an empty snapshot
    return (await _placeholder(partition, segment, producers, context),)


def _started(record: PartitionRecord, start: int) -> PartitionRecord:
    start = max(record.start, start)
    gaps = tuple(gap for gap in record.gaps if gap.end > start)
    return msgspec.structs.replace(record, start=start, epochs=without_epochs_before(record.epochs, start), gaps=gaps)


async def _placeholder(
    partition: LeadingPartition,
    segment: SegmentRecord,
    producers: tuple[ProducerSnapshot, ...],
    context: MaintenanceContext,
) -> SegmentRecord:
    """A segment without records in the place of `segment`."""
    partition_id, end = partition.partition_id, segment.end_offset
    built = await asyncio.to_thread(
        build_segment,
        [empty_batch(end)],
        topic_id=partition_id.topic_id,
        partition=partition_id.number,
        epochs=[each for each in partition.record.epochs if each.start_offset <= end],
        producers=ProducerSection(producers=producers),
        base_offset=segment.base_offset,
        end_offset=end,
    )
    key = segment_key(
        partition_id.topic_id,
        partition_id.number,
        segment.base_offset,
        end,
        partition.lease.epoch,
        context.random.token(),
        prefix=context.owner.prefix,
    )
    await context.objects.put(key, built.parts)
    failpoints.reached("maintenance.placeholder-uploaded")
    return msgspec.structs.replace(
        segment,
        object=key,
        start=0,
        end=built.meta.bytes,
        epoch=partition.lease.epoch,
        records=0,
        min_timestamp_ms=-1,
        max_timestamp_ms=-1,
        producers_since=-1,
    )


def empty_batch(end_offset: int) -> bytes:
    """A batch without records just below `end_offset`: a segment must hold one, even if nothing is left of it."""
    return encode([], base_offset=end_offset - 1, last_offset=end_offset - 1)
