"""Heaps as topics: create, change, list, delete. By the store alone, from any process.

A heap and its dead letters are two topics: `orders` and `orders.dlq`. The second is created after the first, and again by whoever
needs it and finds it missing, so that a death in between leaves nothing half.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from holdfast.heap.config import HeapConfig, changed_heap_config, stored_heap_config
from holdfast.heap.errors import NotAHeapError
from holdfast.heap.local_heaps import DLQ_SUFFIX, heap_config
from holdfast.heap.message_id import PARTITIONS_MAX
from holdfast.log.settings import TopicSettings
from holdfast.log.topics import Topic, TopicExistsError, Topics, UnknownTopicError, check_growth
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between

LOG_SETTINGS: Final = (
    "durability",
    "replication_factor",
    "min_insync_replicas",
    "agent_group",
    "roll_bytes",
    "roll_ms",
)


class HeapDescription(NamedTuple):
    """A heap as it is configured. `dead_letters`: the heap its dead letters go to, or nothing."""

    name: str
    topic_id: str
    partitions: int
    created_at_ms: int
    config: HeapConfig
    durability: str
    replication_factor: int
    dead_letters: str


class HeapAdministration:
    """The heaps of a store. `rules`: those of the server for all topics."""

    def __init__(self, topics: Topics, rules: TopicSettings | None = None) -> None:
        self._topics, self._rules = topics, rules or TopicSettings()

    def under(self, rules: TopicSettings) -> "HeapAdministration":
        """The same heaps under rules of the server."""
        return HeapAdministration(self._topics, rules)

    async def create(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        log: Mapping[str, object] | None = None,
    ) -> HeapDescription:
        """Create a heap and its dead letters. `config`: of the heap; `log`: of the topic below, one of `LOG_SETTINGS` each.

        `TopicExistsError`: the name is taken. It can be used as soon as its partitions are placed.
        """
        check_between("number of partitions", partitions, 1, PARTITIONS_MAX)
        for setting in log or {}:
            if setting not in LOG_SETTINGS:
                raise InvalidError("setting of a heap's log", setting, "one of " + ", ".join(LOG_SETTINGS))
        if name.endswith(DLQ_SUFFIX):
            raise InvalidError(
                "name of a heap", name, f"one that does not end with {DLQ_SUFFIX}: those are dead letters"
            )
        stored = stored_heap_config(config or {})
        topic = await self._topics.create(name, partitions, log, heap=stored)
        if heap_config(topic).dlq:
            await self.ensure_dead_letters(topic)
        return describe(topic)

    async def ensure_dead_letters(self, topic: Topic) -> None:
        """Create the heap of dead letters, if there is none."""
        log = {name: value for name, value in topic.overrides.items() if name in LOG_SETTINGS}
        heap = {"mode": heap_config(topic).mode, "dlq": False}
        with suppress(TopicExistsError):
            await self._topics.create(topic.name + DLQ_SUFFIX, topic.partitions, log, heap=heap)

    async def update(
        self, name: str, changes: Mapping[str, object | None], *, partitions: int | None = None
    ) -> HeapDescription:
        """Change settings of a heap; None takes one back to its default. `mode` cannot be changed.

        `partitions`: how many it has then, by the same commit: more, or as many as it has. `PartitionCountError`: fewer.
        `FixedPartitionsError`: the heap's own setting, or the server's, allows no more.
        """
        if partitions is not None:
            check_between("number of partitions", partitions, 1, PARTITIONS_MAX)

        def changed(found: Topic) -> dict[str, object]:
            check_growth(existing(found), partitions, self._rules)
            return changed_heap_config(found.heap, changes)

        failpoints.reached("heap.growth-begun")
        topic = await self._topics.alter_heap(name, changed, partitions=partitions)
        failpoints.reached("heap.growth-committed")
        if heap_config(topic).dlq and not name.endswith(DLQ_SUFFIX):
            await self.ensure_dead_letters(topic)
        return describe(topic)

    async def delete(self, name: str) -> None:
        """Delete a heap, its dead letters, and everything in both."""
        topic = existing(await self._topics.get(name))
        await self._topics.delete(name, topic_id=topic.id)
        with suppress(UnknownTopicError):
            letters = await self._topics.get(name + DLQ_SUFFIX)
            if letters.is_heap:
                await self._topics.delete(letters.name, topic_id=letters.id)

    async def describe(self, name: str) -> HeapDescription:
        """A heap. `UnknownTopicError`, `NotAHeapError`."""
        return describe(existing(await self._topics.get(name)))

    async def list(self) -> Sequence[HeapDescription]:
        """Every heap, by name, those of dead letters included."""
        return [describe(topic) for topic in await self._topics.list() if topic.is_heap]


def existing(topic: Topic) -> Topic:
    """The topic, if it is a heap. `NotAHeapError`."""
    if not topic.is_heap:
        raise NotAHeapError(topic.name)
    return topic


def describe(topic: Topic) -> HeapDescription:
    """A topic's record as the heap it is."""
    config, log = heap_config(topic), topic.config
    return HeapDescription(
        topic.name,
        topic.id,
        topic.partitions,
        topic.created_at_ms,
        config,
        log.durability,
        log.replication_factor,
        topic.name + DLQ_SUFFIX if config.dlq else "",
    )
