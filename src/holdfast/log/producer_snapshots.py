"""Where the producers of a partition are written: a snapshot in the footer of one segment, and deltas in those behind it.

The one rule: while the newest segment has a delta since offset x, the first segment key that ends at x or later has a snapshot. A
delta holds everything since its snapshot, not since the delta before, so a takeover reads two footers, never a chain; and it fits
a snapshot that was taken later, so the segment of the snapshot may be merged with those behind it. Whoever takes segments
from the list keeps to the rule:

- the publisher writes another snapshot before the last one is too far back (`log.producer_deltas_max`),
- index roll-up stops before the segment of the snapshot,
- retention leaves a placeholder without records in its place,
- compaction and merging write a snapshot into the segment that takes its place.
"""

from collections.abc import Sequence

from holdfast.contracts.objects import Missing, Objects
from holdfast.log.metadata import SegmentRecord
from holdfast.log.segments import ProducerSection, ProducerSnapshot, SegmentReader
from holdfast.vocabulary.errors import CorruptError


def snapshot_at(recent: Sequence[SegmentRecord], since: int) -> int | None:
    """Which of `recent` has the snapshot for deltas since that offset; None: it is not listed."""
    return next((at for at, each in enumerate(recent) if each.end_offset >= since), None)


def newest_snapshot_at(recent: Sequence[SegmentRecord]) -> int | None:
    """Which of `recent` has the snapshot that the newest one needs; None: there is no segment."""
    if not recent:
        return None
    since = recent[-1].producers_since
    return len(recent) - 1 if since < 0 else snapshot_at(recent, since)


async def read_section(segment: SegmentRecord, objects: Objects) -> ProducerSection | Missing:
    """The producers as the segment's footer has them."""
    return await SegmentReader(objects, segment.object, segment.start, segment.end).producers()


async def read_state(
    segment: SegmentRecord, recent: Sequence[SegmentRecord], objects: Objects
) -> tuple[ProducerSnapshot, ...] | Missing:
    """All producers at the end of a segment of `recent`, with its snapshot listed. `Missing`: the list is old."""
    section = await read_section(segment, objects)
    if isinstance(section, Missing) or section.is_snapshot:
        return section if isinstance(section, Missing) else section.producers
    snapshot = await read_snapshot(section, recent, objects)
    return snapshot if isinstance(snapshot, Missing) else section.onto(snapshot)


async def read_snapshot(
    delta: ProducerSection, recent: Sequence[SegmentRecord], objects: Objects
) -> tuple[ProducerSnapshot, ...] | Missing:
    """The snapshot that a delta in the footer of one of `recent` belongs to."""
    at = snapshot_at(recent, delta.since)
    section = await read_section(recent[at], objects) if at is not None else None
    if isinstance(section, Missing):
        return section
    if section is None or not section.is_snapshot:
        raise CorruptError("segments", f"the snapshot of producers at offset {delta.since} is not listed")
    return section.producers
