"""Which code the world of driven heaps runs: the shipped code, or a mutant with a single mistake."""

from dataclasses import dataclass
from typing import Final

from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.moves import Mover
from holdfast.heap.snapshots import SnapshotKeeper
from holdfast.heap.spine.driver import SpineDriver
from holdfast.heap.spine.spine import Spine
from holdfast.log.owned_snapshots import OwnedSnapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenVariant:
    """Everything a mutant may replace; the defaults are the shipped code.

    `features`: whether heaps may have more than messages; without, a seed is the run that it was before there were any.
    """

    name: str
    wrong: str = ""
    features: bool = True
    partition: type[GrowingPartition] = GrowingPartition
    driver: type[SpineDriver] = SpineDriver
    spine: type[Spine] = Spine
    mover: type[Mover] = Mover
    keeper: type[SnapshotKeeper] = SnapshotKeeper
    snapshots: type[OwnedSnapshots] = OwnedSnapshots


CORRECT_DRIVEN: Final = DrivenVariant(name="correct")
PLAIN_DRIVEN: Final = DrivenVariant(name="plain", features=False)
