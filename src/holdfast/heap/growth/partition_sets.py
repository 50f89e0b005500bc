"""The partitions a heap has and had, and where an enqueue is looked for. Pure; docs/heaps.md says what growth means for callers.

The one rule: a key belongs to the partition with the highest hash of those there are, so growth moves it to a new partition or not
at all. The leader of a partition therefore knows every earlier home of its keys: they are those of the sets without it, and it
would not exist if these had not been outgrown.
"""

from typing import Final, NamedTuple

from holdfast.heap.dedup import INTERNAL
from holdfast.heap.errors import PartitionsGrownError
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.routing import partition_of_key, routing_key
from holdfast.log.topics import Topic, earlier_partitions

_SETS: Final = "partition_sets"


class PartitionSets(NamedTuple):
    """How many partitions a heap has, and had: before each growth, and when that was, the oldest first."""

    partitions: int
    earlier: tuple[tuple[int, int], ...] = ()

    @property
    def created_with(self) -> int:
        """How many it had at first."""
        return self.earlier[0][0] if self.earlier else self.partitions


def sets_of(topic: Topic) -> PartitionSets:
    """The partitions of a heap, worked out once."""
    known: PartitionSets | None = topic.__dict__.get(_SETS)
    if known is None:
        known = topic.__dict__[_SETS] = PartitionSets(topic.partitions, earlier_partitions(topic))
    return known


def home_of(message: NewMessage, partitions: int) -> int | None:
    """The partition in which the same enqueue is looked for again. None: it has no number, or stays where it was sent first."""
    if message.producer is None or message.pinned or message.producer.producer.startswith(INTERNAL):
        return None
    key = routing_key(message)
    return None if key is None else partition_of_key(key, partitions)


def earlier_homes(
    message: NewMessage, number: int, sets: PartitionSets, *, window_ms: int, now_ms: int
) -> tuple[int, ...]:
    """Where a message of partition `number` may have been enqueued within the window, before there was this partition.

    A leader stops taking messages for an earlier set as soon as it knows of a later one, which takes a moment after the growth: so
    they are looked for twice as long as the window.
    """
    homes: dict[int, None] = {}
    for count, grown_ms in sets.earlier:
        if count <= number and now_ms < grown_ms + 2 * window_ms:
            home = home_of(message, count)
            if home is not None:
                homes[home] = None
    return tuple(homes)


def check_home(state: HeapState, topic: str, number: int, message: NewMessage, *, window_ms: int, now_ms: int) -> None:
    """`PartitionsGrownError`: the message is looked for in another partition by now, and was not enqueued here before."""
    home = home_of(message, state.partitions) if state.partitions else None
    if home is None or home == number or message.producer is None or message.producer in state.reserved.keys:
        return
    known = state.dedup.find(message.producer)
    if known is None or known.enqueued_ms <= now_ms - window_ms:
        raise PartitionsGrownError(topic, state.partitions)
