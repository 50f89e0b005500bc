"""Lag: the distance between a group's committed offsets and the ends of their partitions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from holdfast.groups.model import CommittedOffset, PartitionLag
from holdfast.vocabulary.types import TopicPartition


async def lag_by_partition(
    committed: Mapping[TopicPartition, CommittedOffset], end_of: Callable[[TopicPartition], Awaitable[int | None]]
) -> Sequence[PartitionLag]:
    """Lag by partition: 0 for an offset beyond the end (a topic created again), None for EARLIEST and LATEST."""
    lags = []
    for partition, offset in sorted(committed.items()):
        end = await end_of(partition)
        behind = None if end is None or offset.offset < 0 else max(0, end - offset.offset)
        lags.append(PartitionLag(partition, offset.offset, end, behind))
    return lags
