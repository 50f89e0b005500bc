"""Which code the world of heaps runs, and in what configuration."""

from dataclasses import dataclass
from typing import Final

from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.spine import Spine


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapVariant:
    """Everything a mutant may replace; the defaults are the shipped code."""

    name: str
    wrong: str = ""
    spine: type[Spine] = Spine
    leader_end: type[LeaderEnd] = LeaderEnd
    counts_timers: bool = True
    logs_spine_epochs: bool = True
    keeps_limits: bool = True
    counts_openings: bool = True
    keeps_key_limits: bool = True


CORRECT_HEAP: Final = HeapVariant(name="correct")
