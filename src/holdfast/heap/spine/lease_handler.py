"""The lease handler of shards of spines: runs the spine of every heap of several partitions whose shard it holds.

The one rule: a spine's epoch is its lease's. It has no other state: what it needs to know, every leader tells it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from holdfast.contracts.store import Store
from holdfast.heap.config import config_from_record
from holdfast.heap.spine.driver import Leaders, SpineDriver
from holdfast.heap.spine.keys import SPINE_SHARD, shard_from_resource, spine_shard_of
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.kernel.lease import Lease, release
from holdfast.kernel.session import HeldSession
from holdfast.kernel.shard_count import ensure_shards
from holdfast.log.topics import Topic
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify, task_group

_log: Final = logging.getLogger(__name__)


def bound_of(topic: Topic) -> RankBound:
    """A heap's rank bound, over its partitions."""
    return RankBound.split(config_from_record(topic.heap).top_k_bound, topic.partitions)


def needs_spine(topic: Topic) -> bool:
    """Whether there is a choice between partitions."""
    return topic.is_heap and topic.partitions > 1


class SpineLeaseHandler:
    """Shards of one session of an agent. Implements `agent.lease_handlers.SessionLeaseHandler`."""

    def __init__(
        self,
        *,
        store: Store,
        session: HeldSession,
        clock: Clock,
        random: Random,
        shards_wanted: int,
        topics: Callable[[], Sequence[Topic]],
        leaders: Callable[[Topic], Leaders],
    ) -> None:
        self._store, self._session, self._clock, self._random = store, session, clock, random
        self._shards_wanted, self._topics, self._leaders = shards_wanted, topics, leaders
        self.shards = 0  # not known before there is a heap of several partitions
        self._held: dict[int, Lease] = {}
        self._drivers: dict[str, tuple[SpineDriver, asyncio.Task[None]]] = {}  # by topic id
        self._changed = Notify()

    @property
    def leases(self) -> Collection[Lease]:
        """The leases of this handler."""
        return list(self._held.values())

    def driver(self, topic: Topic) -> SpineDriver | None:
        """The spine of a heap, if it runs here."""
        found = self._drivers.get(topic.id) if self._session.alive() else None
        return None if found is None else found[0]

    async def open(self, lease: Lease) -> None:
        """Run the spines of the shard."""
        self._held[shard_from_resource(lease.resource)] = lease
        self._changed.notify()

    async def open_many(self, leases: Sequence[Lease]) -> Collection[str]:
        """Run the spines of each of them; none is lost by that."""
        for lease in leases:
            await self.open(lease)
        return ()

    async def drain(self, lease: Lease) -> None:
        """Nothing to save; consumers who wait ask the next owner."""

    async def resume(self, lease: Lease) -> None:
        """Serve on: it never stopped."""

    async def close(self, lease: Lease) -> None:
        """Stop the spines of the shard."""
        self._held.pop(shard_from_resource(lease.resource), None)
        self._stop_others()

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown: release every lease."""
        leases, self._held = list(self._held.values()), {}
        self._stop_others()
        for lease in leases:
            try:
                await release(self._store, lease, clock=self._clock, random=self._random)
            except HoldfastError as error:
                _log.info("releasing %s failed, it ends with the session: %s", lease.resource, error)

    async def run(self) -> None:
        """Follow leases and topics, until cancelled."""
        try:
            async with task_group() as group:
                while True:
                    self._stop_others()
                    await self._ensure_shards()
                    for topic in self._topics():
                        lease = self._lease_of(topic)
                        if lease is None:
                            continue
                        running = self._drivers.get(topic.id)
                        if running is None:
                            driver = SpineDriver(
                                topic.name, lease.epoch, bound_of(topic), self._leaders(topic), clock=self._clock
                            )
                            self._drivers[topic.id] = driver, group.create_task(driver.run())
                        else:
                            running[0].reconfigure(bound_of(topic))
                    await self._changed.wait()
        finally:
            self._drivers.clear()

    async def _ensure_shards(self) -> None:
        """Have the shards placed once there is a heap that needs a spine."""
        if not self.shards and any(map(needs_spine, self._topics())):
            self.shards = await ensure_shards(
                self._store, SPINE_SHARD, self._shards_wanted, clock=self._clock, random=self._random
            )

    def _lease_of(self, topic: Topic) -> Lease | None:
        if not self.shards or not needs_spine(topic):
            return None
        return self._held.get(spine_shard_of(topic.name, self.shards))

    def _stop_others(self) -> None:
        wanted = {topic.id for topic in self._topics() if self._lease_of(topic) is not None}
        for topic_id in self._drivers.keys() - wanted:
            self._drivers.pop(topic_id)[1].cancel()

    def topics_changed(self, names: Collection[str]) -> None:
        """Heaps were created, altered or deleted."""
        self._changed.notify()
