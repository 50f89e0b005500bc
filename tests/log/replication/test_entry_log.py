"""Positions of a log, and where two logs part."""

from collections.abc import Callable

import pytest
from tests.support.replication.logs import at, entry, log_of, start

from holdfast.log.replication.entry_log import EntryLog, find_fork
from holdfast.log.replication.positions import NOWHERE, Position
from holdfast.log.replication.quorum import reached_by, seal_quorum, write_quorum
from holdfast.log.segments.model import EpochStart
from holdfast.vocabulary.errors import CorruptError


def fork(ours: EntryLog, theirs: EntryLog) -> Position | None:
    return find_fork(ours, theirs.base, theirs.position, theirs.epochs)


def test_positions_are_ordered_by_epoch_and_then_by_offset() -> None:
    assert at(2, 1) > at(1, 9) > at(1, 8) > NOWHERE


def test_an_epoch_start_entry_changes_the_position_and_takes_no_offset() -> None:
    log = log_of(start(1, 0), entry(1, 0, 2), start(3, 2))
    assert log.position == at(3, 2)
    assert log.epochs == (EpochStart(1, 0), EpochStart(3, 2))
    assert [log.contains(each) for each in (NOWHERE, at(1, 0), at(1, 2), at(3, 2))] == [True] * 4
    assert not any(log.contains(each) for each in (at(1, 1), at(2, 2), at(3, 3)))
    assert log.position_at(2) == at(3, 2)


@pytest.mark.parametrize("wrong", [entry(1, 3), entry(1, 1), entry(0, 2), start(1, 2), start(2, 1)])
def test_an_entry_that_does_not_follow_is_refused(wrong: object) -> None:
    with pytest.raises(CorruptError, match="does not follow"):
        log_of(start(1, 0), entry(1, 0, 2)).append(wrong)  # type: ignore[arg-type]


def test_an_epoch_may_start_above_the_last_offset() -> None:
    log = log_of(entry(1, 0, 2), start(2, 10), entry(2, 10))
    assert log.position == at(2, 11)
    with pytest.raises(CorruptError, match="not the end of an entry"):
        log.position_at(5)


def test_entries_are_read_in_pieces_of_at_least_one() -> None:
    log = log_of(start(1, 0), entry(1, 0, data=b"abc"), entry(1, 1, data=b"def"), entry(1, 2, data=b"ghi"))
    assert len(log.after(NOWHERE)) == 4
    assert [each.base_offset for each in log.after(at(1, 1), 1)] == [1]
    assert [each.base_offset for each in log.after(at(1, 1), 6)] == [1, 2]
    assert log.after(at(1, 3), 6) == ()


def test_a_log_is_restored_to_what_it_was() -> None:
    log = log_of(start(1, 0), entry(1, 0), entry(1, 1))
    snapshots = []
    changes: tuple[Callable[[], None], ...] = (
        lambda: log.append(entry(1, 2)),
        lambda: log.truncate(at(1, 1)),
        lambda: log.append(start(2, 1)),
        lambda: log.release(at(1, 1)),
        lambda: log.reset(at(7, 7)),
    )
    for change in changes:
        snapshots.append((log.snapshot(), list(log.entries), log.base))
        change()
    for snapshot, entries, base in reversed(snapshots):
        log.restore(snapshot)
        assert (list(log.entries), log.base) == (entries, base)


def test_a_fork_is_the_last_position_that_both_have() -> None:
    ours = log_of(start(1, 0), entry(1, 0), entry(1, 1), start(3, 2), entry(3, 2))
    assert fork(ours, log_of(start(1, 0), entry(1, 0))) == at(1, 1)
    assert fork(ours, log_of(start(1, 0), entry(1, 0), start(2, 1), entry(2, 1), entry(2, 2))) == at(1, 1)
    assert fork(ours, log_of(start(1, 0), entry(1, 0), entry(1, 1), entry(1, 2), entry(1, 3))) == at(1, 2)
    assert fork(ours, log_of(*ours.entries)) == at(3, 3)
    assert fork(ours, log_of(*ours.entries[:4])) == at(3, 2)
    assert fork(ours, log_of()) == NOWHERE
    assert fork(ours, log_of(start(2, 0), entry(2, 0))) == NOWHERE


def test_a_fork_below_the_base_is_none() -> None:
    ours = log_of(entry(1, 5), start(3, 6), base=at(1, 5))
    assert fork(ours, log_of(start(1, 0), entry(1, 0))) is None
    assert fork(ours, log_of()) is None
    assert fork(ours, log_of(start(1, 0), entry(1, 0, 5))) == at(1, 5)
    assert fork(ours, log_of(base=at(1, 6))) == at(1, 6)
    assert fork(ours, log_of(start(2, 5), entry(2, 5), base=at(1, 5))) == at(1, 5)


def test_a_fork_before_a_gap_is_a_position_of_the_log() -> None:
    ours = log_of(start(1, 0), entry(1, 0), start(3, 10))
    assert fork(ours, log_of(start(1, 0), entry(1, 0), start(2, 10))) == at(1, 1)


def test_any_write_quorum_meets_any_seal_quorum() -> None:
    assert [(write_quorum(size), seal_quorum(size)) for size in (1, 2, 3, 4, 5)] == [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 2),
        (3, 3),
    ]
    assert all(write_quorum(size) + seal_quorum(size) > size for size in range(1, 10))
    assert reached_by([at(1, 5), at(2, 1), NOWHERE], 2) == at(1, 5)
    assert reached_by([at(1, 5)], 2) is None
