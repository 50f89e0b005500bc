"""Which ranges a slot begins now. No I/O: positions, ends and the time go in, ranges and the time of the next check come out.

The one rule: a range begins at its partition's position and ends at or before the end of the partition and of the generation. So
the ranges of a partition follow each other without gaps or overlaps, whatever else is decided here.

A range is due when it is full (rows, or bytes as far as they are known), when its oldest record has waited long enough, or when it
reaches the generation's end. If not all can be begun, those that have waited longest come first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.settings import check_at_least, check_between

RATE_BURST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLimits:
    """How large, how old and how many ranges may be."""

    rows_max: int
    bytes_max: int
    age_ms: int
    ranges_max: int

    def __post_init__(self) -> None:
        check_at_least("rows_max", self.rows_max, 1)
        check_at_least("bytes_max", self.bytes_max, 1)
        check_at_least("age_ms", self.age_ms, 0)
        check_between("ranges_max", self.ranges_max, 1, 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBacklog:
    """The records after a partition's position."""

    partition: int
    position: int
    end: int
    """End of the readable offsets."""
    since_ms: int
    """When a record after the position was first seen."""
    stop: int | None = None
    """The generation's end."""
    row_bytes: float = 0.0
    """Mean size of a record in the last range; 0: unknown."""

    @property
    def until(self) -> int:
        """Where planning ends."""
        return self.end if self.stop is None else min(self.end, self.stop)

    @property
    def rows(self) -> int:
        """Number of offsets in the backlog."""
        return max(0, self.until - self.position)


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets of a partition; `end` is exclusive."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RangePlan:
    """What to begin now, and when to check again if no record arrives. None: there is no backlog."""

    ranges: tuple[PlannedRange, ...]
    next_check_ms: int | None


def plan_ranges(backlogs: Iterable[PartitionBacklog], limits: RangeLimits, *, allowance: int, now_ms: int) -> RangePlan:
    """Plan. `allowance`: how many inserts the rate limit permits."""
    pending = sorted((each for each in backlogs if each.rows), key=lambda each: (each.since_ms, each.partition))
    due = [each for each in pending if due_at_ms(each, limits) <= now_ms]
    begun = due[: max(0, min(allowance, limits.ranges_max))]
    taken = {each.partition for each in begun}
    later = [max(now_ms, due_at_ms(each, limits)) for each in pending if each.partition not in taken]
    ranges = tuple(PlannedRange(each.partition, each.position, first_end(each, limits)) for each in begun)
    return RangePlan(ranges, min(later, default=None))


def due_at_ms(backlog: PartitionBacklog, limits: RangeLimits) -> int:
    """When a range is due."""
    full = backlog.rows >= limits.rows_max or backlog.rows * backlog.row_bytes >= limits.bytes_max
    last = backlog.stop is not None and backlog.until == backlog.stop
    return backlog.since_ms if full or last else backlog.since_ms + limits.age_ms


def first_end(backlog: PartitionBacklog, limits: RangeLimits) -> int:
    """Where the first range after the position ends: bounded by rows, and by bytes as far as they are known."""
    rows = min(backlog.rows, limits.rows_max)
    if backlog.row_bytes > 0:
        rows = min(rows, max(1, int(limits.bytes_max / backlog.row_bytes)))
    return backlog.position + rows


class InsertRateLimiter:
    """Limits inserts per second, with a burst of one second's worth. 0: no limit."""

    def __init__(self, per_second: float, *, now_ms: int) -> None:
        check_at_least("insert_rate_per_second", per_second, 0)
        self._per_second, self._at_ms = per_second, now_ms
        self._tokens = self._capacity

    @property
    def _capacity(self) -> float:
        return max(1.0, self._per_second * RATE_BURST_S)

    def allowance(self, now_ms: int) -> int:
        """How many inserts may begin now."""
        if self._per_second == 0:
            return 1_000_000
        self._tokens = min(self._capacity, self._tokens + (now_ms - self._at_ms) / 1_000 * self._per_second)
        self._at_ms = now_ms
        return int(self._tokens + 1e-9)

    def spend(self, inserts: int) -> None:
        """Count inserts that have begun."""
        if self._per_second:
            self._tokens -= inserts

    def next_ms(self, now_ms: int) -> int:
        """When one more may begin."""
        if self._per_second == 0 or self.allowance(now_ms) >= 1:
            return now_ms
        return now_ms + int((1 - self._tokens) / self._per_second * 1_000) + 1
