"""What the heaps of one process have done since it started, across leaderships that came and went.

The one rule: a partition's own counters go back to its first record, so only what they grew by under a leadership here counts.
"""

from collections.abc import Mapping

from holdfast.heap.model import PoppedMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.partition_state import Counters
from holdfast.log.model import PartitionId
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.histogram import LATENCY_BOUNDS_MS, Histogram

COUNTED = Counters.__struct_fields__


class HeapFigures:
    """Figures of all heap partitions that were led here. `open`: those that are."""

    def __init__(self, open_partitions: Mapping[PartitionId, HeapPartition], clock: Clock) -> None:
        self.enqueue_ms = Histogram(LATENCY_BOUNDS_MS)
        self.pop_ms = Histogram(LATENCY_BOUNDS_MS)
        self._open, self._clock = open_partitions, clock
        self._before: dict[PartitionId, tuple[int, ...]] = {}
        self._past: dict[str, tuple[int, ...]] = {}  # by topic
        self._past_apply_ms = Histogram(LATENCY_BOUNDS_MS)

    def opened(self, view: HeapPartition) -> None:
        """Its counters are those of its log; what comes is ours."""
        self._before[view.log.partition_id] = _values(view)

    def ended(self, view: HeapPartition) -> None:
        """Keep what it has added."""
        topic = view.log.partition_id.topic
        self._past[topic] = _sum(self._past.get(topic), self._grown(view))
        self._past_apply_ms.merge(view.apply_ms)
        self._before.pop(view.log.partition_id, None)

    def counters(self) -> dict[str, dict[str, int]]:
        """How often what happened, by topic."""
        found = dict(self._past)
        for which, view in self._open.items():
            found[which.topic] = _sum(found.get(which.topic), self._grown(view))
        return {topic: dict(zip(COUNTED, values, strict=True)) for topic, values in found.items()}

    def apply_ms(self) -> Histogram:
        """How long operations took from their append until they were durable, one observation for each batch."""
        found = Histogram(LATENCY_BOUNDS_MS)
        for each in (self._past_apply_ms, *(view.apply_ms for view in self._open.values())):
            found.merge(each)
        return found

    def popped(self, began_ms: int, messages: list[PoppedMessage]) -> None:
        """A pop that began then got messages. What it waited for them is not its latency."""
        if messages:
            arrived_ms = max(message.enqueued_ms for message in messages)
            waited_for_ms = self._clock.now_ms() - arrived_ms
            self.pop_ms.observe(max(0, min(self._clock.boot_ms() - began_ms, waited_for_ms)))

    def _grown(self, view: HeapPartition) -> tuple[int, ...]:
        now = _values(view)
        before = self._before.get(view.log.partition_id, now)
        return tuple(after - first for after, first in zip(now, before, strict=True))


def _values(view: HeapPartition) -> tuple[int, ...]:
    return tuple(getattr(view.state.counters, name) for name in COUNTED)


def _sum(before: tuple[int, ...] | None, more: tuple[int, ...]) -> tuple[int, ...]:
    return more if before is None else tuple(a + b for a, b in zip(before, more, strict=True))
