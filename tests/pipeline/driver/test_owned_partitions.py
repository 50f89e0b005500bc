"""What a slot knows of its partitions, and what it does about troubles: values and times alone."""

from holdfast.pipeline.driver.owned_partitions import WARNINGS_MAX, OwnedPartition, SlotCounters, offset_errors
from holdfast.pipeline.driver.retry_state import RetryState
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom

DONE = TaskOutcome(partition=0, kind="done", rows=10, read=10, payload_bytes=1_000, newest_ms=50_000)


def test_records_wait_from_when_they_were_first_seen() -> None:
    held = OwnedPartition(0, 1, 100, None)
    held.see(100, now_ms=1_000)
    assert held.waiting.rows == 0
    held.see(105, now_ms=2_000)
    held.see(120, now_ms=3_000)
    assert (held.waiting.rows, held.since_ms) == (20, 2_000)


def test_lag_is_of_the_oldest_that_waits_once_it_has_caught_up_and_of_the_last_written_before() -> None:
    held = OwnedPartition(0, 1, 0, None)
    held.see(1_000, now_ms=1_000)
    held.moved(DONE, 500, now_ms=2_000)
    assert held.progress(now_ms=9_000, wall_ms=80_000).lag_ms == 30_000
    held.moved(DONE, 1_000, now_ms=3_000)
    held.see(1_000, now_ms=4_000)
    assert held.progress(now_ms=9_000, wall_ms=80_000).lag_ms == 0
    held.see(1_001, now_ms=8_500)
    assert held.progress(now_ms=9_000, wall_ms=80_000).lag_ms == 500
    assert held.row_bytes == 100


def test_a_backfill_is_finished_at_its_end() -> None:
    held = OwnedPartition(0, 1, 90, 100)
    held.see(500, now_ms=1)
    assert (held.waiting.rows, held.finished) == (10, False)
    held.moved(DONE, 100, now_ms=2)
    assert (held.waiting.rows, held.finished) == (0, True)


def test_offsets_that_are_gone_and_a_topic_made_again_are_said() -> None:
    assert offset_errors(OwnedPartition(0, 1, 5, None), TopicBounds((0,), (10,))) == ""
    assert "5 to 6" in offset_errors(OwnedPartition(0, 1, 5, None), TopicBounds((7,), (10,)))
    assert "made again" in offset_errors(OwnedPartition(0, 1, 11, None), TopicBounds((0,), (10,)))
    assert offset_errors(OwnedPartition(0, 1, 5, 5), TopicBounds((7,), (10,))) == ""


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


def test_what_went_wrong_is_tried_again_after_pauses_that_grow_and_end() -> None:
    clock = FakeClock()
    found = troubles(clock)
    pauses = []
    for _ in range(8):
        found.add([3], "broken")
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
    found.solve(3)
    found.turn_succeeded()
    assert found.reason == ""


def test_a_lost_partition_is_left_alone_until_it_is_claimed_under_another_epoch() -> None:
    found = troubles(FakeClock())
    found.lose(3, 7)
    assert not found.may_try(3, 7)
    assert found.may_try(3, 8)


def test_what_is_not_claimed_any_more_is_no_trouble() -> None:
    found = troubles(FakeClock())
    found.add([3, 4], "broken")
    found.only({4: 1})
    found.turn_succeeded()
    assert found.reason == "broken"
    found.only({})
    found.turn_succeeded()
    assert found.reason == ""
