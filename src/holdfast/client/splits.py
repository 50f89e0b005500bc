"""Which segments hold a range, and where to cut it: from metadata alone.

The one rule: the result follows from the range and the list of segments alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from holdfast.contracts.objects import Objects
from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import PartitionId
from holdfast.log.segment_list import SegmentList, StaleListingError
from holdfast.vocabulary.errors import CorruptError

TAIL_RECORD_BYTES: Final = 256  # assumed size of a record of the tail where there is no segment to estimate it from
_RELOADS_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBounds:
    """Records from `floor_ms` to `ceiling_ms` (inclusive) are wanted; others may be left out where that is cheap.

    `disorder_ms`: how much older than its batch's first record a record may be; None: unknown, so no segment is skipped for being
    too new.
    """

    floor_ms: int | None = None
    ceiling_ms: int | None = None
    disorder_ms: int | None = None

    def may_contain(self, segment: SegmentRecord) -> bool:
        """Whether a record of this segment may be wanted."""
        if self.floor_ms is not None and 0 <= segment.max_timestamp_ms < self.floor_ms:
            return False
        if self.ceiling_ms is None or self.disorder_ms is None or segment.min_timestamp_ms < 0:
            return True
        return segment.min_timestamp_ms - self.disorder_ms <= self.ceiling_ms


ANY_TIME: Final = TimeBounds()


class EstimatedRange(NamedTuple):
    """Offsets [start, end) with about so many rows and stored bytes, evenly spread."""

    start: int
    end: int
    rows: float
    bytes: float
    is_tail: bool = False


class SizeEstimate(NamedTuple):
    """About how much a range holds. `tail_rows` and `tail_bytes` are the part that is not in object storage yet."""

    rows: int
    bytes: int
    tail_rows: int
    tail_bytes: int


class PublishedPart(Protocol):
    """The published part of a partition, as it was listed last."""

    @property
    def partition_id(self) -> PartitionId: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def segments(self) -> SegmentList: ...
    async def refresh(self) -> None: ...


async def find_segments(log: PublishedPart, objects: Objects, start: int, end: int) -> list[SegmentRecord]:
    """The segments that hold some of [start, end), oldest first; a list that changed meanwhile is reloaded."""
    for _ in range(_RELOADS_MAX):
        try:
            return await _find_segments(log, objects, start, end)
        except StaleListingError:
            await log.refresh()
    raise CorruptError(f"partition {log.partition_id}", "its list of segments is missing")


async def _find_segments(log: PublishedPart, objects: Objects, start: int, end: int) -> list[SegmentRecord]:
    found: list[SegmentRecord] = []
    for index in log.segments.indexes:
        if index.end_offset > start and index.base_offset < end:
            listed = await log.segments.listed(index, objects)
            if not listed:
                raise StaleListingError(f"index object {index.object}", "it is missing")
            found += listed
    found += log.segments.recent
    return [each for each in found if each.end_offset > start and each.base_offset < end]


def estimate_ranges(
    segments: Sequence[SegmentRecord], start: int, end: int, *, published: int = 0
) -> list[EstimatedRange]:
    """[start, end) with the sizes of its segments. What no segment holds is a gap below `published`, and the tail behind it.

    The tail is estimated by the last segment.
    """
    found: list[EstimatedRange] = []
    at, record_bytes = start, float(TAIL_RECORD_BYTES)
    for each in segments:
        begin, stop = max(at, each.base_offset), min(end, each.end_offset)
        if begin >= stop:
            continue
        if begin > at:
            found.append(EstimatedRange(at, begin, 0, 0))  # a gap
        share = (stop - begin) / (each.end_offset - each.base_offset)
        found.append(EstimatedRange(begin, stop, each.records * share, each.size_bytes * share))
        record_bytes = each.size_bytes / max(1, each.records)
        at = stop
    if at < (gap_end := min(end, published)):
        found.append(EstimatedRange(at, gap_end, 0, 0))
        at = gap_end
    if at < end:
        found.append(EstimatedRange(at, end, end - at, (end - at) * record_bytes, is_tail=True))
    return found


class RangeSplit(NamedTuple):
    """Offsets [start, end). `size` is their share of the limit: 1 is a full part."""

    start: int
    end: int
    size: float


def split_by_size(found: Sequence[EstimatedRange], *, rows_max: int, bytes_max: int) -> list[RangeSplit]:
    """The ranges in parts of at most so many rows and bytes, but at least one offset each."""
    parts: list[RangeSplit] = []
    if not found:
        return parts
    begin, rows, size = found[0].start, 0.0, 0.0
    for each in found:
        at = each.start
        row_rows, row_bytes = each.rows / (each.end - each.start), each.bytes / (each.end - each.start)
        while at < each.end:
            fitting = min(_fit_count(rows_max - rows, row_rows), _fit_count(bytes_max - size, row_bytes), each.end - at)
            if fitting == 0 and begin == at:
                fitting = 1
            at += fitting
            rows, size = rows + fitting * row_rows, size + fitting * row_bytes
            if at < each.end:
                parts.append(RangeSplit(begin, at, max(rows / rows_max, size / bytes_max)))
                begin, rows, size = at, 0.0, 0.0
    parts.append(RangeSplit(begin, found[-1].end, max(rows / rows_max, size / bytes_max)))
    return parts


def total_size(found: Sequence[EstimatedRange]) -> SizeEstimate:
    """The sum over the ranges."""
    tail = [each for each in found if each.is_tail]
    return SizeEstimate(
        round(sum(each.rows for each in found)),
        round(sum(each.bytes for each in found)),
        round(sum(each.rows for each in tail)),
        round(sum(each.bytes for each in tail)),
    )


def limit_each(found: Sequence[Sequence[EstimatedRange]], *, rows_max: int, bytes_max: int) -> list[int]:
    """Where to stop in each of several ranges, so that together they stay within the limits.

    Each gets a share of the limit in proportion to its size, so that none waits for another; at least one advances.
    """
    totals = [total_size(each) for each in found]
    rows, size = sum(each.rows for each in totals), sum(each.bytes for each in totals)
    share = min(1.0, rows_max / max(1, rows), bytes_max / max(1, size))
    if share == 1.0:
        return [each[-1].end if each else 0 for each in found]
    ends = [
        _limited_end(each, total.rows * share, total.bytes * share) for each, total in zip(found, totals, strict=True)
    ]
    if all(end == each[0].start for end, each in zip(ends, found, strict=True)):  # every share is less than a record
        largest = max(range(len(found)), key=lambda at: totals[at].rows)
        ends[largest] += 1
    return ends


def _limited_end(found: Sequence[EstimatedRange], rows: float, size: float) -> int:
    """The offset up to which there are at most so many rows and bytes; the start if the first record is larger."""
    at = found[0].start
    for each in found:
        row_rows, row_bytes = each.rows / (each.end - each.start), each.bytes / (each.end - each.start)
        fitting = min(_fit_count(rows, row_rows), _fit_count(size, row_bytes), each.end - each.start)
        at, rows, size = at + fitting, rows - fitting * row_rows, size - fitting * row_bytes
        if at < each.end:
            break
    return at


def _fit_count(room: float, each: float) -> int:
    """How many of this size fit. The epsilon is for sums of fractions, which are not exact."""
    return int(max(0.0, room) / each + 1e-6) if each > 0 else 1 << 62
