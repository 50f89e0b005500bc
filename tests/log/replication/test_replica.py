"""The rules of a replica, one by one (docs/replication.md)."""

import pytest
from tests.support.replication.logs import (
    WAL,
    P,
    announce,
    answer_of,
    append,
    at,
    base,
    entry,
    facts,
    log_of,
    seal,
    start,
    tail,
)

from holdfast.log.replication.messages import Ack, Mismatch, Reject, Request, Sealed, TailEntries, WrongWal
from holdfast.log.replication.positions import NOWHERE, ReplicaEntry
from holdfast.log.replication.replica import Replica, ReplicaState, Truncation, replay
from holdfast.log.segments.model import EpochStart
from holdfast.vocabulary.errors import CorruptError

HISTORY = (start(1, 0), entry(1, 0), entry(1, 1))


def replica(*entries: ReplicaEntry, promised: int = 1) -> Replica:
    return Replica(P, WAL, promised=promised, log=log_of(*entries))


@pytest.mark.parametrize(
    "message",
    [append(2, at(1, 2)), seal(2), tail(2, NOWHERE), base(2, at(1, 9)), announce(2, 2)],
    ids=lambda each: type(each).__name__,
)
def test_a_message_below_the_promise_is_rejected_and_changes_nothing(message: Request) -> None:
    mine = replica(*HISTORY, promised=3)
    step = mine.handle(message)
    assert step.records == ()
    assert facts(mine.durable()) == (Reject, 2, 3)
    assert (mine.promised, mine.log.position) == (3, at(1, 2))


@pytest.mark.parametrize("message", [append(4, at(1, 2)), append(4, at(2, 2)), seal(4), base(4, at(1, 1))])
def test_a_higher_epoch_raises_the_promise_first_and_on_disk(message: Request) -> None:
    mine = replica(*HISTORY)
    step = mine.handle(message)
    assert step.records == (ReplicaState(4, NOWHERE),)
    assert mine.promised == 4


def test_no_answer_is_given_before_what_it_says_is_durable() -> None:
    mine = replica()
    mine.handle(append(1, NOWHERE, *HISTORY, hw=2))
    mine.handle(seal(2))
    assert (mine.matched, mine.hw) == (NOWHERE, 0)  # nothing is fsynced yet
    assert facts(mine.durable()) == (Ack, 1, at(1, 2))
    assert facts(mine.durable()) == (Sealed, 2, NOWHERE, at(1, 2), (EpochStart(1, 0),))


def test_entries_are_written_behind_the_previous_position_and_keep_their_epoch() -> None:
    mine = replica(*HISTORY)
    step = mine.handle(append(3, at(1, 2), entry(1, 2), start(3, 3)))
    assert step.records == (ReplicaState(3, NOWHERE), entry(1, 2), start(3, 3))
    assert facts(mine.durable()) == (Ack, 3, at(3, 3))
    assert [each.epoch for each in mine.log.entries] == [1, 1, 1, 1, 3]


def test_a_log_that_lacks_the_previous_position_says_what_it_has() -> None:
    mine = replica(*HISTORY, start(2, 2))
    expected = (Mismatch, 4, NOWHERE, at(2, 2), (EpochStart(1, 0), EpochStart(2, 2)))
    assert facts(answer_of(mine, append(4, at(3, 5), entry(3, 5)))) == expected
    assert (mine.promised, mine.log.position, mine.matched) == (4, at(2, 2), NOWHERE)


def test_what_conflicts_is_cut_off_in_the_same_write() -> None:
    mine = replica(*HISTORY, start(2, 2), entry(2, 2, 3))
    step = mine.handle(append(3, at(1, 1), start(3, 1), entry(3, 1)))
    assert step.records[1:] == (Truncation(at(1, 1), 5), start(3, 1), entry(3, 1))
    assert mine.log.epochs == (EpochStart(1, 0), EpochStart(3, 1))


def test_a_shorter_an_older_or_a_repeated_append_cuts_nothing_off() -> None:
    mine = replica()
    whole = append(1, NOWHERE, *HISTORY)
    assert facts(answer_of(mine, whole)) == (Ack, 1, at(1, 2))
    for late in (append(1, NOWHERE), append(1, NOWHERE, *HISTORY[:1]), append(1, at(1, 0), entry(1, 0)), whole):
        assert mine.handle(late).records == ()
        assert facts(mine.durable()) == (Ack, 1, at(1, 2))
    assert mine.log.position == at(1, 2)


def test_an_acknowledgement_counts_only_what_the_leader_of_this_epoch_has_matched() -> None:
    mine = replica(*HISTORY, entry(1, 2))
    assert facts(answer_of(mine, append(2, at(1, 1), hw=9))) == (Ack, 2, at(1, 1))
    assert mine.hw == 1  # not up to the end of its log
    assert facts(answer_of(mine, append(3, at(1, 0)))) == (Ack, 3, at(1, 0))
    assert mine.matched == at(1, 0)  # a higher promise begins anew
    assert mine.hw == 1  # and hides nothing


def test_an_announced_watermark_counts_up_to_what_is_matched_and_only_from_the_leader_in_charge() -> None:
    mine = replica(*HISTORY)
    assert answer_of(mine, announce(1, 2)) is None
    assert mine.hw == 0  # nothing was matched since the start
    answer_of(mine, append(1, at(1, 1)))
    answer_of(mine, announce(1, 2))
    assert mine.hw == 1
    assert mine.handle(announce(5, 2)).records == ()
    assert (mine.durable(), mine.promised, mine.hw) == (None, 1, 1)


def test_entries_up_to_the_base_are_skipped() -> None:
    mine = Replica(P, WAL, promised=1, log=log_of(entry(1, 2), base=at(1, 2)))
    step = mine.handle(append(1, at(1, 0), entry(1, 0), entry(1, 1), entry(1, 2), entry(1, 3)))
    assert step.records == (entry(1, 3),)
    assert facts(mine.durable()) == (Ack, 1, at(1, 4))
    assert facts(answer_of(mine, append(1, at(1, 0), entry(1, 0)))) == (Ack, 1, at(1, 4))
    fresh = Replica(P, WAL, promised=1, log=log_of(base=at(1, 2)))
    assert facts(answer_of(fresh, append(1, NOWHERE, start(1, 0)))) == (Ack, 1, at(1, 2))  # published, so equal


def test_a_seal_is_for_one_wal_alone() -> None:
    mine = replica(*HISTORY)
    assert mine.handle(seal(5, "w0")).records == ()
    assert facts(mine.durable()) == (WrongWal, 5, WAL)
    assert mine.promised == 1


def test_a_seal_describes_the_log_at_its_place_in_the_queue() -> None:
    mine = replica(*HISTORY)
    mine.handle(append(1, at(1, 2), entry(1, 2)))
    sealed = mine.handle(seal(2))
    mine.handle(append(1, at(1, 3), entry(1, 3)))
    assert sealed.records == (ReplicaState(2, NOWHERE),)
    assert [type(mine.durable()) for _ in range(3)] == [Ack, Sealed, Reject]
    assert facts(sealed.answer) == (Sealed, 2, NOWHERE, at(1, 3), (EpochStart(1, 0),))


def test_a_tail_is_given_to_the_epoch_that_was_promised_alone() -> None:
    mine = replica(*HISTORY, promised=4)
    assert facts(answer_of(mine, tail(5, NOWHERE))) == (Reject, 5, 4)
    assert facts(answer_of(mine, tail(4, at(1, 0), 1))) == (TailEntries, 4, at(1, 0), (entry(1, 0),), at(1, 2))
    assert facts(answer_of(mine, tail(4, at(1, 1)))) == (TailEntries, 4, at(1, 1), (entry(1, 1),), at(1, 2))
    assert type(answer_of(mine, tail(4, at(2, 1)))) is Mismatch


def test_a_base_replaces_a_log_that_lacks_it_and_no_other() -> None:
    mine = replica(*HISTORY)
    assert mine.handle(base(1, at(1, 1))).records == ()  # late: it has that
    assert facts(mine.durable()) == (Ack, 1, at(1, 1))
    assert mine.handle(base(3, at(2, 9))).records == (ReplicaState(3, NOWHERE), ReplicaState(3, at(2, 9), reset=True))
    assert facts(mine.durable()) == (Ack, 3, at(2, 9))
    assert (mine.log.base, mine.log.position, mine.hw) == (at(2, 9), at(2, 9), 9)
    assert mine.handle(base(3, at(1, 2))).records == ()  # late: its base is beyond it
    assert facts(mine.durable()) == (Ack, 3, at(2, 9))


def test_what_is_published_is_released_if_the_log_has_it() -> None:
    mine = replica(*HISTORY)
    step = mine.handle(append(1, at(1, 2), published=at(1, 1)))
    assert step.records == (ReplicaState(1, at(1, 1)),)
    assert step.released == at(1, 1)
    assert [each.base_offset for each in mine.log.entries] == [1]
    assert mine.handle(announce(1, 2, published=at(1, 9))).records == ()  # it does not have that
    assert mine.handle(announce(1, 2, published=at(1, 2))).records == (ReplicaState(1, at(1, 2)),)


def test_a_log_is_dropped_when_nobody_counts_it_and_the_promise_stays() -> None:
    mine = replica(*HISTORY, promised=3)
    assert mine.drop(3, ("w0", WAL)) is None  # it is a member of the set that served last
    assert mine.drop(2, ("w0", "w2")) is None  # a recovery may be counting it
    step = mine.drop(5, ("w0", "w2"))
    assert step is not None
    assert step.records == (ReplicaState(5, NOWHERE, reset=True),)
    assert (mine.promised, mine.log.position) == (5, NOWHERE)
    assert facts([mine.durable(), answer_of(mine, append(4, NOWHERE))][1]) == (Reject, 4, 5)


def test_what_was_not_written_is_taken_back() -> None:
    mine = replica(*HISTORY, start(2, 2), promised=2)
    mine.handle(append(3, at(1, 1), start(3, 1), entry(3, 1)))
    mine.handle(append(3, at(3, 2), entry(3, 2), published=at(3, 2)))
    mine.handle(base(4, at(4, 4)))
    mine.failed()
    assert (mine.promised, mine.log.position, mine.log.base, len(mine.log)) == (2, at(2, 2), NOWHERE, 4)
    assert facts(answer_of(mine, append(2, at(2, 2), entry(2, 2)))) == (Ack, 2, at(2, 3))


def test_the_part_of_a_step_that_was_written_counts() -> None:
    for written in range(4):
        mine = replica(*HISTORY, start(2, 2), promised=2)
        records = mine.handle(append(3, at(1, 1), start(3, 1), entry(3, 1))).records
        mine.failed(records[:written])
        before = (ReplicaState(2, NOWHERE), *HISTORY, start(2, 2))
        promised, log = replay((*before, *records[:written]))
        assert (mine.promised, list(mine.log.entries)) == (promised, list(log.entries))


def test_a_replay_takes_the_later_record() -> None:
    records = (
        ReplicaState(1, NOWHERE), *HISTORY, ReplicaState(2, NOWHERE), start(2, 2), entry(2, 2), ReplicaState(3, NOWHERE),
        Truncation(at(1, 1), 3), start(3, 1), entry(3, 1), ReplicaState(3, at(1, 1)),
    )  # fmt: skip
    promised, log = replay(records)
    assert (promised, log.base, list(log.entries)) == (3, at(1, 1), [start(3, 1), entry(3, 1)])
    assert replay((*records, ReplicaState(4, NOWHERE, reset=True)))[1].position == NOWHERE
    assert replay(())[0] == 0


def test_what_was_cut_off_below_the_base_stays_away_though_the_cut_is_missing_and_its_epoch_is_higher() -> None:
    """A file whose frames are copied forward leaves out what was released, the cut; an earlier one had left out less."""
    left = (start(2, 2), entry(1, 4), ReplicaState(3, at(1, 4)), start(3, 5), entry(3, 5))
    promised, log = replay(left)
    assert (promised, log.base, log.entries) == (3, at(1, 4), [entry(1, 4), start(3, 5), entry(3, 5)])


def test_a_replay_with_a_hole_is_refused() -> None:
    with pytest.raises(CorruptError, match="does not follow"):
        replay((ReplicaState(1, at(1, 1)), entry(1, 2)))


def test_an_invalid_message_changes_nothing_that_is_kept() -> None:
    mine = replica(*HISTORY)
    with pytest.raises(CorruptError, match="does not follow"):
        mine.handle(append(2, at(1, 1), start(2, 1), entry(2, 1), entry(2, 3)))
    assert (mine.promised, mine.log.position) == (1, at(1, 2))
    assert facts(answer_of(mine, append(1, at(1, 2), entry(1, 2)))) == (Ack, 1, at(1, 3))


def test_an_entry_above_the_epoch_of_its_message_is_refused() -> None:
    """It would be acknowledged, and `replay` would leave it out."""
    mine = replica(*HISTORY)
    with pytest.raises(CorruptError, match="an entry of epoch 2 in a message of epoch 1"):
        mine.handle(append(1, at(1, 2), entry(1, 2), start(2, 3), entry(2, 3)))
    assert (mine.promised, mine.log.position) == (1, at(1, 2))


def test_frames_of_a_leader_without_replicas_are_no_part_of_the_log() -> None:
    written = (ReplicaState(3, at(2, 5)), entry(4, 9), entry(4, 10))  # what lies between was published, and released
    assert replay(written)[1].position == at(2, 5)
    promised, log = replay((*written, ReplicaState(5, at(4, 11), reset=True), start(5, 11)))
    assert (promised, log.position) == (5, at(5, 11))
