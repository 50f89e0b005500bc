"""Taking over: what is sealed, which log is chosen, and when it serves."""

from typing import Any

import pytest
from tests.support.replication.logs import P, at, entry, log_of, start

from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.leader import Ended
from holdfast.log.replication.messages import (
    Ack,
    Append,
    Mismatch,
    ReadTail,
    Reject,
    Seal,
    Sealed,
    TailEntries,
    WrongWal,
)
from holdfast.log.replication.positions import NOWHERE, Position, ReplicaEntry
from holdfast.log.replication.takeover import OpenCommit, Phase, QuorumTakeover, Send, StoredState
from holdfast.vocabulary.errors import CorruptError, InvalidError

DIRTY = StoredState(reserved=100, opened_epoch=3, opened_replicas=("a", "b", "c"))
SHORT = log_of(start(1, 0), entry(1, 0), start(3, 1))
LONG = log_of(start(1, 0), entry(1, 0), entry(1, 1), entry(1, 2))


def takeover(
    stored: StoredState = DIRTY, *, own: EntryLog | None = None, members: tuple[str, ...] = ("a", "b", "d"), **how: Any
) -> QuorumTakeover:
    made = QuorumTakeover(P, 5, stored, members, own=own if own is not None else log_of(), **how)
    made.begin(0)
    return made


def sealed(taking: QuorumTakeover, replica: str, position: Position, epoch: int = 5) -> None:
    answer = Sealed(partition=P, epoch=epoch, base=NOWHERE, position=position, epochs=())
    taking.handle(replica, answer, 0)


def asks(*replicas: str) -> list[Send]:
    return [Send(each, Seal(partition=P, epoch=5, wal_id=each)) for each in replicas]


def fetched(taking: QuorumTakeover, replica: str, log: EntryLog, bytes_max: int = 1 << 20) -> None:
    """Answer every TAIL from `log`."""
    while taking.phase is Phase.FETCHING and (sends := taking.sends()):
        for to, message in sends:
            assert isinstance(message, ReadTail)
            assert to == replica
            entries = log.after(message.start, bytes_max)
            answer = TailEntries(partition=P, epoch=5, previous=message.start, entries=entries, position=log.position)
            taking.handle(replica, answer, 0)


def test_the_set_that_served_last_is_sealed_and_no_other() -> None:
    taking = takeover()
    assert taking.sends() == asks("a", "b", "c")
    assert taking.sends() == []
    sealed(taking, "d", at(4, 9))
    sealed(taking, "a", NOWHERE)
    assert taking.phase is Phase.SEALING


def test_the_highest_epoch_is_chosen_and_not_the_longest_log() -> None:
    taking = takeover()
    taking.sends()
    sealed(taking, "a", LONG.position)
    assert taking.phase is Phase.SEALING  # one of three is no seal quorum
    sealed(taking, "b", SHORT.position)
    fetched(taking, "b", SHORT)
    assert taking.leader is not None
    assert list(taking.leader.log.entries) == [*SHORT.entries, start(5, 1)]


def test_of_the_same_epoch_the_longest_is_chosen_and_fetched_in_pieces() -> None:
    taking = takeover(tail_bytes_max=1)
    taking.sends()
    sealed(taking, "a", at(1, 1))
    sealed(taking, "c", LONG.position)
    fetched(taking, "c", LONG, 1)
    assert taking.leader is not None
    assert list(taking.leader.log.entries) == [*LONG.entries, start(5, 3)]  # entries keep their epoch


@pytest.mark.parametrize(("replicas", "needed"), [(("a",), 1), (("a", "b"), 1), (("a", "b", "c"), 2)])
def test_the_seal_quorum_goes_by_the_size_of_the_set_that_served(replicas: tuple[str, ...], needed: int) -> None:
    taking = takeover(
        StoredState(reserved=9, opened_epoch=3, opened_replicas=replicas), members=("a", "b", "d", "e", "f")
    )
    for count, replica in enumerate(replicas[:needed], 1):
        assert taking.phase is Phase.SEALING, count
        sealed(taking, replica, NOWHERE)
    assert taking.phase is Phase.REPLICATING


def test_nothing_above_what_is_published_needs_no_fetch() -> None:
    taking = takeover(StoredState(published=at(3, 7), reserved=9, opened_epoch=3, opened_replicas=("a", "b", "c")))
    taking.sends()
    sealed(taking, "a", at(3, 7))
    sealed(taking, "b", at(2, 9))
    assert taking.leader is not None
    assert list(taking.leader.log.entries) == [start(5, 7)]
    assert taking.sends() == asks("d")


@pytest.mark.parametrize(
    "stored",
    [StoredState(), StoredState(published=at(3, 7), reserved=7, opened_epoch=3, opened_replicas=("a", "b", "c"))],
)
def test_a_clean_partition_is_taken_over_without_a_seal(stored: StoredState) -> None:
    taking = takeover(stored, own=LONG)
    assert taking.sends() == (asks("a", "b", "d") if stored.opened_epoch else [])
    assert taking.leader is not None
    assert list(taking.leader.log.entries) == [start(5, stored.published.offset)]


CLEAN = StoredState(published=at(3, 7), reserved=7, opened_epoch=3, opened_replicas=("a", "b", "c"))


@pytest.mark.parametrize(
    ("stored", "found"), [(DIRTY, at(5, 1)), (DIRTY, at(6, 1)), (CLEAN, at(5, 8)), (CLEAN, at(6, 7))]
)
def test_a_replica_with_entries_of_its_epoch_ends_it_for_they_are_not_its_own(
    stored: StoredState, found: Position
) -> None:
    taking = takeover(stored)
    sealed(taking, "a", found)
    assert taking.ended == Ended(f"replica a has entries of epoch {found.epoch}", found.epoch)
    assert taking.open_commit is None


def test_what_its_own_replicas_have_by_now_ends_nothing() -> None:
    taking = takeover(CLEAN)
    assert taking.leader is not None
    sealed(taking, "a", taking.leader.start)
    sealed(taking, "b", at(4, 99))  # of an epoch that never served
    assert taking.ended is None
    for each in ("a", "b"):
        taking.handle(each, Ack(partition=P, epoch=5, matched=taking.leader.start), 0)
    taking.committed()
    sealed(taking, "d", at(5, 9))
    assert taking.ended is None


def test_a_drained_hand_over_takes_its_own_log_if_that_ends_where_the_source_did() -> None:
    stored = StoredState(
        published=at(1, 1), reserved=100, opened_epoch=3, opened_replicas=("a", "b", "c"), handed_over=at(1, 3)
    )
    taking = takeover(stored, own=LONG)
    assert taking.sends() == asks("a", "b", "d")
    assert taking.leader is not None
    assert list(taking.leader.log.entries) == [entry(1, 1), entry(1, 2), start(5, 3)]
    assert len(takeover(stored, own=SHORT).sends()) == 3  # otherwise it seals like any other


def test_it_opens_when_w_of_its_own_set_have_the_epoch_start_entry() -> None:
    taking = takeover(StoredState())
    assert taking.open_commit is None
    assert taking.leader is not None
    assert isinstance(taking.leader.next_message("d", 99), Append)
    for member in ("c", "a"):  # c is not of the set
        taking.handle(member, Ack(partition=P, epoch=5, matched=at(5, 0)), 0)
    assert taking.open_commit is None
    taking.handle("d", Ack(partition=P, epoch=5, matched=at(5, 0)), 0)
    assert taking.open_commit == OpenCommit(5, ("a", "b", "d"), 0)
    lead = taking.committed()
    assert (lead.opened, taking.phase, taking.open_commit) == (True, Phase.SERVING, None)


@pytest.mark.parametrize("when", ["sealing", "replicating"])
def test_a_higher_promise_ends_it(when: str) -> None:
    taking = takeover(DIRTY if when == "sealing" else StoredState())
    taking.handle("b", Reject(partition=P, epoch=5, promised=8), 0)
    assert taking.ended == Ended("replica b has promised epoch 8", 8)
    sealed(taking, "a", NOWHERE)
    sealed(taking, "b", NOWHERE)
    assert (taking.phase, taking.open_commit) == (Phase.ENDED, None)


def test_answers_of_another_epoch_and_of_another_wal_do_not_count() -> None:
    taking = takeover()
    sealed(taking, "a", NOWHERE, epoch=4)
    taking.handle("b", WrongWal(partition=P, epoch=5, wal_id="b2"), 0)
    sealed(taking, "c", NOWHERE)
    assert taking.phase is Phase.SEALING


def test_seals_and_tails_are_sent_again_to_whoever_comes_back() -> None:
    taking = takeover()
    taking.sends()
    sealed(taking, "a", NOWHERE)
    taking.resend(["a", "b", "d"])
    assert [send.to for send in taking.sends()] == ["b"]
    sealed(taking, "b", LONG.position)
    [first] = taking.sends()
    taking.resend(["a", "b"])
    assert taking.sends() == [first]


def test_when_the_owner_of_the_log_is_lost_another_quorum_decides() -> None:
    taking = takeover()
    taking.sends()
    sealed(taking, "a", LONG.position)
    sealed(taking, "b", at(1, 1))
    assert [send.to for send in taking.sends()] == ["a"]
    taking.lost("a", 0)
    assert taking.phase is Phase.SEALING  # b alone is no quorum
    sealed(taking, "c", LONG.position)
    fetched(taking, "c", LONG)
    assert taking.leader is not None
    assert taking.leader.log.position == at(5, 3)


def test_late_pieces_of_a_tail_change_nothing() -> None:
    taking = takeover()
    taking.sends()
    sealed(taking, "a", LONG.position)
    sealed(taking, "b", NOWHERE)
    piece = TailEntries(partition=P, epoch=5, previous=NOWHERE, entries=LONG.after(NOWHERE)[:2], position=LONG.position)
    for _ in range(3):
        taking.handle("a", piece, 0)
    fetched(taking, "a", LONG)
    assert taking.leader is not None
    assert taking.leader.log.position == at(5, 3)


def test_a_replica_that_contradicts_itself_or_the_store_is_reported() -> None:
    taking = takeover()
    sealed(taking, "a", LONG.position)
    sealed(taking, "b", NOWHERE)
    with pytest.raises(CorruptError, match="it was sealed at"):
        taking.handle("a", TailEntries(partition=P, epoch=5, previous=NOWHERE, entries=(), position=NOWHERE), 0)
    with pytest.raises(CorruptError, match="lacks what is published"):
        taking.handle("a", Mismatch(partition=P, epoch=5, base=at(1, 2), position=at(1, 3), epochs=()), 0)


def test_an_epoch_that_was_opened_before_is_refused() -> None:
    with pytest.raises(InvalidError, match="above the last that was opened"):
        QuorumTakeover(P, 3, DIRTY, ("a",), own=log_of())


# ── a person lets it go on with fewer ──


def cover(start: int, end: int) -> list[bytes]:
    return [b"%d to %d" % (start, end)]


def test_with_fewer_the_survivors_log_is_taken_and_the_epoch_starts_at_what_is_reserved() -> None:
    taking = takeover(members=("a",))
    taking.sends()
    sealed(taking, "a", SHORT.position)
    assert taking.phase is Phase.SEALING
    taking.go_on_without_others(cover, 0)
    fetched(taking, "a", SHORT)
    assert taking.leader is not None
    gap = ReplicaEntry(5, 1, 99, [b"1 to 100"])
    assert list(taking.leader.log.entries) == [*SHORT.entries, start(5, 1), gap]
    for matched in (start(5, 1).position, gap.position):
        assert taking.open_commit is None  # the gap must be on w members, too
        taking.handle("a", Ack(partition=P, epoch=5, matched=matched), 0)
    assert taking.open_commit == OpenCommit(5, ("a",), 100)


def test_a_log_of_an_earlier_epoch_may_differ_from_what_was_read_and_does_not_count() -> None:
    taking = takeover(members=("a",))
    sealed(taking, "a", LONG.position)
    taking.go_on_without_others(cover, 0)
    assert taking.leader is not None
    assert list(taking.leader.log.entries) == [start(5, 0), ReplicaEntry(5, 0, 100, [b"0 to 100"])]


def test_a_survivor_that_is_lost_again_is_not_gone_on_without() -> None:
    taking = takeover(members=("a",))
    sealed(taking, "a", SHORT.position)
    taking.go_on_without_others(cover, 0)
    assert taking.phase is Phase.FETCHING
    taking.lost("a", 0)
    assert taking.leader is None
    taking.sends()
    sealed(taking, "a", SHORT.position)
    assert (taking.sends(), taking.leader) == ([], None)  # the rule is the usual one again
