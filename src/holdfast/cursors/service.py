"""Shared cursors for gateways, which use nothing else of this package but its model, keys and errors.

Serves the cursors this process owns; for others it raises `NotCursorOwnerError`, and the gateway forwards.
"""

from collections.abc import Collection
from typing import Protocol

from holdfast.contracts.store import Store
from holdfast.cursors.cursor import CursorDeliveries
from holdfast.cursors.errors import NotCursorOwnerError
from holdfast.cursors.keys import CURSOR_SHARD, shard_of
from holdfast.cursors.settings import CursorCounters, CursorSettings
from holdfast.cursors.shard import CursorShard, ReadRecords
from holdfast.kernel.shard_count import shard_count
from holdfast.log.topics import Topic


class OwnedShards(Protocol):
    """The shards this process owns."""

    def shard(self, number: int) -> CursorShard | None:
        """The shard if it is served here."""
        ...

    def shards(self) -> Collection[CursorShard]:
        """Every shard served here."""
        ...


class CursorService:
    """The cursors of one process."""

    def __init__(self, *, store: Store, settings: CursorSettings | None = None) -> None:
        self.settings = settings or CursorSettings()
        self.counters = CursorCounters()
        self.leading: OwnedShards | None = None  # set by the agent while it has a session
        self._store = store
        self._shards = 0

    async def shard_of(self, topic: str) -> int:
        """The shard of a topic's cursor; `Cluster` knows its owner. `UnavailableError`: no agent serves cursors."""
        if not self._shards:
            self._shards = await shard_count(self._store, CURSOR_SHARD)
        return shard_of(topic, self._shards)

    async def take(self, topic: Topic, count: int, read: ReadRecords) -> CursorDeliveries:
        """The next records of a topic, at most `count`; none at its end. `NotCursorOwnerError`; whatever `read` raises."""
        number = await self.shard_of(topic.name)
        shard = self.leading.shard(number) if self.leading is not None else None
        if shard is None:
            raise NotCursorOwnerError(topic.name, number)
        return await shard.take(topic, count, read)
