"""Compaction: of each key the last record stays (`compaction_filter`), segment by segment, in place of the old segments.

A pass scans segments that were never compacted, as many as its memory budget allows, and then rewrites everything up to there from
the oldest on. Small neighbours are joined on the way. Each rewritten run of segments is one fenced commit, so the log is valid
after every step, and a crash costs only the rest of the pass: oldest first means that a segment is marked compacted only when all
that its records replace has gone. Readers in the middle find the old objects until their grace is over, then plan again.

It stops below what a pipeline has to read again (docs/safety.md, rule 18; asked again for every commit), below open transactions,
and below `min_compaction_lag_ms`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from holdfast.log.batches import Buffer
from holdfast.log.maintenance.compaction_filter import ENTRY_BYTES, CompactionFilter, CompactionScan, KeyOffsetMap
from holdfast.log.maintenance.index_objects import entries_of
from holdfast.log.maintenance.retention import Protect, nothing_protected
from holdfast.log.maintenance.segment_merge import MergeLimits
from holdfast.log.maintenance.segment_replacement import replace_segments
from holdfast.log.maintenance.segment_rewrite import read_batches, upload_rewritten, wait_alike
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary import failpoints

_RUN_MAX = 32  # segments that are joined at once


@dataclass(slots=True)
class CompactionResult:
    """What a pass did: segments looked at, replaced or marked, and written; records that are gone."""

    surveyed: int = 0
    rewritten: int = 0
    written: int = 0
    records_dropped: int = 0


@dataclass(frozen=True, slots=True)
class _ListedSegment:
    """A segment, and where it is listed: the index object, or None for a key of its own."""

    segment: SegmentRecord
    home: str | None


@dataclass(frozen=True, slots=True)
class _CompactionPass:
    """One pass: what was learned, up to which offset it counts, and whether what is rewritten counts as compacted then."""

    scan: CompactionScan
    until: int
    mark: bool
    now_ms: int
    policy: CleanupPolicy


async def compact(
    partition: LeadingPartition,
    policy: CleanupPolicy,
    context: MaintenanceContext,
    *,
    protect: Protect = nothing_protected,
) -> CompactionResult:
    """One pass over one partition, if enough of it was never compacted.

    `FencedError`: the partition is lost. `UnavailableError`, `OutcomeUnknownError`: try again later; what was done stays done.
    """
    done = CompactionResult()
    if not _may_be_due(partition, policy):
        return done
    now_ms = context.clock.now_ms()
    listed = await _list(partition, context)
    cleanable = _cleanable([each.segment for each in listed], policy, now_ms, protect())
    dirty = cleanable[len(list(takewhile(lambda each: each.compacted_at_ms > 0, cleanable))) :]
    size_bytes = sum(each.size_bytes for each in cleanable)
    if not dirty or sum(each.size_bytes for each in dirty) < policy.min_dirty_ratio * size_bytes:
        return done
    chosen, slices = _within_budget(dirty, context.settings.key_map_bytes_max)
    start, until = chosen[0].base_offset, chosen[-1].end_offset
    done.surveyed = len(chosen)
    for number in range(slices):
        scan = await _scan(partition, start, until, CompactionScan(KeyOffsetMap(number, slices)), context)
        end = until
        if scan.first_open is not None:
            end = min(until, scan.first_open)
            scan = await _scan(
                partition, start, until, CompactionScan(KeyOffsetMap(number, slices), first=scan), context
            )
        plan = _CompactionPass(scan, end, number == slices - 1, now_ms, policy)
        if not await _rewrite(partition, plan, context, done, protect):
            break  # the last slice marks segments as compacted: all slices reach them, or none does
    return done


def _may_be_due(partition: LeadingPartition, policy: CleanupPolicy) -> bool:
    """A look that reads nothing. What may not be compacted yet is dirty: counting it in can only make more of it."""
    segments = partition.segments
    dirty_bytes = sum(each.dirty_bytes for each in segments.indexes)
    dirty_bytes += sum(each.size_bytes for each in segments.recent if not each.compacted_at_ms)
    return dirty_bytes > 0 and dirty_bytes >= policy.min_dirty_ratio * segments.size_bytes


def _cleanable(
    segments: Sequence[SegmentRecord], policy: CleanupPolicy, now_ms: int, protect_from: int | None
) -> list[SegmentRecord]:
    """The segments from the oldest on that are old enough, and that no pipeline has to read again as they are."""

    def lawful(segment: SegmentRecord) -> bool:
        protected = protect_from is not None and segment.end_offset > protect_from
        young = policy.min_compaction_lag_ms > 0 and segment.max_timestamp_ms > now_ms - policy.min_compaction_lag_ms
        return not protected and not young

    return list(takewhile(lawful, segments))


def _within_budget(dirty: Sequence[SegmentRecord], bytes_max: int) -> tuple[list[SegmentRecord], int]:
    """How many segments one scan takes, and in how many slices of the keys. Every record might be a key of its own."""
    chosen: list[SegmentRecord] = []
    left_bytes = bytes_max
    for segment in dirty:
        left_bytes -= segment.records * ENTRY_BYTES
        if chosen and left_bytes < 0:
            break
        chosen.append(segment)
    alone = chosen[0].records * ENTRY_BYTES if len(chosen) == 1 else 0
    return chosen, max(1, -(-alone // bytes_max))


async def _list(partition: LeadingPartition, context: MaintenanceContext) -> list[_ListedSegment]:
    """Every live segment, oldest first."""
    indexes, recent = list(partition.segments.indexes), list(partition.segments.recent)
    start = partition.record.start
    listed = [
        _ListedSegment(each, index.object)
        for index in indexes
        for each in await entries_of(partition, index, context.objects)
    ]
    return [*listed, *(_ListedSegment(each, None) for each in recent if each.end_offset > start)]


async def _scan(
    partition: LeadingPartition, start: int, until: int, scan: CompactionScan, context: MaintenanceContext
) -> CompactionScan:
    for each in await _list(partition, context):
        if start <= each.segment.base_offset and each.segment.end_offset <= until:
            batches = await read_batches(each.segment, context)
            await asyncio.to_thread(scan.add, batches)
    failpoints.reached("maintenance.keys-scanned")
    return scan


async def _rewrite(
    partition: LeadingPartition,
    plan: _CompactionPass,
    context: MaintenanceContext,
    done: CompactionResult,
    protect: Protect,
) -> bool:
    """Rewrite from the oldest on. False: it stopped below what a pipeline has begun to read since the pass began."""
    listed = [each for each in await _list(partition, context) if each.segment.end_offset <= plan.until]
    unchanged: list[_ListedSegment] = []  # only to be marked; many at once, because a list is rewritten for it
    while listed:
        run = _next_run(listed, plan, context.settings.merge_bytes_max)
        del listed[: len(run)]
        left, dropped = await _filter(run, plan, context)
        if len(run) == 1 and not dropped:
            if unchanged and (unchanged[0].home != run[0].home or len(unchanged) == _RUN_MAX):
                await _mark(partition, unchanged, plan, context, done)
            unchanged += run
            continue
        await _mark(partition, unchanged, plan, context, done)  # oldest first
        old = [each.segment for each in run]
        new = await upload_rewritten(partition, old, left, _compacted_at_ms(old, plan), context)
        failpoints.reached("maintenance.compacted-segment-uploaded")
        if not await replace_segments(partition, old, [new], context, protect=protect):
            return False
        done.written += 1
        done.rewritten += len(old)
        done.records_dropped += dropped
    await _mark(partition, unchanged, plan, context, done)
    return True


async def _mark(
    partition: LeadingPartition,
    unchanged: list[_ListedSegment],
    plan: _CompactionPass,
    context: MaintenanceContext,
    done: CompactionResult,
) -> None:
    """List segments that lost nothing as compacted."""
    old = [each.segment for each in unchanged if not each.segment.compacted_at_ms]
    if old and plan.mark:
        new = [msgspec.structs.replace(each, compacted_at_ms=plan.now_ms) for each in old]
        await replace_segments(partition, old, new, context)
        done.rewritten += len(old)
    unchanged.clear()


async def _filter(
    run: Sequence[_ListedSegment], plan: _CompactionPass, context: MaintenanceContext
) -> tuple[list[Buffer], int]:
    """What is left of the run's batches, and how many records are not."""
    left: list[Buffer] = []
    dropped = 0
    for each in run:
        kept = CompactionFilter(plan.scan, drop_tombstones=_tombstones_expired(each.segment, plan))
        left += await asyncio.to_thread(kept.pass_all, await read_batches(each.segment, context))
        dropped += kept.dropped
    return left, dropped


def _compacted_at_ms(old: Sequence[SegmentRecord], plan: _CompactionPass) -> int:
    """Since when the tombstones of a rewritten run wait: since the last of its segments was compacted first."""
    return max(each.compacted_at_ms for each in old) or (plan.now_ms if plan.mark else 0)


def _next_run(listed: Sequence[_ListedSegment], plan: _CompactionPass, merge_bytes_max: int) -> list[_ListedSegment]:
    """The next segments that may become one: listed in one place, with tombstones that wait alike, and small together.

    Together they span no more time than what is merged may: retention stays exact.
    """
    first = listed[0]
    span_ms_max = MergeLimits.of(plan.policy, merge_bytes_max).span_ms_max
    run: list[_ListedSegment] = []
    size_bytes, oldest_ms, newest_ms = 0, first.segment.oldest_ms, first.segment.max_timestamp_ms
    for each in listed[:_RUN_MAX]:
        segment = each.segment
        size_bytes += segment.size_bytes
        if segment.max_timestamp_ms >= 0:
            oldest_ms = min(oldest_ms, segment.oldest_ms) if oldest_ms >= 0 else segment.oldest_ms
            newest_ms = max(newest_ms, segment.max_timestamp_ms)
        alike = wait_alike(first.segment, segment, plan.policy.delete_retention_ms) or (
            _tombstones_expired(first.segment, plan) and _tombstones_expired(segment, plan)
        )
        too_long = span_ms_max is not None and newest_ms - oldest_ms > span_ms_max
        if run and (each.home != first.home or not alike or too_long or size_bytes > merge_bytes_max):
            break
        run.append(each)
    return run


def _tombstones_expired(segment: SegmentRecord, plan: _CompactionPass) -> bool:
    """Whether the segment's tombstones have been seen by everybody who reads from the start within the time allowed."""
    return 0 < segment.compacted_at_ms <= plan.now_ms - plan.policy.delete_retention_ms
