"""Which code the world of growing heaps runs: the shipped code, or a mutant with a single mistake."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.heap.growth.look_up import highest_numbers
from holdfast.heap.growth.partition_sets import PartitionSets, check_home, earlier_homes
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import ProducerSequence

WINDOW_MS: Final = 1_000_000
NOW_MS: Final = 1_000  # time decides nothing here


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthVariant:
    """Everything a mutant may replace."""

    name: str
    wrong: str = ""
    earlier_asked: tuple[int | None, int | None] = (None, None)  # a slice of the sets there were
    logs_growth: bool = True
    checks_homes: bool = True
    counts_reserved: bool = True

    def homes(self, message: NewMessage, number: int, sets: PartitionSets) -> tuple[int, ...]:
        """Where an enqueue is looked up."""
        asked = PartitionSets(sets.partitions, sets.earlier[slice(*self.earlier_asked)])
        return earlier_homes(message, number, asked, window_ms=WINDOW_MS, now_ms=NOW_MS)

    def check_home(self, state: HeapState, number: int, message: NewMessage) -> None:
        """`PartitionsGrownError`: the message is looked for elsewhere."""
        if self.checks_homes:
            check_home(state, "t", number, message, window_ms=WINDOW_MS, now_ms=NOW_MS)

    def highest(self, state: HeapState, keys: Sequence[ProducerSequence]) -> list[tuple[str, int, int]]:
        """What need not be asked for again is above these."""
        if self.counts_reserved:
            return highest_numbers(state, keys)
        return [(key.producer, key.epoch, state.dedup.highest(key.producer, key.epoch)) for key in keys]


CORRECT_GROWTH: Final = GrowthVariant(name="correct")
GROWTH_MUTANTS: Final = {
    variant.name: variant
    for variant in (
        GrowthVariant(
            name="new-set-only", wrong="an enqueue is looked for in its new partition alone", earlier_asked=(None, 0)
        ),
        GrowthVariant(
            name="last-set-only",
            wrong="of earlier partitions, those before the last growth alone are asked",
            earlier_asked=(-1, None),
        ),
        GrowthVariant(
            name="growth-unlogged",
            wrong="whoever was asked has it in memory alone that the heap has grown",
            logs_growth=False,
        ),
        GrowthVariant(
            name="homes-unchecked", wrong="whoever was asked still takes what was routed before", checks_homes=False
        ),
        GrowthVariant(
            name="reserved-unseen",
            wrong="numbers of undecided batches are not among those that must be asked for",
            counts_reserved=False,
        ),
    )
}
