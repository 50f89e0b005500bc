"""The group shards one process coordinates, session after session. Implements `agent.lease_handlers.LeaseHandlerFactory`."""

from collections.abc import Collection

from holdfast.contracts.store import Store
from holdfast.groups.keys import GROUP_SHARD
from holdfast.groups.lease_handler import GroupShardLeaseHandler
from holdfast.groups.offset_expiration import TopicIdLookup
from holdfast.groups.service import GroupService
from holdfast.kernel.session import HeldSession
from holdfast.kernel.shard_count import ensure_shards
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


class LocalGroups:
    """Gives `service` a handler for as long as there is a session."""

    def __init__(
        self, service: GroupService, *, store: Store, clock: Clock, random: Random, topic_id: TopicIdLookup
    ) -> None:
        self.service = service
        self._store, self._clock, self._random, self._topic_id = store, clock, random, topic_id
        self._handler: GroupShardLeaseHandler | None = None

    async def prepare(self) -> None:
        """Nothing to do: a shard's state is in the store."""

    async def start(self, session: HeldSession) -> GroupShardLeaseHandler:
        """Have the shards placed, and serve those that come."""
        settings = self.service.settings
        await ensure_shards(self._store, GROUP_SHARD, settings.shards, clock=self._clock, random=self._random)
        self._handler = self.service.leading = GroupShardLeaseHandler(
            store=self._store,
            session=session,
            clock=self._clock,
            random=self._random,
            settings=settings,
            counters=self.service.counters,
            topic_id=self._topic_id,
        )
        return self._handler

    def stop(self) -> None:
        """Coordinate nothing."""
        self._handler = self.service.leading = None

    def topics_changed(self, _: Collection[str]) -> None:
        """Offsets of deleted topics are removed soon."""
        if self._handler is not None:
            self._handler.topics_changed()
