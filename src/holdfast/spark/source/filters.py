"""Pushed-down filters, as bounds on what is read.

The one rule: a filter is taken over from Spark only if the source applies it to the row. Filters on `topic`, `partition` and
`offset` are; one on `timestamp` only decides which segments and blocks are read, and Spark applies it again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.spark.ranges import TimeBounds

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_END: Final = 1 << 63


@dataclass(slots=True)
class FilterBounds:
    """Topics, partitions, offsets and times that the filters leave."""

    topics: set[str] | None = None
    partitions: "list[IntRange]" = field(default_factory=list)
    partitions_in: set[int] | None = None
    offsets: "IntRange" = field(default_factory=lambda: IntRange())
    floor_ms: int | None = None
    ceiling_ms: int | None = None

    def wants(self, topic: str, partition: int) -> bool:
        """Whether a partition may hold rows that pass."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions_in is None or partition in self.partitions_in)
            and all(each.start <= partition < each.end for each in self.partitions)
        )

    def times(self, disorder_ms: int | None) -> TimeBounds:
        """The time bounds."""
        return TimeBounds(floor_ms=self.floor_ms, ceiling_ms=self.ceiling_ms, disorder_ms=disorder_ms)


@dataclass(frozen=True, slots=True)
class IntRange:
    """Integers from `start` to before `end`."""

    start: int = 0
    end: int = _NO_END

    def intersection(self, other: "IntRange") -> "IntRange":
        """The integers in both."""
        return IntRange(max(self.start, other.start), min(self.end, other.end))


def push_filters(filters: Iterable["Filter"]) -> "tuple[FilterBounds, list[Filter]]":
    """The bounds that follow from the filters, and the filters that Spark must apply itself."""
    bounds = FilterBounds()
    return bounds, [each for each in filters if not _push_filter(bounds, each)]


def _push_filter(bounds: FilterBounds, given: "Filter") -> bool:
    """Add one filter to the bounds; whether they now apply it to the row."""
    name, values = type(given).__name__, _values(given)
    column: tuple[str, ...] = getattr(given, "attribute", ())
    if len(column) != 1 or values is None:
        return name == "IsNotNull" and column in (("topic",), ("partition",), ("offset",), ("timestamp",))
    if column[0] == "topic" and name in ("EqualTo", "EqualNullSafe", "In"):
        bounds.topics = set(values) if bounds.topics is None else bounds.topics & set(values)
        return True
    if column[0] in ("partition", "offset") and all(type(value) is int for value in values):
        return _push_number(bounds, column[0], name, values)
    if column[0] == "timestamp" and all(isinstance(value, datetime) and value.tzinfo for value in values):
        _push_time(bounds, name, values)
    return False


def _push_number(bounds: FilterBounds, column: str, name: str, values: Sequence[int]) -> bool:
    values_range = _int_range(name, values)
    if column == "partition":
        if name == "In":
            bounds.partitions_in = set(values) if bounds.partitions_in is None else bounds.partitions_in & set(values)
        elif values_range is not None:
            bounds.partitions.append(values_range)
        return name == "In" or values_range is not None
    if values_range is None:
        return False
    bounds.offsets = bounds.offsets.intersection(values_range)
    return name != "In"  # the range may contain other offsets


def _int_range(name: str, values: Sequence[int]) -> IntRange | None:
    if not values:
        return IntRange(0, 0)
    value = values[0]
    ranges = {
        "EqualTo": IntRange(value, value + 1),
        "EqualNullSafe": IntRange(value, value + 1),
        "GreaterThan": IntRange(value + 1),
        "GreaterThanOrEqual": IntRange(value),
        "LessThan": IntRange(end=value),
        "LessThanOrEqual": IntRange(end=value + 1),
        "In": IntRange(min(values), max(values) + 1),
    }
    return ranges.get(name)


def _push_time(bounds: FilterBounds, name: str, values: Sequence[datetime]) -> None:
    if not values:
        return
    least, greatest = _floor_ms(min(values)), _floor_ms(max(values))
    if name in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "In"):
        bounds.floor_ms = least if bounds.floor_ms is None else max(bounds.floor_ms, least)
    if name in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "In"):
        bounds.ceiling_ms = greatest if bounds.ceiling_ms is None else min(bounds.ceiling_ms, greatest)


def _floor_ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _values(given: "Filter") -> Sequence[Any] | None:
    """The operands; None for a filter without one, or with null."""
    if not hasattr(given, "value"):
        return None
    value = given.value
    values = list(value) if type(given).__name__ == "In" else [value]
    return [each for each in values if each is not None] if type(given).__name__ == "In" else _none_if_null(values)


def _none_if_null(values: list[Any]) -> list[Any] | None:
    return None if None in values else values
