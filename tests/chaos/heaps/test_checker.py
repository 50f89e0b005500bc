"""The checker of heaps: a history that cannot be true of a heap is told from one that can."""

import json
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from tests.chaos.heaps.checker import Evidence, Verdict, check
from tests.chaos.heaps.ledger import LogRecord, read_ledger
from tests.chaos.heaps.logs import replayed_counters
from tests.chaos.heaps.operations import operations
from tests.chaos.history import parsed

from holdfast.heap.records import (
    Ack,
    Cancel,
    Enqueue,
    Grant,
    GrantBasis,
    Move,
    Op,
    Operation,
    ProducerSequence,
    Ready,
    Reprioritise,
    Retry,
)

Line = dict[str, object]


def line(process: str, status: str, f: str, at: int, **value: object) -> Line:
    return {"time_ms": at, "process": process, "type": status, "f": f, **value}


def enqueued(value: str, offset: int, at: int, *, partition: int = 0, priority: int = 0) -> list[Line]:
    return [
        line("p", "invoke", "enqueue", at, value=value, priority=priority, delay_ms=0),
        line("p", "ok", "enqueue", at + 1, value=value, place=["h", partition, offset], duplicate=False),
    ]


def popped(
    process: str,
    value: str,
    offset: int,
    granted_at: int,
    at: int,
    *,
    partition: int = 0,
    priority: int = 0,
    bound: int = 1,
) -> list[Line]:
    message = [value, priority, bound, 1, "h", partition, offset, granted_at]
    return [
        line(process, "invoke", "pop", at, call=at),
        line(process, "ok", "pop", at + 1, call=at, messages=[message]),
    ]


def settled(
    process: str, f: str, value: str, offset: int, granted_at: int, at: int, *, outcome: str = "ok", exact: bool = True
) -> list[Line]:
    lease = ["h", 0, offset, granted_at]
    return [
        line(process, "invoke", f, at, call=at, value=value, lease=lease, exact=exact),
        line(process, outcome, f, at + 1, call=at),
    ]


DRAINED = [line("run", "ok", "drained", 900)]
A = Enqueue(0, b"a", producer=ProducerSequence("p", 0, 0))
BASIS = GrantBasis(1, 1, 1, (1,))


def grant(offset: int, consumer: str = "c", *, epoch: int = 1, priority: int = 0) -> Grant:
    return Grant(epoch, 1_000, consumer, ((offset, priority),))


def verdict(lines: Sequence[Line], *logs: Sequence[Operation | tuple[int, Operation]], k: int = 1) -> Verdict:
    """Of a history, and the log of each partition: operations, at ten milliseconds each, or at a time of their own."""
    records = {}
    for number, log in enumerate(logs):
        timed = [
            each if isinstance(each, tuple) and isinstance(each[0], int) and len(each) == 2 else (10 * at, each)
            for at, each in enumerate(log)
        ]
        records["h", number] = [LogRecord(at, ms, operation) for at, (ms, operation) in enumerate(timed)]  # type: ignore[arg-type]
    evidence = Evidence(
        topic="h",
        k=k,
        ops=operations(parsed(json.dumps(each) for each in lines)),
        ledgers={which: read_ledger(*which, found) for which, found in records.items()},
        replayed={which: replayed_counters(found) for which, found in records.items()},
    )
    return check(evidence)


def rules(lines: Sequence[Line], *logs: Sequence[Operation | tuple[int, Operation]], k: int = 1) -> set[str]:
    return {each.rule for each in verdict(lines, *logs, k=k).violations}


ENQUEUED = enqueued("a", 0, 1)
FIRST = popped("c1", "a", 0, 2, 20)
LOG: list[Operation] = [A, BASIS, grant(0)]
AGAIN: list[Operation] = [*LOG, Retry(Op.EXPIRE, ((0, 0),)), BASIS, grant(0)]


def test_a_true_history_is_clean() -> None:
    found = verdict([*ENQUEUED, *FIRST, *settled("c1", "ack", "a", 0, 2, 40), *DRAINED], [*LOG, Ack((0,))])
    assert found.violations == ()
    assert (found.enqueued, found.delivered, found.acknowledged, found.pops_ranked, found.worst_rank) == (1, 1, 1, 1, 1)


def test_a_lease_that_ran_out_is_another_ones_and_its_ack_is_refused() -> None:
    second = popped("c2", "a", 0, 5, 60)
    late = settled("c1", "ack", "a", 0, 2, 70, outcome="fail")
    done = settled("c2", "ack", "a", 0, 5, 80)
    found = verdict([*ENQUEUED, *FIRST, *second, *late, *done, *DRAINED], [*AGAIN, Ack((0,))])
    assert (found.violations, found.refused, found.expired) == ((), 1, 1)


def test_what_nobody_knows_may_have_happened() -> None:
    unknown = settled("c1", "ack", "a", 0, 2, 40, outcome="info")
    assert rules([*ENQUEUED, *FIRST, *unknown, *DRAINED], [*LOG, Ack((0,))]) == set()


def test_what_was_enqueued_and_never_done_is_lost() -> None:
    assert "lost" in rules([*ENQUEUED, *DRAINED], [A])
    assert "lost" in rules([*ENQUEUED, *FIRST, *settled("c1", "ack", "a", 0, 2, 40), *DRAINED], [])
    assert "unfinished" in rules([*ENQUEUED, *FIRST, *settled("c1", "ack", "a", 0, 2, 40)], [*LOG, Ack((0,))])


def test_a_message_that_comes_back_after_its_ack_was_answered_is_found() -> None:
    done, again = settled("c1", "ack", "a", 0, 2, 40), popped("c2", "a", 0, 4, 60)
    history = [*ENQUEUED, *FIRST, *done, *again, *DRAINED]
    assert "delivered when done" in rules(history, [*LOG, Ack((0,))])
    assert "granted when gone" in rules(history, [*LOG, Ack((0,)), grant(0)])
    before = popped("c2", "a", 0, 2, 30)  # its answer was late
    assert rules([*ENQUEUED, *FIRST, *done, *before[:1], before[1] | {"time_ms": 50}], [*LOG, Ack((0,))]) == {
        "unfinished"
    }


def test_two_live_leases_are_found_in_the_log() -> None:
    assert "two live leases" in rules([*ENQUEUED], [*LOG, grant(0, "other")])


def test_two_live_leases_are_found_by_their_intervals_alone() -> None:
    second = popped("c2", "a", 0, 5, 30)
    both = [*settled("c1", "extend", "a", 0, 2, 50), *settled("c2", "extend", "a", 0, 5, 60)]
    assert "two live leases" in rules([*ENQUEUED, *FIRST, *second, *both], AGAIN)
    apart = [*settled("c1", "nack", "a", 0, 2, 25), *popped("c2", "a", 0, 5, 30), *settled("c2", "ack", "a", 0, 5, 60)]
    nacked = [*LOG, Retry(Op.NACK, ((0, 0),)), BASIS, grant(0), Ack((0,))]
    assert rules([*ENQUEUED, *FIRST, *apart, *DRAINED], nacked) == set()


def test_an_ack_that_was_accepted_under_a_lost_lease_is_found() -> None:
    second, late = popped("c2", "a", 0, 5, 60), settled("c1", "ack", "a", 0, 2, 70)
    assert "accepted without a lease" in rules([*ENQUEUED, *FIRST, *second, *late, *DRAINED], [*AGAIN, Ack((0,))])
    sent_again = settled("c1", "ack", "a", 0, 2, 70, exact=False)  # the SDK's: the message was gone then
    assert rules([*ENQUEUED, *FIRST, *second, *sent_again, *DRAINED], [*AGAIN, Ack((0,))]) == set()


def test_a_lease_that_is_not_in_the_log_is_found() -> None:
    assert "lease not in the log" in rules([*ENQUEUED, *FIRST], [A])


@pytest.mark.parametrize("again", [A, Enqueue(0, b"a")])
def test_a_message_that_is_there_twice_is_found(again: Enqueue) -> None:
    other = popped("c2", "a", 1, 3, 60, bound=0)
    assert "duplicate" in rules([*ENQUEUED, *other], [A, again, BASIS, grant(1)])


def test_a_sequence_number_that_is_there_twice_is_found_in_another_partition_too() -> None:
    assert "duplicate" in rules(ENQUEUED, [A], [A])


def test_what_was_never_enqueued_must_not_be_handed_out() -> None:
    assert "phantom" in rules(FIRST, LOG)
    changed = [*ENQUEUED, *popped("c1", "a", 0, 2, 20, priority=7)]
    assert "phantom" in rules(changed, [A, BASIS, grant(0, priority=7)])


@pytest.mark.parametrize(
    ("log", "rule"),
    [
        ([A, Enqueue(-1, b"b"), grant(0)], "not the best"),
        ([Enqueue(0, b"a", not_before_ms=50), grant(0)], "granted while delayed"),
        ([A, grant(0, priority=3)], "another priority"),
        ([A, Ack((0,))], "acknowledged without a lease"),
        ([A, Retry(Op.NACK, ((0, 0),))], "returned without a lease"),
        ([A, Enqueue(0, b"b"), grant(0, epoch=2), grant(1, epoch=1)], "epoch went back"),
    ],
)
def test_records_that_do_not_fit_are_found(log: list[Operation], rule: str) -> None:
    assert rule in rules([], log)


def test_delays_priorities_and_withdrawals_fit() -> None:
    log: list[Operation] = [Enqueue(5, b"a", not_before_ms=50), A, Reprioritise(((0, -1),)), Ready(((0, -1),))]
    assert (
        read_ledger(
            "h", 0, [LogRecord(at, at, each) for at, each in enumerate([*log, grant(0, priority=-1), Cancel((1,))])]
        ).mismatches
        == []
    )


def test_a_dead_letter_that_did_not_arrive_is_found() -> None:
    moved = [*LOG, Move(0, 0, "h.dlq", 0, 1, "")]
    assert "lost" in rules([*ENQUEUED, *FIRST], moved)


def test_a_leader_that_counts_otherwise_than_its_log_is_found() -> None:
    counted = replayed_counters([LogRecord(0, 0, A)])
    stats = line("run", "ok", "stats", 5, topic="h", partition=0, counters=counted)
    assert "another state" not in rules([stats], [A])
    assert "another state" in rules([stats], [*LOG])


def test_what_no_client_should_be_told_is_found() -> None:
    assert "refused" in rules([line("p", "fail", "refuse", 3, error="ExpiredError")], [])


# ── ranks over partitions ──

Timed: TypeAlias = list[Operation | tuple[int, Operation]]

WORSE, BETTER = Enqueue(9, b"worse"), Enqueue(1, b"better")
POPPED = popped("c1", "worse", 0, 2, 100, priority=9)


def test_a_pop_of_a_worse_message_than_was_acknowledged_elsewhere_is_found() -> None:
    """Partition 0 hands out the worse one; the better one of partition 1 was acknowledged at 2, and goes later."""
    basis, later = GrantBasis(1, 1, 1, (1, 0)), GrantBasis(1, 2, 1, (1, 1))
    history = [*enqueued("worse", 0, 0, priority=9), *enqueued("better", 0, 1, partition=1, priority=1), *POPPED]
    one: Timed = [(0, WORSE), (110, basis), (110, grant(0, priority=9))]
    two: Timed = [(1, BETTER), (150, later), (150, grant(0, priority=1))]
    assert "rank" in rules(history, one, two)
    assert verdict(history, one, two).worst_rank == 2


def test_a_message_that_was_not_acknowledged_and_not_told_of_does_not_count() -> None:
    basis, later = GrantBasis(1, 1, 1, (1, 0)), GrantBasis(1, 2, 1, (1, 1))
    history = [*enqueued("worse", 0, 0, priority=9), *POPPED]
    two: Timed = [(1, BETTER), (150, later), (150, grant(0, priority=1))]
    assert "rank" not in rules(history, [(0, WORSE), (110, basis), (110, grant(0, priority=9))], two)


def test_a_message_that_the_spine_was_told_of_counts() -> None:
    basis, later = GrantBasis(1, 1, 1, (1, 1)), GrantBasis(1, 2, 1, (1, 1))
    history = [*enqueued("worse", 0, 0, priority=9), *POPPED]
    two: Timed = [(1, BETTER), (150, later), (150, grant(0, priority=1))]
    assert "rank" in rules(history, [(0, WORSE), (110, basis), (110, grant(0, priority=9))], two)


def test_an_hour_that_a_clock_was_off_by_changes_no_rank() -> None:
    basis, later = GrantBasis(1, 1, 1, (1, 1)), GrantBasis(1, 2, 1, (1, 1))
    history = [line("run", "ok", "clock", 0, wall_ms=0), *enqueued("worse", 0, 0, priority=9), *POPPED]
    hour = 3_600_000
    two: Timed = [(1 + hour, BETTER), (150 + hour, later), (150 + hour, grant(0, priority=1))]
    assert "rank" in rules(history, [(0, WORSE), (110, basis), (110, grant(0, priority=9))], two)
