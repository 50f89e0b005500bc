"""A leader's part: what it sends to whom, what it acknowledges, who is in sync."""

from typing import Any

import pytest
from tests.support.replication.logs import P, at, entry, log_of, start

from holdfast.log.replication.leader import Ended, Leader
from holdfast.log.replication.messages import Ack, Announce, Append, Base, Mismatch, Reject
from holdfast.log.replication.positions import NOWHERE, Position, ReplicaEntry
from holdfast.log.replication.replica import Replica
from holdfast.vocabulary.errors import InvalidError

ABC = ("a", "b", "c")
ALL = 1 << 20


def leader(*entries: ReplicaEntry, base: Position = NOWHERE, members: tuple[str, ...] = ABC, **options: Any) -> Leader:
    return Leader(P, 5, log_of(*entries, base=base), members, now_ms=0, **options)


def serving(**options: Any) -> Leader:
    made = leader(**options)
    for member in made.members[:2]:
        acked(made, member, made.start)
    assert made.may_open
    made.open()
    return made


def acked(lead: Leader, member: str, matched: Position, now_ms: float = 0) -> None:
    lead.handle(member, Ack(partition=P, epoch=5, matched=matched), now_ms)


def test_an_epoch_opens_when_w_members_have_its_epoch_start_entry() -> None:
    lead = leader(start(1, 0), entry(1, 0))
    assert lead.log.entries[-1] == start(5, 1)
    acked(lead, "a", at(5, 1))
    acked(lead, "b", at(1, 1))  # the offset alone does not show it
    assert not lead.may_open
    assert lead.hw == 0  # nothing is visible above what is published
    acked(lead, "c", at(5, 1))
    assert lead.may_open
    lead.open()
    assert lead.hw == 1


def test_nothing_is_appended_before_the_epoch_is_opened_nor_after_its_end() -> None:
    lead = leader()
    with pytest.raises(InvalidError, match="a leader that serves"):
        lead.append(1, (b"x",))
    lead = serving()
    lead.end(Ended("the lease was lost"))
    with pytest.raises(InvalidError, match="a leader that serves"):
        lead.append(1, (b"x",))


def test_a_member_that_has_what_was_never_sent_ends_the_leader_and_acknowledges_nothing() -> None:
    """Somebody else leads in this epoch, or the member is broken: counted, it would make up for one that has nothing."""
    lead = serving()
    lead.append(2, (b"x",))
    acked(lead, "b", at(5, 9))
    acked(lead, "a", at(5, 2))
    assert lead.hw == 0
    assert lead.ended is not None
    assert (
        lead.ended.reason
        == "replica b has Position(epoch=5, offset=9), and the log ends at Position(epoch=5, offset=2)"
    )


def test_an_append_is_acknowledged_when_a_majority_has_fsynced_it() -> None:
    lead = serving()
    lead.append(2, (b"x",))
    lead.append(1, (b"y",))
    acked(lead, "a", at(5, 3))
    assert lead.hw == 0
    acked(lead, "b", at(5, 2))
    assert lead.hw == 2
    acked(lead, "c", at(5, 3))
    assert lead.hw == 3
    acked(lead, "b", at(5, 0))  # late
    assert lead.hw == 3


def test_min_insync_raises_what_is_needed_and_never_lowers_it() -> None:
    lead = serving(min_insync=3)
    lead.append(1, (b"x",))
    acked(lead, "a", at(5, 1))
    acked(lead, "b", at(5, 1))
    assert lead.hw == 0
    acked(lead, "c", at(5, 1))
    assert lead.hw == 1
    lead = serving(min_insync=1)
    lead.append(1, (b"x",))
    acked(lead, "a", at(5, 1))
    assert lead.hw == 0


def test_two_replicas_both_have_to_have_it() -> None:
    lead = serving(members=("a", "b"))
    lead.append(1, (b"x",))
    acked(lead, "a", at(5, 1))
    assert lead.hw == 0
    acked(lead, "b", at(5, 1))
    assert lead.hw == 1


def test_answers_of_other_epochs_and_of_others_do_not_count() -> None:
    lead = serving()
    lead.append(1, (b"x",))
    for epoch in (4, 6):
        for member in ABC:
            lead.handle(member, Ack(partition=P, epoch=epoch, matched=at(5, 1)), 0)
    acked(lead, "a", at(5, 1))
    acked(lead, "d", at(5, 1))
    assert lead.hw == 0


def test_a_learner_gets_everything_and_is_not_counted() -> None:
    lead = serving(learners=("d",))
    lead.append(1, (b"x",))
    acked(lead, "a", at(5, 1))
    assert isinstance(lead.next_message("d", ALL), Append)
    acked(lead, "d", at(5, 1))
    assert lead.hw == 0
    assert lead.acked("d") == at(5, 1)


def test_learners_come_and_go_during_an_epoch_and_are_never_counted() -> None:
    lead = serving()
    lead.append(1, (b"x",))
    lead.teach(["d", "a"])  # a member is none
    assert lead.learners == {"d"}
    assert lead.taught(0, 1_000) == set()
    message = lead.next_message("d", ALL)
    assert isinstance(message, Append)
    assert message.entries == ()  # first it is asked what it has
    acked(lead, "a", at(5, 1))
    acked(lead, "d", at(5, 1))
    assert lead.hw == 0
    assert lead.taught(0, 1_000) == {"d"}
    lead.teach([])
    acked(lead, "d", at(5, 1))  # late
    assert lead.learners == set()
    acked(lead, "b", at(5, 1))
    assert lead.hw == 1


def test_a_learner_has_the_log_while_it_follows_closely_and_not_when_it_falls_behind() -> None:
    lead = serving()
    lead.teach(["d"])
    acked(lead, "d", at(5, 0), now_ms=100)
    assert lead.taught(5_000, 1_000) == {"d"}  # nothing was appended since
    lead.append(1, (b"x",))
    for member in ABC:
        acked(lead, member, at(5, 1), now_ms=5_000)
    assert lead.taught(7_000, 1_000) == set()
    acked(lead, "d", at(5, 1), now_ms=7_000)
    lead.append(1, (b"y",))
    for member in ABC:
        acked(lead, member, at(5, 2), now_ms=7_100)
    assert lead.taught(7_200, 1_000) == {"d"}
    assert lead.taught(8_200, 1_000) == set()


def test_a_reject_ends_leading_and_nothing_is_acknowledged_any_more() -> None:
    lead = serving()
    lead.append(1, (b"x",))
    lead.handle("c", Reject(partition=P, epoch=5, promised=7), 0)
    assert lead.ended == Ended("replica c has promised epoch 7", 7)
    acked(lead, "a", at(5, 1))
    acked(lead, "b", at(5, 1))
    assert lead.hw == 0
    assert lead.next_message("a", ALL) is None


def test_a_member_is_asked_one_thing_until_it_is_known_what_it_has() -> None:
    lead = leader(start(1, 0), entry(1, 0))
    sent = lead.next_message("a", ALL)
    assert isinstance(sent, Append)
    assert (sent.previous, sent.entries) == (at(1, 1), (start(5, 1),))
    assert lead.next_message("a", ALL) is None
    acked(lead, "a", at(5, 1))
    acked(lead, "b", at(5, 1))
    lead.open()
    for value in (b"x", b"y"):  # and then everything at once
        lead.append(1, (value,))
        sent = lead.next_message("a", ALL)
        assert isinstance(sent, Append)
        assert sent.entries[0].payload == (value,)


def test_entries_follow_the_fork() -> None:
    lead = leader(start(1, 0), entry(1, 0), entry(1, 1))
    lead.next_message("a", ALL)
    other = log_of(start(1, 0), entry(1, 0), start(2, 1), entry(2, 1, 9))
    answer = Mismatch(partition=P, epoch=5, base=other.base, position=other.position, epochs=other.epochs)
    lead.handle("a", answer, 0)
    sent = lead.next_message("a", ALL)
    assert isinstance(sent, Append)
    assert (sent.previous, sent.entries) == (at(1, 1), (entry(1, 1), start(5, 2)))


def test_whoever_lies_below_the_base_gets_the_base_and_then_what_follows() -> None:
    lead = leader(entry(3, 5), base=at(3, 5))
    lead.next_message("a", ALL)
    nothing = Mismatch(partition=P, epoch=5, base=NOWHERE, position=NOWHERE, epochs=())
    lead.handle("a", nothing, 0)
    assert lead.next_message("a", ALL) == Base(partition=P, epoch=5, published=at(3, 5))
    assert lead.next_message("a", ALL) is None
    acked(lead, "a", at(3, 5))
    sent = lead.next_message("a", ALL)
    assert isinstance(sent, Append)
    assert (sent.previous, sent.entries) == (at(3, 5), (entry(3, 5), start(5, 6)))


def test_a_replica_that_lags_behind_what_is_published_holds_nothing_back() -> None:
    lead = serving()
    for _ in range(3):
        lead.append(1, (b"x",))
    acked(lead, "a", at(5, 3))
    acked(lead, "b", at(5, 3))
    lead.release(3)
    assert len(lead.log) == 0
    sent = lead.next_message("c", ALL)
    assert sent is None or isinstance(sent, Append)
    lead.handle("c", Mismatch(partition=P, epoch=5, base=NOWHERE, position=NOWHERE, epochs=()), 0)
    assert lead.next_message("c", ALL) == Base(partition=P, epoch=5, published=at(5, 3))


def test_only_what_is_acknowledged_is_published() -> None:
    lead = serving()
    lead.append(1, (b"x",))
    with pytest.raises(InvalidError, match="at most the high watermark 0"):
        lead.release(1)


def test_after_a_reconnect_it_goes_on_behind_what_was_acknowledged() -> None:
    lead = serving()
    lead.append(1, (b"x",))
    lead.append(1, (b"y",))
    lead.next_message("a", ALL)
    acked(lead, "a", at(5, 1))
    lead.reconnected("a")
    sent = lead.next_message("a", ALL)
    assert isinstance(sent, Append)
    assert (sent.previous, len(sent.entries)) == (at(5, 1), 1)


def test_the_high_watermark_is_announced_once_when_there_is_nothing_to_send() -> None:
    lead = serving()
    lead.append(1, (b"x",))
    lead.next_message("a", ALL)
    acked(lead, "a", at(5, 1))
    acked(lead, "b", at(5, 1))
    assert lead.next_message("a", ALL) == Announce(partition=P, epoch=5, hw=1, published=NOWHERE)
    assert lead.next_message("a", ALL) is None


def test_the_in_sync_set_says_who_keeps_up_and_does_not_lower_w() -> None:
    lead = serving()
    assert lead.in_sync(999, 1_000) == ABC
    for at_ms in range(0, 3_000, 100):
        for member in ("a", "b"):
            lead.heard(member, at_ms)
    assert lead.in_sync(3_000, 1_000) == ("a", "b")  # c never had the epoch-start entry
    lead.append(1, (b"x",))
    acked(lead, "a", at(5, 1), 3_000)
    assert lead.hw == 0
    acked(lead, "c", at(5, 1), 3_100)
    assert lead.hw == 1
    assert lead.in_sync(3_200, 1_000) == ABC


def test_a_member_that_is_always_a_little_behind_is_in_sync() -> None:
    lead = serving()
    acked(lead, "c", at(5, 0))
    for now_ms in range(0, 5_000, 100):
        lead.append(1, (b"x",))
        end = lead.log.position.offset
        for member in ("a", "b"):
            acked(lead, member, at(5, end), now_ms)
        acked(lead, "c", at(5, end - 1), now_ms)
    assert lead.in_sync(5_000, 1_000) == ABC


def test_leader_and_replica_find_each_other_from_any_two_logs() -> None:
    """Whatever a replica has, it ends with the leader's log, and nothing that both had is sent in vain."""
    mine = Replica(P, "a", promised=4, log=log_of(start(1, 0), entry(1, 0), start(4, 1), entry(4, 1)))
    lead = leader(start(1, 0), entry(1, 0), entry(1, 1), start(3, 2), entry(3, 2))
    for _ in range(4):
        message = lead.next_message("a", 1)
        if message is None:
            break
        while message is not None:
            mine.handle(message)
            answer = mine.durable()
            if answer is not None:
                lead.handle("a", answer, 0)
            message = lead.next_message("a", 1)
    assert list(mine.log.entries) == list(lead.log.entries)
    assert lead.acked("a") == lead.start


def test_a_learner_that_dropped_its_log_is_brought_up_again() -> None:
    """It is no member of the set that serves, so it may, at any time: what it had acknowledged counts for nothing."""
    lead, learner = serving(learners=("l",)), Replica(P, "l")
    lead.append(2, (b"x",))
    assert _brought_up(lead, learner) == at(5, 2)
    assert learner.drop(5, ABC) is not None
    learner.durable()
    lead.append(1, (b"y",))
    assert _brought_up(lead, learner) == at(5, 3)
    assert learner.drop(5, ABC) is not None
    learner.durable()
    lead.reconnected("l")
    assert _brought_up(lead, learner) == at(5, 3)


def _brought_up(lead: Leader, learner: Replica) -> Position:
    """Where the learner's log ends when the leader has nothing more to send."""
    while (message := lead.next_message("l", ALL)) is not None:
        learner.handle(message)
        if (answer := learner.durable()) is not None:
            lead.handle("l", answer, 0)
    return learner.log.position
