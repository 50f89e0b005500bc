"""Heap partitions and spines as they ship, in the simulator: every rule is kept, planted bugs are found, a seed repeats exactly."""

from collections import Counter
from pathlib import Path

import pytest

from holdfast.heap.records import Enqueue, Grant
from holdfast.sim.heap.driven.checker import DrivenChecker
from holdfast.sim.heap.driven.history import (
    AckAnswered,
    DrivenEvent,
    EnqueueAnswered,
    MessageDelivered,
    NackAnswered,
    RecordsAppended,
    TailCut,
    describe_driven,
)
from holdfast.sim.heap.driven.mutants import DRIVEN_MUTANTS
from holdfast.sim.heap.driven.variant import CORRECT_DRIVEN, PLAIN_DRIVEN
from holdfast.sim.heap.driven.world import run_driven_seed
from holdfast.sim.seeds import read_seeds
from holdfast.sim.worlds import HEAP_DRIVEN

SEEDS = 24  # of the short form: about two seconds
SEEDS_MAX = 200
KEPT = read_seeds(Path(__file__).with_name("driven_seeds.txt"), HEAP_DRIVEN)
KEPT_MUTANTS = {kept.variant: kept for kept in KEPT if kept.variant in DRIVEN_MUTANTS}


@pytest.mark.slow
def test_a_few_seeds_keep_every_rule_and_are_eventful() -> None:
    seen: Counter[type] = Counter()
    counts: Counter[str] = Counter()
    exact = 0
    for seed in range(SEEDS):
        run = run_driven_seed(seed)
        assert run.violations == []
        seen.update(map(type, run.events))
        counts.update(run.counts)
        exact += run.configuration.k in run.ranks
    assert all(seen[kind] for kind in (TailCut, NackAnswered, AckAnswered))
    assert counts["spines"] > SEEDS
    assert counts["leaders"] > 4 * SEEDS
    assert exact, "some message has the worst rank that its topic allows"


@pytest.mark.long  # the short form has a few of them
def test_many_seeds_keep_every_rule() -> None:
    assert [seed for seed in range(SEEDS, 3_000) if run_driven_seed(seed).violations] == []


@pytest.mark.slow
def test_seeds_that_once_failed_keep_every_rule() -> None:
    shipped = {variant.name: variant for variant in (CORRECT_DRIVEN, PLAIN_DRIVEN)}
    kept = [each for each in KEPT if each.variant in shipped]
    assert [each for each in kept if run_driven_seed(each.seed, variant=shipped[each.variant]).violations] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIVEN_MUTANTS)
def test_a_planted_bug_is_caught_by_its_seed(name: str) -> None:
    kept = KEPT_MUTANTS[name]
    rules = {violation.rule for violation in run_driven_seed(kept.seed, variant=DRIVEN_MUTANTS[name]).violations}
    assert kept.rule in rules


@pytest.mark.long  # the seeds of the short form were found by this search
@pytest.mark.parametrize("name", DRIVEN_MUTANTS)
def test_a_planted_bug_is_found_by_a_search(name: str) -> None:
    first = KEPT_MUTANTS[name].seed // SEEDS_MAX * SEEDS_MAX  # a rare one is searched for where it was found
    seeds = range(first, first + SEEDS_MAX)
    assert any(run_driven_seed(seed, variant=DRIVEN_MUTANTS[name]).violations for seed in seeds)


@pytest.mark.parametrize(
    ("fails", "delivered", "broken"),
    [(True, False, []), (True, True, ["delivered-logged"]), (False, False, ["granted-once"])],
)
def test_a_grant_of_what_a_failed_disk_undid_is_void_unless_it_is_delivered(
    fails: bool, delivered: bool, broken: list[str]
) -> None:
    """It waited for room meanwhile. Without a failure there is no such grant."""
    history: list[DrivenEvent] = [RecordsAppended(0.0, 0, 1, 0, (Enqueue(5, b"1"),), forked=False)]
    if fails:
        history.append(TailCut(1.0, 0, 0))
    unknown = Grant(1, 100, "c", ((7, 5),))
    history.append(RecordsAppended(2.0, 0, 1, 0, (unknown,), forked=False))
    if delivered:
        history.append(MessageDelivered(3.0, "c", 0, 1, 0, 7, 1))
    violations = DrivenChecker(k=1, mode="min", partitions=1).check(history)
    assert [violation.rule for violation in violations] == broken


@pytest.mark.parametrize(("is_cut", "bound", "broken"), [(False, 1, []), (True, 1, ["rank-bound"]), (True, 2, [])])
def test_a_message_whose_grant_is_cut_off_counted_all_the_time(is_cut: bool, bound: int, broken: list[str]) -> None:
    history: list[DrivenEvent] = []
    for partition, payload in enumerate((b"1", b"2")):
        history.append(RecordsAppended(0.0, partition, 1, 0, (Enqueue(partition, payload),), forked=False))
        history.append(EnqueueAnswered(0.0, partition, 0, payload, False))
    for partition in range(2):
        history.append(RecordsAppended(1.0, partition, 1, 1, (Grant(1, 100, "c", ((0, partition),)),), forked=False))
    history.append(MessageDelivered(2.0, "c", 1, 1, 1, 0, bound))
    if is_cut:
        history.append(TailCut(3.0, 0, 1))
    violations = DrivenChecker(k=2, mode="min", partitions=2).check(history)
    assert [violation.rule for violation in violations] == broken


def test_a_seed_repeats_exactly_and_has_a_transcript() -> None:
    first, second = run_driven_seed(0), run_driven_seed(0)
    assert first.events == second.events
    assert all(describe_driven(event) for event in first.events)
