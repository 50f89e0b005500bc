"""What people look at: the messages that come next, and the figures of heaps, over all partitions. Any node answers."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.gateways.heap.calls import HeapCalls
from holdfast.heap.local_heaps import DLQ_SUFFIX, heap_config
from holdfast.heap.model import PartitionStats, PeekedMessage
from holdfast.heap.wire import PeekRequest, StatsRequest
from holdfast.log.topics import UnknownTopicError

_NO_PARTITION: Final = -1


class HeapStats(NamedTuple):
    """The figures of a heap. `total`: of all partitions. `dlq`: dead letters that wait."""

    topic: str
    total: PartitionStats
    dlq: int
    partitions: Sequence[PartitionStats]


async def peek(calls: HeapCalls, topic: str, *, limit: int, partition: int | None = None) -> list[PeekedMessage]:
    """The messages that would be popped next, the best first."""
    heap = await calls.heap(topic)
    found: list[PeekedMessage] = await calls.call(PeekRequest(topic=topic, partition=partition, limit=limit))
    if heap.partitions == 1:
        return found[:limit]  # in its own order, which may be that of fairness keys
    sign = 1 if heap_config(heap).mode == "min" else -1
    return sorted(found, key=lambda each: (sign * each.priority, each.enqueued_ms))[:limit]


async def stats(calls: HeapCalls, topic: str, *, partition: int | None = None) -> HeapStats:
    """The figures of a heap, or of one of its partitions."""
    found: list[PartitionStats] = await calls.call(StatsRequest(topic=topic, partition=partition))
    letters: list[PartitionStats] = []
    if not topic.endswith(DLQ_SUFFIX):
        try:
            letters = await calls.call(StatsRequest(topic=topic + DLQ_SUFFIX, partition=partition))
        except UnknownTopicError:
            letters = []  # the heap has none
    total = PartitionStats(_NO_PARTITION, *(sum(each) for each in zip(*(row[1:] for row in found), strict=True)))
    return HeapStats(topic, total, sum(each.ready + each.delayed for each in letters), found)
