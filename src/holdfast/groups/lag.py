"""Lag: how far what a group has committed is behind the end of each partition."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from holdfast.groups.model import CommittedOffset, PartitionLag
from holdfast.vocabulary.types import TopicPartition


async def lag_by_partition(
    committed: Mapping[TopicPartition, CommittedOffset], end_of: Callable[[TopicPartition], Awaitable[int | None]]
) -> Sequence[PartitionLag]:
    """By partition. An offset beyond the end (a topic made anew, perhaps) is no lag; of "the earliest" it is not known."""
    lags = []
    for partition, offset in sorted(committed.items()):
        end = await end_of(partition)
        behind = None if end is None or offset.offset < 0 else max(0, end - offset.offset)
        lags.append(PartitionLag(partition, offset.offset, end, behind))
    return lags
