"""The tenant: what serving a lease means for the log. The follower says when; this opens, drains, resumes and closes.

The one rule: a partition that cannot be opened harms nobody else. It stays listed as offline with the reason, and is tried again as
long as the lease is ours. Only the loss of the session ends the tenant.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from holdfast.agent.settings import AgentCounters, AgentSettings
from holdfast.agent.unpublished_frames import UnpublishedFrames
from holdfast.agent.wal_owners import hand_over_to_wal_owner
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.keys import partition_from_resource
from holdfast.kernel.lease import Lease, release
from holdfast.kernel.session import HeldSession
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.partition.takeover import TailNotLocalError, open_partition
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.log.wal import Wal
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import TopicPartition

_log: Final = logging.getLogger(__name__)

_CLOSE_ATTEMPTS_MAX: Final = 3


class PartitionLeaseHandler:
    """Partitions of one session of an agent. Implements `kernel.follower.LeaseHandler`."""

    def __init__(
        self,
        *,
        store: Store,
        objects: Objects,
        wal: Wal,
        wal_id: str,
        session: HeldSession,
        clock: Clock,
        random: Random,
        settings: AgentSettings,
        counters: AgentCounters,
        publisher: SegmentPublisher,
        leftovers: UnpublishedFrames,
        topic: Callable[[str], Topic | None],
        dirty_partitions: DirtyPartitions[LeadingPartition],
        published_tail_cache: PublishedTailCache,
        budget: TailBudget,
    ) -> None:
        self._store, self._objects, self._wal, self._wal_id, self._session = store, objects, wal, wal_id, session
        self._clock, self._random, self._settings, self._counters = clock, random, settings, counters
        self._publisher, self._leftovers, self._topic, self._dirty_partitions = (
            publisher,
            leftovers,
            topic,
            dirty_partitions,
        )
        self._published_tail_cache = published_tail_cache
        self._budget = budget
        self._leases: dict[str, Lease] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._retry = Notify()
        self.leading: dict[TopicPartition, LeadingPartition] = {}
        self.offline: dict[TopicPartition, str] = {}
        self._ours: set[TopicPartition] = set()  # offline, and nobody else could do better: not to be handed over
        self.retiring = False  # close hands over to `retire` instead of letting go

    async def open(self, lease: Lease) -> None:
        """Open the partition, or list it as offline. `FencedError`, `ExpiredError`: the lease is lost."""
        self._leases[lease.resource] = lease
        async with self._lock(lease.resource):
            await self._try_open(lease)

    async def drain(self, lease: Lease) -> None:
        """Publish everything and give the booked offsets back. If that fails, the partition goes on as before."""
        async with self._lock(lease.resource):
            which = partition_from_resource(lease.resource)
            partition = self.leading.get(which)
            if partition is not None:
                await self._drain(partition)
                self._counters.drained += 1
            elif which in self._ours:
                raise UnavailableError(f"partition {which}", f"its last records are here: {self.offline.get(which)}")

    async def resume(self, lease: Lease) -> None:
        """Accept appends again."""
        partition = self.leading.get(partition_from_resource(lease.resource))
        if partition is not None:
            partition.resume_accepting()

    async def close(self, lease: Lease) -> None:
        """Let go. What was not published stays in the WAL, and is remembered for the next time."""
        if self.retiring:
            return
        async with self._lock(lease.resource):
            self._leases.pop(lease.resource, None)
            self._let_go(
                partition_from_resource(lease.resource), FencedError(lease.resource, lease.epoch, lease.epoch + 1)
            )
        self._locks.pop(lease.resource, None)

    async def retry_offline(self) -> None:
        """Open what could not be opened, and open anew what has changed, until cancelled. Run it beside the follower."""
        while True:
            await self._retry.wait_ms(self._clock, self._random.jitter(self._settings.open_retry_ms))
            for lease in [each for each in self._leases.values() if not self._is_served(each)]:
                async with self._lock(lease.resource):
                    if self._leases.get(lease.resource) is lease:
                        await self._retry_open(lease)

    def topics_changed(self) -> None:
        """Some topic was created, altered or deleted."""
        wanted: dict[str, tuple[str, PartitionConfig]] = {}  # once per topic: it may have thousands of partitions
        for partition in list(self.leading.values()):
            partition_id = partition.partition_id
            if partition_id.topic not in wanted:
                topic = self._topic(partition_id.topic)
                wanted[partition_id.topic] = (
                    ("", partition.partition_config) if topic is None else (topic.id, topic.config.partition_config())
                )
            topic_id, partition_config = wanted[partition_id.topic]
            if topic_id != partition_id.topic_id:
                self._retry.notify()
            elif partition_config is not partition.partition_config:
                partition.partition_config = partition_config
        if self.offline:
            self._retry.notify()

    async def retire(self) -> None:
        """The polite end, after the follower has stopped: publish everything, release every lease, within `drain_ms`."""
        try:
            async with asyncio.timeout(self._settings.drain_ms / 1000):
                await asyncio.gather(*(self._retire(lease) for lease in list(self._leases.values())))
        except TimeoutError:
            _log.warning("stopped before everything was published; the rest is in the WAL and comes back with it")
        finally:
            for resource in list(self._leases):
                self._let_go(partition_from_resource(resource), ClosedError("agent"))
            self._leases.clear()

    async def _retire(self, lease: Lease) -> None:
        said = False
        while True:
            try:
                async with self._lock(lease.resource):
                    partition = self.leading.get(partition_from_resource(lease.resource))
                    if partition is not None:
                        await self._drain(partition)
                        partition.stop_accepting()
                    await release(self._store, lease, clock=self._clock, random=self._random)
                return
            except FencedError:
                return
            except HoldfastError as error:
                if not said:
                    _log.info("%s cannot be handed back yet: %s", lease.resource, error)
                said = True
                self._session.check()
                self._session.report_progress()
                await self._clock.sleep_ms(self._settings.log.publish_retry_ms)

    async def _drain(self, partition: LeadingPartition) -> None:
        partition.stop_accepting()
        try:
            await partition.wait_durable()
            if not self._exists(partition.partition_id):
                return  # nobody will read it
            for _ in range(_CLOSE_ATTEMPTS_MAX):
                if await self._publisher.publish([partition], closing=True):
                    raise FencedError(partition.lease.resource, partition.lease.epoch, partition.lease.epoch + 1)
                if partition.record.clean:
                    return
            raise UnavailableError(f"partition {partition.partition_id}", "it could not be published completely")
        except BaseException:
            partition.resume_accepting()
            raise

    def _is_served(self, lease: Lease) -> bool:
        partition = self.leading.get(partition_from_resource(lease.resource))
        return partition is not None and self._exists(partition.partition_id)

    async def _retry_open(self, lease: Lease) -> None:
        partition = self.leading.get(partition_from_resource(lease.resource))
        if partition is not None:
            if self._exists(partition.partition_id):
                return
            self._let_go(partition_from_resource(lease.resource), UnknownTopicError(partition.partition_id.topic))
        with suppress(FencedError):  # the follower will see it, and close
            await self._try_open(lease)

    async def _try_open(self, lease: Lease) -> None:
        which = partition_from_resource(lease.resource)
        topic = self._topic(which.topic)
        if topic is None or which.number >= topic.partitions:
            self.offline[which] = "there is no such topic (yet)"
            return
        partition_id = PartitionId(topic=which.topic, topic_id=topic.id, number=which.number)
        try:
            self.leading[which] = await open_partition(
                partition_id,
                lease=lease,
                session=self._session,
                store=self._store,
                objects=self._objects,
                wal=self._wal,
                wal_id=self._wal_id,
                clock=self._clock,
                random=self._random,
                settings=self._settings.log,
                partition_config=topic.config.partition_config(),
                leftovers=self._leftovers.of,
                dirty_partitions=self._dirty_partitions,
                published_tail_cache=self._published_tail_cache,
                budget=self._budget,
            )
        except (FencedError, ExpiredError):
            raise
        except HoldfastError as error:
            if isinstance(error, TailNotLocalError):
                with suppress(UnavailableError, OutcomeUnknownError):  # the next try will tell
                    await hand_over_to_wal_owner(self._store, lease, error.wal, clock=self._clock, random=self._random)
            if self.offline.get(which) != str(error):
                _log.warning("partition %s is offline: %s", which, error)
            self.offline[which] = str(error)
            self._counters.open_failures += 1
            if not isinstance(error, TailNotLocalError):
                self._ours.add(which)
            return
        self.offline.pop(which, None)
        self._ours.discard(which)
        self._leftovers.reopened(bytes.fromhex(topic.id), which.number)
        self._counters.opened += 1

    def _let_go(self, which: TopicPartition, error: HoldfastError) -> None:
        self.offline.pop(which, None)
        self._ours.discard(which)
        partition = self.leading.pop(which, None)
        if partition is None:
            return
        partition.close(error)
        self._counters.closed += 1
        if self._exists(partition.partition_id):
            self._leftovers.keep(partition)
        else:
            self._leftovers.dropped(bytes.fromhex(partition.partition_id.topic_id), which.number)

    def _exists(self, partition_id: PartitionId) -> bool:
        topic = self._topic(partition_id.topic)
        return topic is not None and topic.id == partition_id.topic_id

    def _lock(self, resource: str) -> asyncio.Lock:
        return self._locks.setdefault(resource, asyncio.Lock())

    @property
    def leases(self) -> Mapping[str, Lease]:
        """What is served, or would be if it could be opened."""
        return self._leases
