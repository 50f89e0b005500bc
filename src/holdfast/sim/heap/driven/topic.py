"""The heaps of a seed, as the store has them: the one that clients use, which may grow, and that of its dead letters.

The one rule: a place is a partition of either heap; those of dead letters are numbered from `LETTERS` on.
"""

from dataclasses import dataclass, replace
from typing import Final

from holdfast.heap.config import HeapConfig
from holdfast.heap.decisions import HeapRules
from holdfast.heap.fairness.rules import rules_of
from holdfast.heap.growth.partition_sets import PartitionSets
from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.log.model import PartitionId

TOPIC: Final = "t"
TOPIC_ID: Final = "ab" * 16
LETTERS: Final = 1_000
_LETTERS_ID: Final = "cd" * 16


@dataclass(frozen=True, slots=True)
class SimTopic:
    """A heap's record."""

    name: str
    topic_id: str
    config: HeapConfig
    sets: PartitionSets
    first: int = 0  # the place of its first partition

    @property
    def places(self) -> range:
        """Those of its partitions."""
        return range(self.first, self.first + self.sets.partitions)

    def partition_id(self, place: int) -> PartitionId:
        """The partition of a place."""
        return PartitionId(topic=self.name, topic_id=self.topic_id, number=place - self.first)

    def rules(self, place: int) -> HeapRules:
        """What the record means for a partition: as `local_heaps.heap_rules`."""
        return HeapRules(
            topic=self.name,
            config=self.config,
            inflight_max=self.config.inflight_max_of_partition(self.sets.partitions),
            fair=rules_of(self.config, self.sets.partitions),
            dead_letters=(self.name + DLQ_SUFFIX, place - self.first) if self.config.dlq else None,
        )

    def grown(self, more: int, now_ms: int) -> "SimTopic":
        """The record with more partitions, from now on."""
        count, earlier = self.sets
        return replace(self, sets=PartitionSets(count + more, (*earlier, (count, now_ms))))


def clients_topic(config: HeapConfig, partitions: int) -> SimTopic:
    """The heap that clients use."""
    return SimTopic(TOPIC, TOPIC_ID, config, PartitionSets(partitions))


def letters_topic(config: HeapConfig, partitions: int) -> SimTopic:
    """The heap of its dead letters."""
    letters = replace(HeapConfig(), mode=config.mode, dlq=False, retention_ms=-1)
    return SimTopic(TOPIC + DLQ_SUFFIX, _LETTERS_ID, letters, PartitionSets(partitions), LETTERS)


def place_of(topic: str, number: int, letters: int) -> int:
    """Where messages that are moved to a partition of a heap go: as `service.destination_partition`."""
    return LETTERS + number % letters if topic.endswith(DLQ_SUFFIX) else number


def source_of(topic_id: str, number: int) -> int:
    """The place of a partition that messages came from."""
    return number + (LETTERS if topic_id == _LETTERS_ID else 0)
