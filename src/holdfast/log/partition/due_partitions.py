"""When dirty partitions are due, in a heap: what rests costs nothing until its time has come. No I/O; time is an argument.

`due_ms` is pure. An entry is looked at again when it comes up: a partition that was published or appended to meanwhile is due at
another time, and goes back to where it belongs.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.settings import LeadershipSettings

_STALE_MAX: Final = 64


def is_due(partition: LeadingPartition, now_ms: int, *, object_interval_ms: int) -> bool:
    """Whether it is time to publish: enough bytes, old enough, or requested."""
    at_ms = publication_due_ms(partition, object_interval_ms=object_interval_ms)
    return at_ms is not None and now_ms >= at_ms


def publication_due_ms(partition: LeadingPartition, *, object_interval_ms: int) -> int | None:
    """When it is time to publish; None: there is nothing."""
    oldest_ms = partition.oldest_unpublished_ms
    if oldest_ms is None or partition.awaits_replicas:
        return None
    if partition.publish_requested or partition.unpublished_bytes >= partition.publish_bytes:
        return oldest_ms
    return oldest_ms + (object_interval_ms if partition.level == "object" else partition.partition_config.roll_ms)


def is_idle(partition: LeadingPartition, now_ms: int, *, idle_ms: int) -> bool:
    """Whether reserved offsets should be released: everything is published, and nothing was appended for a while."""
    record = partition.record
    return record.reserved > record.published == partition.next_offset and now_ms - partition.appended_at_ms >= idle_ms


def largest_unpublished(partitions: Iterable[LeadingPartition], excess_bytes: int) -> set[LeadingPartition]:
    """The fewest partitions whose publication frees `excess_bytes`."""
    chosen: set[LeadingPartition] = set()
    if excess_bytes > 0:
        for each in sorted(partitions, key=lambda partition: -partition.unpublished_bytes):
            if excess_bytes <= 0 or not each.unpublished_bytes:
                break
            chosen.add(each)
            excess_bytes -= each.unpublished_bytes
    return chosen


def publication_groups(
    partitions: Iterable[LeadingPartition], settings: LeadershipSettings
) -> Iterator[list[LeadingPartition]]:
    """What one publication takes, each: so many bytes, and so many partitions."""
    group: list[LeadingPartition] = []
    size_bytes = 0
    for each in partitions:
        size_bytes += each.unpublished_bytes
        if group and (size_bytes > settings.together_bytes_max or len(group) >= settings.together_partitions_max):
            yield group
            group, size_bytes = [], each.unpublished_bytes
        group.append(each)
    if group:
        yield group


class DuePartitions:
    """Partitions by when to look at them again."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, LeadingPartition]] = []
        self._at_ms: dict[LeadingPartition, float] = {}
        self._turn = itertools.count()

    def __len__(self) -> int:
        return len(self._at_ms)

    def put(self, partition: LeadingPartition, at_ms: float) -> None:
        """Look at it then, and not at the time that was said before."""
        if self._at_ms.get(partition) != at_ms:
            self._at_ms[partition] = at_ms
            heapq.heappush(self._heap, (at_ms, next(self._turn), partition))
            if len(self._heap) > 2 * len(self._at_ms) + _STALE_MAX:
                self._drop_stale()

    def discard(self, partition: LeadingPartition) -> None:
        """Do not look at it."""
        self._at_ms.pop(partition, None)
        if not self._at_ms:
            self._heap.clear()

    def is_due(self, now_ms: float) -> bool:
        """Whether the time of some may have come."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def take(self, now_ms: float, count_max: int = 1 << 31) -> list[LeadingPartition]:
        """Those whose time has come, the earliest first."""
        taken: list[LeadingPartition] = []
        while self.is_due(now_ms) and len(taken) < count_max:
            at_ms, _, partition = heapq.heappop(self._heap)
            if self._at_ms.get(partition) == at_ms:
                del self._at_ms[partition]
                taken.append(partition)
        return taken

    def _drop_stale(self) -> None:
        """Leave out what was said and does not hold any more: it may be due in a week, and holds partitions that are closed."""
        self._heap = [each for each in self._heap if self._at_ms.get(each[2]) == each[0]]
        heapq.heapify(self._heap)
