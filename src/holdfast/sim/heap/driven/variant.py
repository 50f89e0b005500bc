"""Which code the world of driven heaps runs: the shipped code, or a mutant with a single mistake."""

from dataclasses import dataclass
from typing import Final

from holdfast.heap.partition import HeapPartition
from holdfast.heap.spine.driver import SpineDriver
from holdfast.heap.spine.spine import Spine


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenVariant:
    """Everything a mutant may replace; the defaults are the shipped code."""

    name: str
    wrong: str = ""
    partition: type[HeapPartition] = HeapPartition
    driver: type[SpineDriver] = SpineDriver
    spine: type[Spine] = Spine


CORRECT_DRIVEN: Final = DrivenVariant(name="correct")
