"""Which ranges a slot begins now. No I/O: positions, ends and the time go in, ranges and the time to look again come out.

The one rule: a range begins at its partition's position and ends at or below what is readable and what the generation has as its
end. So the ranges of a partition follow each other without a gap and without an overlap, whatever else is decided here.

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
    """What is behind a partition's position."""

    partition: int
    position: int
    end: int
    """Up to which records can be read."""
    since_ms: int
    """When a record behind the position was first seen."""
    stop: int | None = None
    """The generation's end."""
    row_bytes: float = 0.0
    """What a record of this partition takes, by the last ranges; 0: nothing is known."""

    @property
    def until(self) -> int:
        """Where planning ends now."""
        return self.end if self.stop is None else min(self.end, self.stop)

    @property
    def rows(self) -> int:
        """How many offsets wait."""
        return max(0, self.until - self.position)


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets of a partition; `end` is not part of it."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RangePlan:
    """What to begin now, and when to look again if nothing new comes. None: nothing waits."""

    ranges: tuple[PlannedRange, ...]
    next_check_ms: int | None


def plan_ranges(waiting: Iterable[PartitionBacklog], limits: RangeLimits, *, allowance: int, now_ms: int) -> RangePlan:
    """Decide. `allowance` is how many inserts the rate limit leaves."""
    some = sorted((each for each in waiting if each.rows), key=lambda each: (each.since_ms, each.partition))
    due = [each for each in some if due_at_ms(each, limits) <= now_ms]
    begun = due[: max(0, min(allowance, limits.ranges_max))]
    taken = {each.partition for each in begun}
    later = [max(now_ms, due_at_ms(each, limits)) for each in some if each.partition not in taken]
    ranges = tuple(PlannedRange(each.partition, each.position, first_end(each, limits)) for each in begun)
    return RangePlan(ranges, min(later, default=None))


def due_at_ms(waiting: PartitionBacklog, limits: RangeLimits) -> int:
    """When a range is due."""
    full = waiting.rows >= limits.rows_max or waiting.rows * waiting.row_bytes >= limits.bytes_max
    last = waiting.stop is not None and waiting.until == waiting.stop
    return waiting.since_ms if full or last else waiting.since_ms + limits.age_ms


def first_end(waiting: PartitionBacklog, limits: RangeLimits) -> int:
    """Where the first range behind the position ends: at most as many rows, and bytes as far as they are known."""
    rows = min(waiting.rows, limits.rows_max)
    if waiting.row_bytes > 0:
        rows = min(rows, max(1, int(limits.bytes_max / waiting.row_bytes)))
    return waiting.position + rows


class InsertRateLimiter:
    """At most so many inserts a second, with a burst of one second's worth. 0: no limit."""

    def __init__(self, per_second: float, *, now_ms: int) -> None:
        check_at_least("insert_rate_per_second", per_second, 0)
        self._per_second, self._at_ms = per_second, now_ms
        self._left = self._most

    @property
    def _most(self) -> float:
        return max(1.0, self._per_second * RATE_BURST_S)

    def allowance(self, now_ms: int) -> int:
        """How many inserts may begin now."""
        if self._per_second == 0:
            return 1_000_000
        self._left = min(self._most, self._left + (now_ms - self._at_ms) / 1_000 * self._per_second)
        self._at_ms = now_ms
        return int(self._left + 1e-9)

    def spend(self, inserts: int) -> None:
        """They have begun."""
        if self._per_second:
            self._left -= inserts

    def next_ms(self, now_ms: int) -> int:
        """When one more may begin."""
        if self._per_second == 0 or self.allowance(now_ms) >= 1:
            return now_ms
        return now_ms + int((1 - self._left) / self._per_second * 1_000) + 1
