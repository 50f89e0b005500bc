"""What the oracle found in many configurations, as one value."""

from collections.abc import Sequence

import msgspec

from holdfast.sim.heap.fair_world import FairHeapWorld
from holdfast.sim.heap.history import LeaderChanged, LinkLost, PartitionsAdded, SpineChanged
from holdfast.sim.heap.mutants import FAIR_MUTANTS, HEAP_MUTANTS
from holdfast.sim.heap.variant import CORRECT_HEAP
from holdfast.sim.heap.world import HeapWorld, run_heap_seed

FAULTS = (LeaderChanged, SpineChanged, LinkLost, PartitionsAdded)


class Measured(msgspec.Struct, frozen=True):
    """One configuration."""

    seed: int
    k: int
    partitions: int
    pops: int
    worst: int
    messages: int
    faults: int
    violation: str


class OracleReport(msgspec.Struct, frozen=True):
    """All of them. `exact_…`: the topics with K=1."""

    configurations: int
    pops: int
    violations: int
    worst_rank: int
    worst_rank_k: int
    met_exactly: int
    exact_configurations: int
    exact_pops: int
    exact_worst: int
    faults: int
    messages_per_pop: float
    failures: Sequence[tuple[int, str]]


def measure(seed: int, *, k: int | None = None, planted: str | None = None, fairness: bool = False) -> Measured:
    """Run one configuration and rank its pops."""
    variant = {**HEAP_MUTANTS, **FAIR_MUTANTS}[planted] if planted else CORRECT_HEAP
    run = run_heap_seed(seed, variant=variant, k=k, world_of=FairHeapWorld if fairness else HeapWorld)
    return Measured(
        seed=seed,
        k=run.configuration.k,
        partitions=run.configuration.partitions,
        pops=len(run.pops),
        worst=max((pop.rank for pop in run.pops), default=0),
        messages=run.counts["messages"],
        faults=sum(isinstance(event, FAULTS) for event in run.events),
        violation=f"{run.violations[0].rule}: {run.violations[0].what}" if run.violations else "",
    )


def report(measured: Sequence[Measured]) -> OracleReport:
    """Every configuration as one."""
    worst = max(measured, key=lambda each: (each.worst / each.k, each.worst))
    exact = [each for each in measured if each.k == 1]
    pops = sum(each.pops for each in measured)
    return OracleReport(
        configurations=len(measured),
        pops=pops,
        violations=sum(bool(each.violation) for each in measured),
        worst_rank=worst.worst,
        worst_rank_k=worst.k,
        met_exactly=sum(each.worst == each.k for each in measured),
        exact_configurations=len(exact),
        exact_pops=sum(each.pops for each in exact),
        exact_worst=max((each.worst for each in exact), default=0),
        faults=sum(each.faults for each in measured),
        messages_per_pop=round(sum(each.messages for each in measured) / max(1, pops), 2),
        failures=[(each.seed, each.violation) for each in measured if each.violation],
    )
