"""What a slot begins: whatever the positions, ends and times are."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipeline.driver.range_plan import (
    InsertRateLimiter,
    PartitionBacklog,
    PlannedRange,
    RangeLimits,
    due_at_ms,
    plan_ranges,
)

LIMITS = st.builds(
    RangeLimits,
    rows_max=st.integers(1, 1_000),
    bytes_max=st.integers(1, 100_000),
    age_ms=st.integers(0, 5_000),
    ranges_max=st.integers(1, 8),
)


@st.composite
def waitings(draw: st.DrawFn) -> list[PartitionBacklog]:
    found = []
    for number in draw(st.lists(st.integers(0, 20), unique=True, max_size=12)):
        position = draw(st.integers(0, 5_000))
        found.append(
            PartitionBacklog(
                partition=number,
                position=position,
                end=draw(st.integers(0, 10_000)),
                since_ms=draw(st.integers(0, 10_000)),
                stop=draw(st.none() | st.integers(0, 10_000)),
                row_bytes=draw(st.sampled_from([0.0, 0.5, 10.0, 1e6])),
            )
        )
    return found


@given(waitings(), LIMITS, st.integers(-1, 10), st.integers(0, 20_000))
def test_ranges_follow_positions_and_stay_within_every_bound(
    waiting: list[PartitionBacklog], limits: RangeLimits, allowance: int, now_ms: int
) -> None:
    made = plan_ranges(waiting, limits, allowance=allowance, now_ms=now_ms)
    by_number = {each.partition: each for each in waiting}
    assert (
        len({each.partition for each in made.ranges}) == len(made.ranges) <= max(0, min(allowance, limits.ranges_max))
    )
    for each in made.ranges:
        of = by_number[each.partition]
        assert each.start == of.position < each.end <= of.end
        assert of.stop is None or each.end <= of.stop
        assert each.end - each.start <= limits.rows_max
        assert (each.end - each.start - 1) * of.row_bytes <= limits.bytes_max


@given(waitings(), LIMITS, st.integers(0, 20_000))
def test_what_is_due_is_begun_unless_older_ones_fill_the_plan(
    waiting: list[PartitionBacklog], limits: RangeLimits, now_ms: int
) -> None:
    made = plan_ranges(waiting, limits, allowance=1_000, now_ms=now_ms)
    begun = {each.partition for each in made.ranges}
    due = [each for each in waiting if each.rows and due_at_ms(each, limits) <= now_ms]
    assert begun <= {each.partition for each in due}
    if len(due) <= limits.ranges_max:
        assert begun == {each.partition for each in due}
    left = [each.since_ms for each in due if each.partition not in begun]
    assert not left or max(each.since_ms for each in due if each.partition in begun) <= min(left)


@given(waitings(), LIMITS, st.integers(0, 20_000))
def test_the_plan_says_when_to_check_again(waiting: list[PartitionBacklog], limits: RangeLimits, now_ms: int) -> None:
    made = plan_ranges(waiting, limits, allowance=0, now_ms=now_ms)
    some = [each for each in waiting if each.rows]
    assert made.ranges == ()
    if not some:
        assert made.next_check_ms is None
    else:
        assert made.next_check_ms == max(now_ms, min(due_at_ms(each, limits) for each in some))
        assert plan_ranges(some, limits, allowance=1_000, now_ms=made.next_check_ms).ranges


def test_few_records_wait_until_they_are_old_enough() -> None:
    limits = RangeLimits(rows_max=100, bytes_max=1_000_000, age_ms=2_000, ranges_max=8)
    some = [PartitionBacklog(partition=0, position=10, end=13, since_ms=1_000)]
    assert plan_ranges(some, limits, allowance=9, now_ms=2_999).ranges == ()
    assert plan_ranges(some, limits, allowance=9, now_ms=3_000).ranges == (PlannedRange(0, 10, 13),)


def test_the_end_of_a_backfill_is_not_waited_for() -> None:
    limits = RangeLimits(rows_max=100, bytes_max=1_000_000, age_ms=2_000, ranges_max=8)
    some = [PartitionBacklog(partition=0, position=10, end=50, since_ms=1_000, stop=13)]
    assert plan_ranges(some, limits, allowance=9, now_ms=1_000).ranges == (PlannedRange(0, 10, 13),)


@given(st.floats(0.5, 50), st.lists(st.integers(0, 2_000), max_size=40))
def test_a_rate_is_not_exceeded_by_more_than_its_burst(per_second: float, pauses: list[int]) -> None:
    rate, now_ms, spent = InsertRateLimiter(per_second, now_ms=0), 0, 0
    for pause in pauses:
        now_ms += pause
        granted = rate.allowance(now_ms)
        rate.spend(granted)
        spent += granted
        assert spent <= max(1.0, per_second) + now_ms / 1_000 * per_second + 1e-6
        assert rate.next_ms(now_ms) > now_ms or rate.allowance(now_ms) >= 1


def test_without_a_rate_there_is_no_limit() -> None:
    rate = InsertRateLimiter(0, now_ms=0)
    rate.spend(1_000_000)
    assert rate.allowance(0) > 1_000
    assert rate.next_ms(5) == 5
