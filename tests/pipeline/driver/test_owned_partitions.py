"""What a slot knows of its partitions, and what it does about troubles: values and times alone."""

from holdfast.pipeline.driver.owned_partitions import (
    WARNINGS_MAX,
    SlotCounters,
    TakenPartition,
    deleted_unread,
    offset_errors,
)
from holdfast.pipeline.driver.retry_state import RetryState
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom

DONE = TaskOutcome(partition=0, kind="done", rows=10, read=10, payload_bytes=1_000, newest_ms=50_000)


def test_records_wait_from_when_they_were_first_seen() -> None:
    held = TakenPartition(0, 1, 100, None)
    held.update_end(100, now_ms=1_000)
    assert held.backlog.rows == 0
    held.update_end(105, now_ms=2_000)
    held.update_end(120, now_ms=3_000)
    assert (held.backlog.rows, held.since_ms) == (20, 2_000)


def test_lag_is_the_age_of_the_oldest_backlog_once_caught_up_and_of_the_last_record_before() -> None:
    held = TakenPartition(0, 1, 0, None)
    held.update_end(1_000, now_ms=1_000)
    held.advance(DONE, 500, now_ms=2_000)
    assert held.progress(now_ms=9_000, wall_ms=80_000).lag_ms == 30_000
    held.advance(DONE, 1_000, now_ms=3_000)
    held.update_end(1_000, now_ms=4_000)
    assert held.progress(now_ms=9_000, wall_ms=80_000).lag_ms == 0
    held.update_end(1_001, now_ms=8_500)
    assert held.progress(now_ms=9_000, wall_ms=80_000).lag_ms == 500
    assert held.row_bytes == 100


def test_a_backfill_is_finished_at_its_end() -> None:
    held = TakenPartition(0, 1, 90, 100)
    held.update_end(500, now_ms=1)
    assert (held.backlog.rows, held.finished) == (10, False)
    held.advance(DONE, 100, now_ms=2)
    assert (held.backlog.rows, held.finished) == (0, True)


def test_deleted_offsets_and_a_recreated_topic_are_reported() -> None:
    assert offset_errors(TakenPartition(0, 1, 5, None), TopicBounds((0,), (10,))) == ""
    assert "5 to 6" in offset_errors(TakenPartition(0, 1, 5, None), TopicBounds((7,), (10,)))
    assert "recreated" in offset_errors(TakenPartition(0, 1, 11, None), TopicBounds((0,), (10,)))
    assert offset_errors(TakenPartition(0, 1, 5, 5), TopicBounds((7,), (10,))) == ""


def test_partitions_whose_next_records_are_gone_are_found_before_a_range_is_begun() -> None:
    bounds = TopicBounds((7, 0, 7, 7), (10, 10, 10, 10))
    owned = [TakenPartition(0, 1, 5, None), TakenPartition(1, 1, 5, None), TakenPartition(2, 1, 7, None)]
    gone = deleted_unread([*owned, TakenPartition(3, 1, 5, 5)], bounds)
    assert gone.keys() == {0}
    assert "5 to 6" in gone[0]


def test_warnings_are_kept_once_and_the_newest_of_them() -> None:
    tally = SlotCounters()
    for number in range(WARNINGS_MAX + 5):
        tally.warn(f"w{number}", "again")
    assert len(tally.warnings) == WARNINGS_MAX
    assert list(tally.warnings)[-1] == "again"
    assert "w0" not in tally.warnings


def troubles(clock: FakeClock) -> RetryState:
    settings = DriverSettings(retry_base_ms=100, retry_max_ms=1_000)
    return RetryState(settings, clock=clock, random=SeededRandom(1))


def test_failed_partitions_are_retried_after_growing_pauses() -> None:
    clock = FakeClock()
    found = troubles(clock)
    pauses = []
    for _ in range(8):
        found.retry_later([3], "broken")
        began_ms = clock.boot_ms()
        assert not found.may_try(3, 1)
        while not found.may_try(3, 1):
            clock.advance_ms(1)
        pauses.append(clock.boot_ms() - began_ms)
    assert pauses[0] <= 120
    assert 300 <= pauses[2] <= 480
    assert all(800 <= pause <= 1_200 for pause in pauses[5:])
    found.turn_succeeded()
    assert found.reason == "broken"  # partition 3 has not come back yet
    found.clear(3)
    found.turn_succeeded()
    assert found.reason == ""


def test_a_lost_partition_is_left_alone_until_it_is_claimed_under_another_epoch() -> None:
    found = troubles(FakeClock())
    found.fenced(3, 7)
    assert not found.may_try(3, 7)
    assert found.may_try(3, 8)


def test_an_unclaimed_partition_is_not_retried() -> None:
    found = troubles(FakeClock())
    found.retry_later([3, 4], "broken")
    found.keep_only({4: 1})
    found.turn_succeeded()
    assert found.reason == "broken"
    found.keep_only({})
    found.turn_succeeded()
    assert found.reason == ""
