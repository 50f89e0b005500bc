"""The topics of partitions that are led here: which there are, and what applies to their partitions.

The one rule: all partitions of a topic share one config, so that "has it changed" is a comparison of identities.
"""

from collections.abc import Callable
from typing import Final

from holdfast.log.model import CleanupPolicy, PartitionConfig, PartitionId
from holdfast.log.topics import Topic
from holdfast.vocabulary.types import TopicPartition

_KEEP_ALL: Final = CleanupPolicy(retention_ms=None)


class LedTopics:
    """Of one session. `topic`: what the store says of a name now."""

    def __init__(self, topic: Callable[[str], Topic | None]) -> None:
        self._topic = topic
        self._configs: dict[str, tuple[Topic, PartitionConfig, CleanupPolicy]] = {}
        self._numbers: dict[str, int] = {}  # topic → above every number that was opened

    def get(self, name: str) -> Topic | None:
        """The topic, if there is one."""
        return self._topic(name)

    def has(self, partition_id: PartitionId) -> bool:
        """Whether this very topic is still there."""
        topic = self._topic(partition_id.topic)
        return topic is not None and topic.id == partition_id.topic_id

    def partition_config(self, topic: Topic) -> PartitionConfig:
        """The same object for all of its partitions."""
        return self._of(topic)[1]

    def policy(self, partition_id: PartitionId) -> CleanupPolicy:
        """What is cleaned up of it; nothing, if the topic is gone."""
        topic = self._topic(partition_id.topic)
        return self._of(topic)[2] if topic is not None else _KEEP_ALL

    def opened(self, which: TopicPartition) -> None:
        """A partition of it is led here."""
        self._numbers[which.topic] = max(self._numbers.get(which.topic, 0), which.number + 1)

    def opened_partitions(self, name: str) -> list[TopicPartition]:
        """Those that may be led here."""
        return [TopicPartition(name, number) for number in range(self._numbers.get(name, 0))]

    def forget_deleted(self, name: str) -> None:
        """Forget it, unless it is there."""
        if self._topic(name) is None:
            self._configs.pop(name, None)
            self._numbers.pop(name, None)

    def _of(self, topic: Topic) -> tuple[Topic, PartitionConfig, CleanupPolicy]:
        known = self._configs.get(topic.name)
        if known is None or known[0] is not topic:
            known = self._configs[topic.name] = topic, topic.config.partition_config(), topic.config.policy()
        return known
