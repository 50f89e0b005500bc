"""Where ranges are cut: from the list of segments alone, within the limits, nothing lost and nothing twice."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.client.splits import (
    TAIL_RECORD_BYTES,
    EstimatedRange,
    estimate_ranges,
    limit_each,
    split_by_size,
    total_size,
)
from holdfast.client.types import PartitionRange
from holdfast.log.metadata import SegmentRecord
from holdfast.spark.source.plan import SourceRange
from holdfast.spark.source.tasks import group_by_size, split_by_rows


def segment(base: int, end: int, records: int | None = None, size: int = 0) -> SegmentRecord:
    count = end - base if records is None else records
    return SegmentRecord(
        base_offset=base, end_offset=end, object=f"o{base}", start=0, end=size or 100 * (end - base), epoch=1,
        records=count, min_timestamp_ms=0, max_timestamp_ms=0,
    )  # fmt: skip


@some.composite
def logs(draw: some.DrawFn) -> tuple[list[SegmentRecord], int, int]:
    at, found = draw(some.integers(0, 50)), []
    for _ in range(draw(some.integers(0, 8))):
        at += draw(some.integers(0, 20))
        span = draw(some.integers(1, 200))
        found.append(segment(at, at + span, draw(some.integers(0, span)), draw(some.integers(1, 50_000))))
        at += span
    start = draw(some.integers(0, at + 50))
    return found, start, draw(some.integers(start + 1, start + at + 100))


def touching(segments: Sequence[SegmentRecord], start: int, end: int) -> list[SegmentRecord]:
    return [each for each in segments if each.end_offset > start and each.base_offset < end]


def size(found: Sequence[EstimatedRange], start: int, end: int, rows_max: int, bytes_max: int) -> float:
    """How full offsets [start, end) make a part."""
    shared = [(each, min(each.end, end) - max(each.start, start)) for each in found]
    shares = [(each, both / (each.end - each.start)) for each, both in shared if both > 0]
    rows, stored = (sum(each.rows * share for each, share in shares), sum(each.bytes * share for each, share in shares))
    return max(rows / rows_max, stored / bytes_max)


@given(logs(), some.integers(1, 300), some.integers(1, 60_000))
def test_parts_are_consecutive_and_cover_the_range(
    log: tuple[list[SegmentRecord], int, int], rows_max: int, bytes_max: int
) -> None:
    segments, start, end = log
    found = estimate_ranges(touching(segments, start, end), start, end)
    parts = split_by_size(found, rows_max=rows_max, bytes_max=bytes_max)
    assert [parts[0].start, *(part.end for part in parts)] == [*(part.start for part in parts), end]
    assert parts[0].start == start
    assert all(part.start < part.end for part in parts)
    for part in parts:
        assert part.size == pytest.approx(size(found, part.start, part.end, rows_max, bytes_max))
        # One record may be too large by itself; then nothing else of any size is with it.
        assert part.size <= 1.001 or part.size == pytest.approx(
            size(found, part.start, part.start + 1, rows_max, bytes_max)
        )
    assert parts == split_by_size(found, rows_max=rows_max, bytes_max=bytes_max)


def test_a_topic_that_is_not_compacted_is_cut_to_the_row() -> None:
    found = estimate_ranges([segment(0, 1_000), segment(1_000, 2_500)], 10, 2_500)
    parts = split_by_size(found, rows_max=400, bytes_max=1 << 40)
    assert [part.end - part.start for part in parts] == [400] * 6 + [90]


def test_rows_of_a_compacted_segment_are_counted_not_its_offsets() -> None:
    parts = split_by_size(estimate_ranges([segment(0, 10_000, records=100)], 0, 10_000), rows_max=50, bytes_max=1 << 40)
    assert [(part.start, part.end) for part in parts] == [(0, 5_000), (5_000, 10_000)]


def test_bytes_are_those_that_are_stored() -> None:
    parts = split_by_size(estimate_ranges([segment(0, 100, size=10_000)], 0, 100), rows_max=1 << 40, bytes_max=2_500)
    assert [part.end for part in parts] == [25, 50, 75, 100]


def test_the_tail_is_estimated_by_the_last_segment() -> None:
    found = total_size(estimate_ranges([segment(0, 10, size=5_000)], 9, 20))
    assert (found.rows, found.tail_rows, found.tail_bytes) == (11, 10, 5_000)
    assert total_size(estimate_ranges([], 0, 10)).tail_bytes == 10 * TAIL_RECORD_BYTES


def test_limits_are_shared_in_proportion_to_size() -> None:
    found = [estimate_ranges([segment(0, 900)], 0, 900), estimate_ranges([segment(50, 150)], 50, 150)]
    assert limit_each(found, rows_max=100, bytes_max=1 << 40) == [90, 60]
    assert limit_each(found, rows_max=1 << 40, bytes_max=10_000) == [90, 60]
    assert limit_each(found, rows_max=1_000, bytes_max=1 << 40) == [900, 150]


def test_however_small_the_limit_one_range_advances() -> None:
    found = [estimate_ranges([segment(0, 9)], 0, 9), estimate_ranges([segment(0, 10)], 0, 10)]
    assert limit_each(found, rows_max=1, bytes_max=1) == [0, 1]


@given(some.lists(some.tuples(some.integers(0, 500), some.integers(1, 3_000)), max_size=20), some.integers(1, 700))
def test_tasks_of_a_stream_follow_from_its_ranges_alone(spans: list[tuple[int, int]], rows_max: int) -> None:
    pieces = [SourceRange(PartitionRange("t", at, start, start + rows), "id") for at, (start, rows) in enumerate(spans)]
    parts = split_by_rows(pieces, rows_max)
    groups = group_by_size(parts, [(each.range.end - each.range.start) / rows_max for each in parts])
    assert [each for group in groups for each in group] == parts
    assert groups == group_by_size(
        split_by_rows(list(pieces), rows_max), [(p.range.end - p.range.start) / rows_max for p in parts]
    )
    for group in groups:
        assert sum(each.range.end - each.range.start for each in group) <= rows_max
    for piece in pieces:
        mine = [each.range for each in parts if each.range.partition == piece.range.partition]
        assert [mine[0].start, *(each.end for each in mine)] == [*(each.start for each in mine), piece.range.end]
        assert max(e.end - e.start for e in mine) - min(e.end - e.start for e in mine) <= 1


def test_small_ranges_share_a_task() -> None:
    pieces = [SourceRange(PartitionRange("t", number, 0, 10), "id") for number in range(100)]
    groups = group_by_size(pieces, [0.1] * 100)
    assert [len(group) for group in groups] == [10] * 10


def test_a_gap_at_the_end_of_what_is_published_holds_no_rows() -> None:
    found = estimate_ranges([segment(0, 10, size=5_000)], 5, 1_000_020, published=1_000_000)
    assert [(each.start, each.end, each.rows) for each in found] == [
        (5, 10, 5),
        (10, 1_000_000, 0),
        (1_000_000, 1_000_020, 20),
    ]
    assert total_size(found).tail_rows == 20
    assert len(split_by_size(found, rows_max=100, bytes_max=1 << 40)) == 1
    only = split_by_size(estimate_ranges([], 10, 500, published=1_000), rows_max=100, bytes_max=1 << 40)
    assert [(part.start, part.end) for part in only] == [(10, 500)]
