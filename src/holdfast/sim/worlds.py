"""The worlds there are: leases (the kernel alone), cluster (whole agents), heap, heap-batches and heap-growth (protocols),
heap-driven (partitions and spines of heaps). One table of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.sim.checker import RULES, Violation
from holdfast.sim.cluster.checker import CLUSTER_RULES
from holdfast.sim.cluster.history import RecordsAcknowledged, RecordsRead
from holdfast.sim.cluster.mutants import CLUSTER_MUTANTS
from holdfast.sim.cluster.mutants import CORRECT as CORRECT_CLUSTER
from holdfast.sim.cluster.transcript import describe_cluster
from holdfast.sim.cluster.world import run_cluster_seed
from holdfast.sim.heap.batch_variant import BATCH_MUTANTS, CORRECT_BATCHES
from holdfast.sim.heap.batches import BATCH_RULES, describe_batch_event, run_batch_seed
from holdfast.sim.heap.driven.checker import DRIVEN_RULES
from holdfast.sim.heap.driven.history import MessageDelivered, describe_driven
from holdfast.sim.heap.driven.mutants import DRIVEN_MUTANTS
from holdfast.sim.heap.driven.variant import CORRECT_DRIVEN, PLAIN_DRIVEN
from holdfast.sim.heap.driven.world import run_driven_seed
from holdfast.sim.heap.growth import GROWTH_RULES, run_growth_seed
from holdfast.sim.heap.growth_variant import CORRECT_GROWTH, GROWTH_MUTANTS
from holdfast.sim.heap.history import MessagesGranted, describe_heap
from holdfast.sim.heap.mutants import HEAP_MUTANTS
from holdfast.sim.heap.rank_oracle import HEAP_RULES
from holdfast.sim.heap.variant import CORRECT_HEAP
from holdfast.sim.heap.world import run_heap_seed
from holdfast.sim.history import EffectAcknowledged, LeaseAcquired
from holdfast.sim.mutants import MUTANTS
from holdfast.sim.transcript import describe
from holdfast.sim.variant import CORRECT
from holdfast.sim.world import run_seed
from holdfast.vocabulary.errors import InvalidError


class AnyVariant(Protocol):
    """Which code a world runs."""

    @property
    def name(self) -> str: ...


class AnyRun(Protocol):
    """The result of one seed of any world."""

    @property
    def violations(self) -> list[Violation]: ...

    @property
    def counts(self) -> dict[str, int]: ...

    @property
    def events(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimWorld:
    """A world as commands know it. `counted`: the events whose means are shown; `collect_every_seeds`: garbage.

    `plain`: the shipped code in less of a world, as it was when some seeds were kept.
    """

    name: str
    run: Callable[..., AnyRun]
    correct: AnyVariant
    mutants: Mapping[str, AnyVariant]
    rules: Mapping[str, str]
    describe: Callable[[Any], tuple[str, str]]
    counted: Mapping[str, type]
    seeds_path: Path
    collect_every_seeds: int
    plain: AnyVariant | None = None

    def variant(self, name: str) -> AnyVariant:
        """The variant of that name."""
        known = {self.correct.name: self.correct, **self.mutants}
        if self.plain is not None:
            known[self.plain.name] = self.plain
        if name not in known:
            raise InvalidError("variant", name, "one of " + ", ".join(known))
        return known[name]


LEASES: Final = SimWorld(
    name="leases",
    run=run_seed,
    correct=CORRECT,
    mutants=MUTANTS,
    rules=RULES,
    describe=describe,
    counted={"acquisitions": LeaseAcquired, "effects": EffectAcknowledged},
    seeds_path=Path("tests/sim/seeds.txt"),
    collect_every_seeds=200,
)
CLUSTER: Final = SimWorld(
    name="cluster",
    run=run_cluster_seed,
    correct=CORRECT_CLUSTER,
    mutants=CLUSTER_MUTANTS,
    rules=CLUSTER_RULES,
    describe=describe_cluster,
    counted={"batches acknowledged": RecordsAcknowledged, "reads": RecordsRead},
    seeds_path=Path("tests/sim/cluster/seeds.txt"),
    collect_every_seeds=20,
)
HEAP: Final = SimWorld(
    name="heap",
    run=run_heap_seed,
    correct=CORRECT_HEAP,
    mutants=HEAP_MUTANTS,
    rules=HEAP_RULES,
    describe=describe_heap,
    counted={"grants": MessagesGranted},
    seeds_path=Path("tests/sim/heap/seeds.txt"),
    collect_every_seeds=50,
)
HEAP_BATCHES: Final = SimWorld(
    name="heap-batches",
    run=run_batch_seed,
    correct=CORRECT_BATCHES,
    mutants=BATCH_MUTANTS,
    rules=BATCH_RULES,
    describe=describe_batch_event,
    counted={},
    seeds_path=Path("tests/sim/heap/batch_seeds.txt"),
    collect_every_seeds=200,
)
HEAP_GROWTH: Final = SimWorld(
    name="heap-growth",
    run=run_growth_seed,
    correct=CORRECT_GROWTH,
    mutants=GROWTH_MUTANTS,
    rules=GROWTH_RULES,
    describe=describe_batch_event,
    counted={},
    seeds_path=Path("tests/sim/heap/growth_seeds.txt"),
    collect_every_seeds=200,
)
HEAP_DRIVEN: Final = SimWorld(
    name="heap-driven",
    run=run_driven_seed,
    correct=CORRECT_DRIVEN,
    plain=PLAIN_DRIVEN,
    mutants=DRIVEN_MUTANTS,
    rules=DRIVEN_RULES,
    describe=describe_driven,
    counted={"deliveries": MessageDelivered},
    seeds_path=Path("tests/sim/heap/driven_seeds.txt"),
    collect_every_seeds=10,
)
WORLDS: Final = {world.name: world for world in (LEASES, CLUSTER, HEAP, HEAP_BATCHES, HEAP_GROWTH, HEAP_DRIVEN)}
