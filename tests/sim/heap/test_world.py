"""The protocols of heaps: the code that ships keeps every rule, planted bugs do not, and a seed decides everything."""

from collections import Counter
from pathlib import Path

import pytest

from holdfast.sim.heap.history import LeaderChanged, LinkLost, PartitionsAdded, SpineChanged, describe_heap
from holdfast.sim.heap.mutants import HEAP_MUTANTS
from holdfast.sim.heap.world import run_heap_seed
from holdfast.sim.seeds import read_seeds
from holdfast.sim.worlds import HEAP

SEEDS = 25  # of the short form: about a second
SEEDS_MAX = 2_000
KEPT = read_seeds(Path(__file__).with_name("seeds.txt"), HEAP)
KEPT_MUTANTS = {kept.variant: kept for kept in KEPT if kept.variant in HEAP_MUTANTS}


@pytest.mark.slow
def test_a_few_seeds_keep_every_rule_and_are_eventful() -> None:
    seen: Counter[type] = Counter()
    exact = 0
    for seed in range(SEEDS):
        run = run_heap_seed(seed)
        assert run.violations == []
        seen.update(map(type, run.events))
        exact += sum(pop.rank == run.configuration.k for pop in run.pops)
    assert all(seen[kind] for kind in (LeaderChanged, SpineChanged, LinkLost, PartitionsAdded))
    assert exact, "some pop has the worst rank that its topic allows"


@pytest.mark.long  # the short form has a few of them
def test_many_seeds_keep_every_rule() -> None:
    assert [seed for seed in range(SEEDS, 1_000) if run_heap_seed(seed).violations] == []


@pytest.mark.slow
def test_seeds_that_once_failed_keep_every_rule() -> None:
    assert [kept.seed for kept in KEPT if kept.variant == "correct" and run_heap_seed(kept.seed).violations] == []


@pytest.mark.parametrize("name", HEAP_MUTANTS)
def test_a_planted_bug_is_caught_by_its_seed(name: str) -> None:
    kept = KEPT_MUTANTS[name]
    rules = {violation.rule for violation in run_heap_seed(kept.seed, variant=HEAP_MUTANTS[name]).violations}
    assert kept.rule in rules


@pytest.mark.long  # the seeds of the short form were found by this search
@pytest.mark.parametrize("name", HEAP_MUTANTS)
def test_a_planted_bug_is_found_by_a_search(name: str) -> None:
    assert any(run_heap_seed(seed, variant=HEAP_MUTANTS[name]).violations for seed in range(SEEDS_MAX))


def test_a_seed_decides_everything_and_has_a_transcript() -> None:
    first, second = run_heap_seed(3), run_heap_seed(3, tracing=True)
    assert first.pops == second.pops or len(second.events) > len(first.events)
    assert [pop.rank for pop in first.pops] == [pop.rank for pop in second.pops]
    assert all(describe_heap(event) for event in second.events)
