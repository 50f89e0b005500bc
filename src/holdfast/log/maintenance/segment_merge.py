"""Merging: small neighbours become one segment, so that their number follows the bytes of a log and not its age.

A topic at level `object` publishes several times a second, a quiet one once a minute; each publication is a segment, and each
segment costs a key, a request per reader, and a place in every plan. `choose_merge` is pure and decides like a log-structured
merge tree: eight neighbours of a size become one of the next, so a record is written again at most once per size. Batches stay as
they are: what a reader gets before and after is the same, byte by byte.

A merged segment goes when its newest record is too old, so it spans no more time, and no more bytes, than a share of the topic's
retention: retention stays as exact as it was.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from weakref import WeakKeyDictionary

from holdfast.log.batches import Buffer
from holdfast.log.maintenance.index_objects import entries_of
from holdfast.log.maintenance.listing_change import OPERATIONS_MAX
from holdfast.log.maintenance.segment_replacement import replace_segments
from holdfast.log.maintenance.segment_rewrite import read_whole, upload_rewritten, wait_alike
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary import failpoints

FAN_IN: Final = 8
# Segments that become one, whatever their sizes: each takes a key from the list and puts an object into the trash.
_RUN_MAX: Final = OPERATIONS_MAX // 2
_SIZE_STEP: Final = 8
_SMALLEST_BYTES: Final = 512
_RETENTION_SHARE: Final = 16
_MERGES_PER_VISIT: Final = 4  # then it is the next partition's turn


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """How large a merged segment may be, and how much time it may span; how long its tombstones are kept."""

    bytes_max: int
    span_ms_max: int | None
    delete_retention_ms: int = CleanupPolicy().delete_retention_ms

    @classmethod
    def of(cls, policy: CleanupPolicy, bytes_max: int) -> "MergeLimits":
        """The limits for a topic: a share of what it keeps."""
        by_time, by_bytes = policy.delete and policy.retention_ms, policy.delete and policy.retention_bytes
        return cls(
            bytes_max=min(bytes_max, max(1, by_bytes // _RETENTION_SHARE)) if by_bytes else bytes_max,
            span_ms_max=max(1, by_time // _RETENTION_SHARE) if by_time else None,
            delete_retention_ms=policy.delete_retention_ms,
        )


def choose_merge(
    segments: Sequence[SegmentRecord], limits: MergeLimits, *, complete: bool = False
) -> Sequence[SegmentRecord]:
    """The next neighbours to merge, none if there are none. `complete`: nothing will be appended to `segments`."""
    for stretch in _small_stretches(segments, limits):
        windows = list(_windows(stretch, limits))
        for window in windows if complete else windows[:-1]:
            if len(window) > 1:
                return window
        if not complete and (run := _run_of_a_size(windows[-1])):
            return run
    return ()


def _small_stretches(segments: Sequence[SegmentRecord], limits: MergeLimits) -> Iterator[list[SegmentRecord]]:
    """Neighbours without a gap between them that are worth merging: less than half full, and compacted alike."""
    stretch: list[SegmentRecord] = []
    for each in segments:
        follows = stretch and stretch[-1].end_offset == each.base_offset
        if stretch and not (follows and wait_alike(stretch[-1], each, limits.delete_retention_ms)):
            yield stretch
            stretch = []
        if 2 * each.size_bytes < limits.bytes_max:
            stretch.append(each)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _windows(stretch: Sequence[SegmentRecord], limits: MergeLimits) -> Iterator[list[SegmentRecord]]:
    """The stretch, cut where one segment would be too large or too long. All but the last are final: nothing more fits.

    What was merged before counts from the oldest of what it was merged from: otherwise it would grow with every round.
    """
    window: list[SegmentRecord] = []
    size_bytes, oldest_ms, newest_ms = 0, -1, -1
    for each in stretch:
        size_bytes += each.size_bytes
        if each.max_timestamp_ms >= 0:
            oldest_ms = min(oldest_ms, each.oldest_ms) if oldest_ms >= 0 else each.oldest_ms
            newest_ms = max(newest_ms, each.max_timestamp_ms)
        too_long = limits.span_ms_max is not None and newest_ms - oldest_ms > limits.span_ms_max
        if window and (size_bytes > limits.bytes_max or len(window) == _RUN_MAX or too_long):
            yield window
            window, size_bytes, oldest_ms, newest_ms = [], each.size_bytes, each.oldest_ms, each.max_timestamp_ms
        window.append(each)
    yield window


def _run_of_a_size(window: Sequence[SegmentRecord]) -> Sequence[SegmentRecord]:
    """Neighbours of one size or smaller, with enough of that size among them; the smallest size first."""
    sizes = [_size_class(each.size_bytes) for each in window]
    for size in sorted(set(sizes)):
        at = 0
        for small, group in groupby(sizes, key=lambda each: each <= size):
            members = list(group)
            if small and members.count(size) >= FAN_IN:
                return window[at : at + len(members)]
            at += len(members)
    return ()


def _size_class(size_bytes: int) -> int:
    size, upper = 0, _SMALLEST_BYTES
    while size_bytes >= upper:
        size, upper = size + 1, upper * _SIZE_STEP
    return size


async def merge_segments(partition: LeadingPartition, policy: CleanupPolicy, context: MaintenanceContext) -> int:
    """Merge what should be merged now, a bounded amount of it; how many segments were replaced.

    `FencedError`: the partition is lost. `UnavailableError`, `OutcomeUnknownError`: try again later.
    """
    limits = MergeLimits.of(policy, context.settings.merge_bytes_max)
    merged = 0
    for _ in range(_MERGES_PER_VISIT):
        listing = _listing(partition, limits)
        chosen = await _choose(partition, limits, context)
        if not chosen:
            _settled[partition] = listing
            break
        await _merge(partition, chosen, context)
        merged += len(chosen)
    return merged


def lists_enough(partition: LeadingPartition) -> bool:
    """Whether so many segments are listed that some of them may become one."""
    return len(partition.segments.recent) >= FAN_IN or bool(partition.segments.indexes)


def may_merge(partition: LeadingPartition, policy: CleanupPolicy, context: MaintenanceContext) -> bool:
    """Whether a visit may find something: not if the last one found nothing in this list."""
    limits = MergeLimits.of(policy, context.settings.merge_bytes_max)
    return _settled.get(partition) != _listing(partition, limits)


_Listing = tuple[MergeLimits, int, int, tuple[str, ...]]

# In which list nothing was to be merged, by partition.
_settled: WeakKeyDictionary[LeadingPartition, _Listing] = WeakKeyDictionary()


def _listing(partition: LeadingPartition, limits: MergeLimits) -> _Listing:
    """Differs if anything was listed, unlisted or rewritten, but for what only takes the place of one in the middle."""
    recent, indexes = partition.segments.recent, partition.segments.indexes
    ends = tuple(each[at].object for each in (recent, indexes) if each for at in (0, -1))
    return limits, len(recent), len(indexes), ends


# Which index objects were seen to list nothing to merge, by partition: each is read once.
_seen: WeakKeyDictionary[LeadingPartition, set[str]] = WeakKeyDictionary()


async def _choose(
    partition: LeadingPartition, limits: MergeLimits, context: MaintenanceContext
) -> Sequence[SegmentRecord]:
    segments, start = partition.segments, partition.record.start
    if len(segments.recent) >= FAN_IN:
        recent = choose_merge([each for each in segments.recent if each.end_offset > start], limits)
        if recent:
            return recent
    if not segments.indexes:
        return ()
    seen = _seen.setdefault(partition, set())
    seen &= {each.object for each in segments.indexes}
    for index in segments.indexes:
        # An index of 8 entries that are half full has nothing to merge: no need to read it.
        if index.object in seen or 2 * index.size_bytes >= index.entries * limits.bytes_max:
            continue
        chosen = choose_merge(await entries_of(partition, index, context.objects), limits, complete=True)
        if chosen:
            return chosen
        seen.add(index.object)
    return ()


async def _merge(partition: LeadingPartition, old: Sequence[SegmentRecord], context: MaintenanceContext) -> None:
    batches: list[Buffer] = []
    for found in await asyncio.gather(*(read_whole(each, context) for each in old)):
        batches += found
    compacted_at_ms = max(each.compacted_at_ms for each in old)
    new = await upload_rewritten(partition, old, batches, compacted_at_ms, context)
    failpoints.reached("maintenance.merged-segment-uploaded")
    await replace_segments(partition, old, [new], context, same_batches=True)
