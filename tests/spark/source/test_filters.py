"""Filters become bounds; those that are not obeyed to the row are left to Spark."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from holdfast.log.metadata import SegmentRecord
from holdfast.spark.source.filters import IntRange, push_filters


def at(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def segment(least_ms: int, greatest_ms: int) -> SegmentRecord:
    return SegmentRecord(
        base_offset=0, end_offset=9, object="o", start=0, end=9, epoch=1, records=9,
        min_timestamp_ms=least_ms, max_timestamp_ms=greatest_ms,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "span"),
    [
        (EqualTo(("offset",), 7), IntRange(7, 8)),
        (EqualNullSafe(("offset",), 7), IntRange(7, 8)),
        (GreaterThan(("offset",), 7), IntRange(8)),
        (GreaterThanOrEqual(("offset",), 7), IntRange(7)),
        (LessThan(("offset",), 7), IntRange(0, 7)),
        (LessThanOrEqual(("offset",), 7), IntRange(0, 8)),
    ],
)
def test_offset_filters_are_exact(given: Filter, span: IntRange) -> None:
    bounds, left = push_filters([given, IsNotNull(("offset",))])
    assert (bounds.offsets, left) == (span, [])


def test_offsets_out_of_a_set_bound_the_range_and_are_left_to_spark() -> None:
    among = In(("offset",), (3, 9, 5))
    bounds, left = push_filters([among])
    assert (bounds.offsets, left) == (IntRange(3, 10), [among])


def test_topics_and_partitions_are_chosen() -> None:
    bounds, left = push_filters([In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), LessThan(("partition",), 4),
                         In(("partition",), (1, 3, 5)), GreaterThan(("partition",), 0)])  # fmt: skip
    chosen = [(topic, number) for topic in "abc" for number in range(8) if bounds.wants(topic, number)]
    assert (chosen, left) == ([("b", 1), ("b", 3)], [])


@pytest.mark.parametrize(
    "given",
    [
        Not(EqualTo(("offset",), 3)),
        EqualTo(("offset",), None),
        EqualTo(("key",), b"x"),
        EqualTo(("headers", "key"), "x"),
        StringStartsWith(("topic",), "a"),
        EqualTo(("offset",), 1.5),
        EqualTo(("timestamp",), datetime(2026, 1, 1)),
    ],
)
def test_unsupported_filters_are_left_to_spark_and_bound_nothing(given: Any) -> None:
    bounds, left = push_filters([given])
    assert left == [given]
    assert bounds.offsets == IntRange()
    assert (bounds.floor_ms, bounds.ceiling_ms, bounds.topics) == (None, None, None)


def test_times_bound_what_is_read_and_spark_filters_again() -> None:
    filters: list[Filter] = [GreaterThanOrEqual(("timestamp",), at(1_000.5)), LessThan(("timestamp",), at(2_000))]
    bounds, left = push_filters(filters)
    assert left == filters
    assert (bounds.floor_ms, bounds.ceiling_ms) == (1_000, 2_000)


def test_a_segment_older_than_the_bounds_is_skipped() -> None:
    times = push_filters([GreaterThan(("timestamp",), at(1_000))])[0].times(None)
    assert not times.may_contain(segment(0, 999))
    assert times.may_contain(segment(0, 1_000))
    assert times.may_contain(segment(-1, -1))  # without timestamps it is unknown


def test_a_segment_newer_than_the_bounds_is_skipped_only_if_the_disorder_is_known() -> None:
    # A batch has its first record's time and its greatest: a later record may be older than the first.
    bounds = push_filters([LessThan(("timestamp",), at(1_000))])[0]
    assert bounds.times(None).may_contain(segment(999_999, 999_999))
    assert bounds.times(500).may_contain(segment(1_500, 1_600))
    assert not bounds.times(500).may_contain(segment(1_501, 1_600))
    assert bounds.times(500).may_contain(segment(-1, -1))
