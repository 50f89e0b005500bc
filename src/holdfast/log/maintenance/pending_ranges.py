"""Pending ranges: offsets that a pipeline has begun to process and may have to read again, exactly as they were.

Each range is recorded in a registry first; an intent with a `topic` is about offsets of that topic, and, if it has the topic's id,
of no other of that name. The one rule: retention and compaction keep everything at or above the lowest begun start of a partition.
The mirror lags a little: a range begun a moment ago can still lose a race with retention; its reader then finds the offsets gone,
never other records in their place. Before records are deleted on demand it is refreshed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from holdfast.contracts.store import Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.mirror import Mirror
from holdfast.log.model import PartitionId
from holdfast.registry.queries import TopicIntent, mirror_topic_intents
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_ANY_TOPIC: Final = ""  # the id in intents that were begun before ids were recorded


class PendingRanges:
    """The pending ranges of a store, as of the mirror's version. Without a mirror nothing is known, so everything is kept."""

    def __init__(self) -> None:
        self._mirror: Mirror[tuple[TopicIntent, ...]] | None = None
        self._store: Store | None = None
        self._version = -1
        self._lowest: dict[PartitionId, int] = {}

    @asynccontextmanager
    async def following(self, store: Store, *, clock: Clock, random: Random) -> AsyncIterator[None]:
        """Keep them up to date for the body."""
        async with mirror_topic_intents(store, clock=clock, random=random) as mirror:
            self._mirror, self._store = mirror, store
            try:
                yield
            finally:
                self._mirror, self._store, self._version = None, None, -1

    async def refresh(self) -> None:
        """Take over what the store has now, in one scan: every range that was begun or finished before the call."""
        mirror, store = self._mirror, self._store
        if mirror is not None and store is not None:
            mirror.load(await store.scan(mirror.prefix, prefix_end(mirror.prefix)))

    def lowest(self, partition: PartitionId) -> int | None:
        """The first offset of a partition that may have to be read again, if there is one; 0 while that is not known."""
        mirror = self._mirror
        if mirror is None:
            return 0
        if mirror.version != self._version:
            self._version, self._lowest = mirror.version, _lowest(mirror)
        starts = [self._lowest.get(partition), self._lowest.get(replace(partition, topic_id=_ANY_TOPIC))]
        return min((each for each in starts if each is not None), default=None)


def _lowest(mirror: Mirror[tuple[TopicIntent, ...]]) -> dict[PartitionId, int]:
    found: dict[PartitionId, int] = {}
    for intents in mirror.items.values():
        for intent in intents:
            partition = PartitionId(topic=intent.topic, topic_id=intent.topic_id, number=intent.partition)
            found[partition] = min(intent.start, found.get(partition, intent.start))
    return found
