"""The checker: a history that cannot be true of one log is told from one that can."""

import pytest
from tests.support.log_crash.history import History
from tests.support.log_crash.workload import Name, name_in, records_in, value_of

ACKED = ["opened a 0 1 0 0", "acked a 0 1 0 0 1", "acked a 0 1 1 1 4"]
FOUND = ["reading a", "found a 0 0 1/0/0", "found a 0 1 1/1/0", "found a 0 2 1/1/1", "found a 0 3 1/1/2", "ended a 0 4"]


def faults(*lines: str) -> list[str]:
    return History.of(lines).judge().faults


def test_the_batches_these_tests_speak_of() -> None:
    assert [records_in(1, batch) for batch in (0, 1)] == [1, 3]


def test_a_true_history_has_no_faults() -> None:
    verdict = History.of([*ACKED, *FOUND]).judge()
    assert (verdict.acked, verdict.losses, verdict.duplicates, verdict.faults) == (4, 0, 0, [])


def test_a_loss() -> None:
    verdict = History.of([*ACKED, *FOUND[:-2], "ended a 0 3"]).judge()
    assert (verdict.losses, verdict.duplicates) == (1, 0)


def test_a_duplicate() -> None:
    verdict = History.of([*ACKED, *FOUND[:-1], "found a 0 4 1/1/2", "ended a 0 5"]).judge()
    assert (verdict.losses, verdict.duplicates) == (0, 1)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (ACKED, "never read to its end"),
        ([*ACKED, "acked a 0 1 0 7 8", *FOUND], "acknowledged at 0 and 7"),
        ([*ACKED, "acked a 0 1 2 4 9", *FOUND], r"acknowledged at \[4, 9\)"),
        ([*ACKED, "opened b 0 1 4 4", *FOUND], "epoch 1 began after epoch 1"),
        ([*ACKED, "opened b 0 2 3 3", *FOUND], "opened at 3, but 3 was acknowledged"),
        ([*ACKED, "watermark a 0 4", "watermark a 0 2", *FOUND], "went back to 2"),
        ([*ACKED, "watermark a 0 4", "opened b 0 2 4 2", *FOUND], "opened at watermark 2, after 4"),
        ([*ACKED, "watermark a 0 9", *FOUND], "ends at 4; readers were let up to 9"),
        ([*ACKED, "watermark a 0 1", "seen a 0 1 1/1/0", *FOUND], "beyond the watermark"),
        ([*ACKED, "watermark a 0 4", "seen a 0 1 1/1/0", "seen a 0 1 1/1/1", *FOUND], "and later 1/1/1"),
        ([*ACKED, "watermark a 0 4", "seen a 0 1 1/1/1", *FOUND], "1/1/1 was seen at 1, where 1/1/0 is"),
        (["reading a", "found a 0 0 1/1/0", "ended a 0 1"], "1/1/0 is at 0, where 1/0/0 should follow"),
        ([*FOUND[:-1], "ended a 0 2"], "3 was found, beyond the watermark 2"),
        (["reading a", "found a 0 3 1/0/0", "found a 0 2 1/1/0", "ended a 0 4"], "found at 2, after 3"),
        ([*ACKED, "wrong a 0 3", *FOUND], "partition 0: 3"),
    ],
)
def test_what_cannot_be(lines: list[str], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        assert not faults(*lines), "; ".join(faults(*lines))


def test_a_producer_goes_on_with_the_first_batch_that_was_not_acknowledged() -> None:
    history = History.of([*ACKED, "acked a 0 1 3 9 12"])
    assert history.next_batch(0, 1) == 2
    assert history.next_batch(0, 2) == 0


def test_a_damaged_value_belongs_to_no_producer() -> None:
    value = value_of(Name(1, 2, 3))
    assert name_in(value) == Name(1, 2, 3)
    assert name_in(value[:-1] + b"!") is None
    assert name_in(None) is None
