"""Heaps that grow, in the simulator: what is enqueued again is found, whoever routed it, and planted bugs are not overlooked."""

from pathlib import Path

import pytest

from holdfast.sim.heap.batches import describe_batch_event
from holdfast.sim.heap.growth import run_growth_seed
from holdfast.sim.heap.growth_variant import GROWTH_MUTANTS
from holdfast.sim.seeds import read_seeds
from holdfast.sim.worlds import HEAP_GROWTH

SEEDS = 60  # of the short form: about two seconds
SEEDS_MAX = 1_000
KEPT = read_seeds(Path(__file__).with_name("growth_seeds.txt"), HEAP_GROWTH)
KEPT_MUTANTS = {kept.variant: kept for kept in KEPT if kept.variant in GROWTH_MUTANTS}


@pytest.mark.slow
def test_a_few_seeds_keep_every_rule_and_are_eventful() -> None:
    runs = [run_growth_seed(seed) for seed in range(SEEDS)]
    assert [seed for seed, run in enumerate(runs) if run.violations] == []
    assert max(run.counts["partitions"] for run in runs) > 8
    assert any("PartitionCount" in text for run in runs for _, text in map(describe_batch_event, run.events)), (
        "leaders have logged that the heap grew"
    )


@pytest.mark.long  # the short form has a few of them
def test_many_seeds_keep_every_rule() -> None:
    assert [seed for seed in range(SEEDS, 5_000) if run_growth_seed(seed).violations] == []


@pytest.mark.parametrize("name", GROWTH_MUTANTS)
def test_a_planted_bug_is_caught_by_its_seed(name: str) -> None:
    kept = KEPT_MUTANTS[name]
    rules = {violation.rule for violation in run_growth_seed(kept.seed, variant=GROWTH_MUTANTS[name]).violations}
    assert kept.rule in rules


@pytest.mark.long  # the seeds of the short form were found by this search
@pytest.mark.parametrize("name", GROWTH_MUTANTS)
def test_a_planted_bug_is_found_by_a_search(name: str) -> None:
    assert any(run_growth_seed(seed, variant=GROWTH_MUTANTS[name]).violations for seed in range(SEEDS_MAX))
