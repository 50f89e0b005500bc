"""What driven heaps have beside messages, in the simulator: seeds have it, and its oracles say what is broken."""

from collections import Counter

import pytest

from holdfast.heap.fairness.rules import FairRules
from holdfast.heap.records import Ack, Enqueue, Grant, Move, Moved, Op, Operation, ProducerSequence, Retry
from holdfast.sim.heap.driven.checker import DrivenChecker
from holdfast.sim.heap.driven.features import NO_FEATURES, Features, draw_features
from holdfast.sim.heap.driven.history import (
    AdvertAcknowledged,
    DrivenEvent,
    EnqueueAnswered,
    HeapGrown,
    MessageDelivered,
    RecordsAppended,
    SnapshotListed,
    StateRecovered,
    TailCut,
)
from holdfast.sim.heap.driven.topic import LETTERS
from holdfast.sim.heap.driven.variant import PLAIN_DRIVEN
from holdfast.sim.heap.driven.world import run_driven_seed

MOVER = "~move/" + "ab" * 16 + "/0"
LIMITED = Features(keys=("a",), key_leases_max=1)


def broken(history: list[DrivenEvent], features: Features = NO_FEATURES, *, partitions: int = 1) -> list[str]:
    checker = DrivenChecker(k=9, mode="min", partitions=partitions, features=features)
    return [violation.rule for violation in checker.check(history)]


def appended(partition: int, offset: int, *operations: Operation, at_ms: int = 0) -> RecordsAppended:
    return RecordsAppended(0.0, partition, 1, offset, operations, False, (at_ms,) * len(operations))


def grant(offset: int) -> Grant:
    return Grant(1, 100, "c", ((offset, 0),))


def test_a_quarter_of_all_seeds_is_without_features_and_each_is_in_many() -> None:
    drawn = [draw_features(seed) for seed in range(400)]
    assert 60 < drawn.count(NO_FEATURES) < 150
    counts = Counter[str]()
    for each in drawn:
        counts["leases"] += bool(each.key_leases_max)
        counts["rates"] += bool(each.key_rate_per_s or each.rate_per_s)
        counts["growths"] += bool(each.growths)
        counts["dead letters"] += each.has_dead_letters
        counts["snapshots"] += each.snapshots
    assert all(counts[what] >= 30 for what in ("leases", "rates", "growths", "dead letters", "snapshots")), counts


@pytest.mark.slow
def test_seeds_grow_move_and_begin_with_snapshots() -> None:
    seen: Counter[str] = Counter()
    for seed in range(24):
        for event in run_driven_seed(seed).events:
            seen["growths"] += isinstance(event, HeapGrown)
            seen["snapshots"] += isinstance(event, StateRecovered) and event.snapshot > 0
            if isinstance(event, RecordsAppended):
                seen["moves"] += any(isinstance(each, Move) for each in event.operations)
                seen["replays"] += event.partition >= LETTERS and any(
                    isinstance(each, Move) for each in event.operations
                )
    assert all(seen[what] for what in ("growths", "snapshots", "moves", "replays")), seen


def test_a_seed_without_features_is_the_plain_run() -> None:
    seed = next(seed for seed in range(100) if draw_features(seed) == NO_FEATURES)
    assert run_driven_seed(seed).events == run_driven_seed(seed, variant=PLAIN_DRIVEN).events


# ── fairness ──


def test_a_partition_grants_its_best() -> None:
    enqueued = appended(0, 0, Enqueue(5, b"1"), Enqueue(4, b"2"))
    assert broken([enqueued, appended(0, 2, grant(0))]) == ["best-first"]
    assert broken([enqueued, appended(0, 2, grant(1))]) == []


@pytest.mark.parametrize(("ends", "rules"), [(False, ["key-limit"]), (True, [])])
def test_a_key_at_its_limit_gets_nothing(ends: bool, rules: list[str]) -> None:
    history: list[DrivenEvent] = [
        appended(0, 0, FairRules(by_key=True, key_leases_max=1)),
        appended(0, 1, Enqueue(0, b"1", fairness_key="a"), Enqueue(0, b"2", fairness_key="a"), grant(1)),
    ]
    if ends:
        history.append(appended(0, 4, Ack((1,))))
    history.append(appended(0, 4 + ends, grant(2)))
    assert broken(history, LIMITED) == rules


@pytest.mark.parametrize(("told", "rules"), [(4, []), (5, ["rank-bound"])])
def test_what_a_limit_held_back_counts_once_the_spine_is_told(told: int, rules: list[str]) -> None:
    """Message 2 waits for the lease of 1; message 3, which is worse, is granted elsewhere after that has ended."""
    history: list[DrivenEvent] = [
        appended(0, 0, FairRules(by_key=True, key_leases_max=1)),
        appended(0, 1, Enqueue(0, b"1", fairness_key="a"), grant(1), Enqueue(0, b"2", fairness_key="a")),
        appended(1, 0, Enqueue(7, b"3")),
        EnqueueAnswered(0.0, 0, 3, b"2", False),
        appended(0, 4, Ack((1,))),
        AdvertAcknowledged(0.0, 0, told),
        appended(1, 1, grant(0)),
        MessageDelivered(0.0, "c", 1, 1, 1, 0, 1),
    ]
    assert broken(history, LIMITED, partitions=2) == rules


@pytest.mark.parametrize(("at_ms", "rules"), [(10, ["rate-kept"]), (100, [])])
def test_a_key_is_not_handed_out_faster_than_its_rate(at_ms: int, rules: list[str]) -> None:
    history: list[DrivenEvent] = [
        appended(0, 0, FairRules(by_key=True, key_interval_ns=100_000_000)),
        appended(0, 1, Enqueue(0, b"1", fairness_key="a"), Enqueue(0, b"2", fairness_key="a"), grant(1)),
        appended(0, 4, grant(2), at_ms=at_ms),
    ]
    assert broken(history) == rules


def test_a_key_that_waits_is_passed_over_as_often_as_weights_say() -> None:
    messages = [Enqueue(0, b"w", fairness_key="b")]
    messages += [Enqueue(0, str(number).encode(), fairness_key="a") for number in range(8)]
    history: list[DrivenEvent] = [
        appended(0, 0, FairRules(by_key=True, weights=(("a", 2),))),
        appended(0, 1, *messages),
    ]
    history += [appended(0, 10 + at, grant(2 + at)) for at in range(4)]
    assert broken(history) == []
    assert broken([*history, appended(0, 14, grant(6))]) == ["fair-share"]


# ── dead letters ──


def letters(*events: DrivenEvent, retries: int = 0) -> list[str]:
    began = appended(0, 0, Enqueue(0, b"1"), grant(0))
    return broken([began, *events], Features(max_retries=retries))


MOVE = Move(0, 0, "t.dlq", 0, 1, "")
ARRIVES = Enqueue(0, b"1", producer=ProducerSequence(MOVER, 0, 2))


def test_a_message_moves_when_its_retries_are_spent() -> None:
    assert letters(appended(0, 2, MOVE)) == []
    assert letters(appended(0, 2, MOVE), retries=1) == ["retries-kept"]
    assert letters(appended(0, 2, Retry(Op.NACK, ((0, 0),)))) == ["retries-kept"]
    assert letters(appended(0, 2, Retry(Op.RELEASE, ((0, 0),)))) == []


def test_a_dead_letter_arrives_once_and_never_without_its_move() -> None:
    moved = appended(0, 2, MOVE)
    assert letters(moved, appended(LETTERS, 0, ARRIVES)) == []
    assert letters(moved, appended(LETTERS, 0, ARRIVES, ARRIVES)) == ["moved-once"]
    assert letters(appended(LETTERS, 0, ARRIVES)) == ["moved-once"]
    assert letters(moved, appended(0, 3, Moved((2,)))) == ["moved-once"]
    assert letters(moved, appended(LETTERS, 0, ARRIVES), TailCut(0.0, 0, 2)) == ["moved-once"]


# ── snapshots ──


def test_snapshots_say_what_the_log_says_and_are_listed_by_its_leader() -> None:
    assert broken([StateRecovered(0.0, 0, 1, 9, 5, False)]) == ["recovered-as-logged"]
    assert broken([SnapshotListed(0.0, 0, 0, 5), SnapshotListed(0.0, 0, 0, 9)]) == []
    assert broken([SnapshotListed(0.0, 0, 0, 5), SnapshotListed(0.0, 0, 0, 4)]) == ["snapshots-fenced"]
    assert broken([SnapshotListed(0.0, 0, 1, 5)]) == ["snapshots-fenced"]
