"""Enqueues of an earlier set of partitions: what a new partition asks the earlier home of a key, and what that answers. Pure.

The one rule: whoever answers has in its log that the heap has grown, so that it takes no such enqueue afterwards. Its answer stays
true then, and so does the highest number it knows of a producer: above that nothing has to be asked again.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast.heap.batch.reservation import check_not_reserved
from holdfast.heap.decisions import known_enqueue
from holdfast.heap.dedup import KnownEnqueue
from holdfast.heap.model import Enqueued
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import ProducerSequence

NOTHING: Final = -1
_PRODUCERS_MAX: Final = 100_000  # that are remembered; beyond it they are asked for again


class LookUp(msgspec.Struct, frozen=True, array_like=True):
    """Which of these enqueues are known to you? The heap has `partitions`."""

    partitions: int
    keys: list[ProducerSequence]


class Found(msgspec.Struct, frozen=True, array_like=True):
    """What became of each, None: it was not enqueued here and never will be; and the highest number of each producer and epoch."""

    enqueued: list[Enqueued | None]
    highest: list[tuple[str, int, int]]


def decide_look_up(
    state: HeapState, topic: str, keys: Sequence[ProducerSequence], *, window_ms: int, now_ms: int
) -> list[KnownEnqueue | None]:
    """The enqueues that are known here. `BatchAbortedError`: one is of a batch that is not decided.
    `ProducerFencedError`, `SequenceForgottenError`."""
    for key in keys:
        check_not_reserved(state, topic, key)
    return [known_enqueue(state, key, window_ms, now_ms) for key in keys]


def highest_numbers(state: HeapState, keys: Iterable[ProducerSequence]) -> list[tuple[str, int, int]]:
    """The highest number of each producer and epoch that was enqueued here, or is reserved and may yet be."""
    found = {(key.producer, key.epoch): state.dedup.highest(key.producer, key.epoch) for key in keys}
    for key in state.reserved.keys:
        if (producer := (key.producer, key.epoch)) in found:
            found[producer] = max(found[producer], key.sequence)
    return [(producer, epoch, highest) for (producer, epoch), highest in found.items()]


class AskedHomes:
    """What earlier homes have answered to one leadership of a new partition."""

    def __init__(self) -> None:
        self._highest: dict[tuple[int, str, int], int] = {}

    def must_ask(self, home: int, key: ProducerSequence) -> bool:
        """Whether that home may know an enqueue."""
        highest = self._highest.get((home, key.producer, key.epoch))
        return highest is None or key.sequence <= highest

    def answered(self, home: int, highest: Iterable[tuple[str, int, int]]) -> None:
        """A home has told the highest numbers it knows. The first answer is the least that holds: it may grow since."""
        if len(self._highest) >= _PRODUCERS_MAX:
            self._highest.clear()
        for producer, epoch, number in highest:
            self._highest.setdefault((home, producer, epoch), number)
