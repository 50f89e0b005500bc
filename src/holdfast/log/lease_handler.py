"""The lease handler of log partitions: opens, drains, resumes and closes them for the plan executor.

The one rule: a partition that cannot be opened affects no other. It is listed as offline with the reason, and retried for as long
as the lease is ours. Only the end of the session ends the handler.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import partition_from_resource
from holdfast.kernel.lease import Lease, release
from holdfast.log.errors import TailNotLocalError
from holdfast.log.keys import WALS
from holdfast.log.maintenance import MaintainedAgent, MaintenanceContext, PendingRanges, run_maintenance
from holdfast.log.model import CleanupPolicy, PartitionConfig, PartitionId
from holdfast.log.offline_partitions import mark_offline
from holdfast.log.partition.draining import close_together, drain
from holdfast.log.partition.due_partitions import publication_groups
from holdfast.log.partition.leadership_log import LeadershipLog
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publish_scheduler import PublishScheduler
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.retained_partition import RetainedPartition
from holdfast.log.partition.takeover import open_partition
from holdfast.log.partition.unpublished_frames import UnpublishedFrames
from holdfast.log.settings import LeadershipCounters, LeadershipSettings
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.log.wal_owners import hand_over_to_wal_owner
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.tasks import Notify, background_tasks, gather_limited, gather_or_cancel
from holdfast.vocabulary.types import TopicPartition

_log: Final = logging.getLogger(__name__)

_OPENS_MAX: Final = 64  # concurrent
_RELEASES_MAX: Final = 256
_LOG_INTERVAL_MS: Final = 1_000
_KEEP_ALL: Final = CleanupPolicy(retention_ms=None)


class PartitionLeaseHandler:
    """Partitions of one session of an agent. Implements `agent.lease_handlers.SessionLeaseHandler`. Made by `LocalLog`."""

    def __init__(
        self,
        resources: PartitionResources,
        *,
        agent: str,
        settings: LeadershipSettings,
        counters: LeadershipCounters,
        publisher: SegmentPublisher,
        unpublished: UnpublishedFrames,
        maintenance: MaintenanceContext,
        pending_ranges: PendingRanges,
        retained: dict[TopicPartition, RetainedPartition],
        topic: Callable[[str], Topic | None],
    ) -> None:
        self._resources, self._agent, self._settings, self._counters = resources, agent, settings, counters
        self._store, self._session = resources.store, resources.session
        self._clock, self._random = resources.clock, resources.random
        self._publisher, self._unpublished, self._topic = publisher, unpublished, topic
        self._maintenance, self._pending_ranges, self._retained = maintenance, pending_ranges, retained
        self._leases: dict[str, Lease] = {}
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}  # and how many want it
        self._configs: dict[str, tuple[Topic, PartitionConfig, CleanupPolicy]] = {}  # by topic
        self._numbers: dict[str, int] = {}  # topic → above every number that was opened
        self._changed_topics: set[str] = set()
        self._unserved: dict[str, Lease] = {}  # leases whose partition is not open, or of a topic that is gone
        self._waits_for: dict[str, str] = {}  # resource → the WAL that has its last records
        self._retry = Notify()
        self._changes = LeadershipLog()
        self._running = False
        self.leading: dict[TopicPartition, LeadingPartition] = {}
        self.offline: dict[TopicPartition, str] = {}
        self._marked: dict[TopicPartition, str] = {}  # offline, and the store says so
        self._tail_is_local: set[TopicPartition] = (
            set()
        )  # offline, and no other agent could open it: not to be handed over

    @property
    def leases(self) -> Collection[Lease]:
        """The leases of this handler, served or offline."""
        return list(self._leases.values())

    async def open(self, lease: Lease) -> None:
        """Open the partition, or list it as offline. `FencedError`, `ExpiredError`: the lease is lost."""
        self._leases[lease.resource] = lease
        async with self._lock(lease.resource):
            await self._try_open(lease)

    async def drain(self, lease: Lease) -> None:
        """Publish everything and release the reserved offsets. If that fails, the partition is served as before."""
        async with self._lock(lease.resource):
            which = partition_from_resource(lease.resource)
            partition = self.leading.get(which)
            if partition is not None:
                if self._exists(partition.partition_id):
                    await drain(partition, self._publisher, self._settings)
                else:
                    partition.stop_accepting()
                self._counters.drained += 1
            elif which in self._tail_is_local:
                raise UnavailableError(
                    f"partition {which}", f"its last records are in this WAL: {self.offline.get(which)}"
                )

    async def resume(self, lease: Lease) -> None:
        """Accept appends again."""
        partition = self.leading.get(partition_from_resource(lease.resource))
        if partition is not None:
            partition.resume_accepting()

    async def close(self, lease: Lease) -> None:
        """Stop serving. What was not published stays in the WAL, and is remembered for the next takeover."""
        async with self._lock(lease.resource):
            for mapping in (self._leases, self._unserved, self._waits_for):
                mapping.pop(lease.resource, None)
            error = FencedError(lease.resource, lease.epoch, lease.epoch + 1)
            self._close(partition_from_resource(lease.resource), error, self._reason_for_close(lease))
        if not self._running:  # many are closed in one turn: one line for all of them
            asyncio.get_running_loop().call_soon(self.log_changes)

    async def run(self) -> None:
        """Publish, maintain, and open what is offline, until cancelled. `ExpiredError`: the session has ended."""
        resources = self._resources
        scheduler = PublishScheduler(self._publisher, resources, settings=self._settings, counters=self._counters)
        maintained = MaintainedAgent(
            agent=self._agent,
            session=self._session,
            partitions=self.leading.values,
            policy=self._policy,
            protect=lambda partition: self._pending_ranges.lowest(
                partition.partition_id.topic, partition.partition_id.number
            ),
        )
        self._running = True
        try:
            async with (
                self._pending_ranges.following(self._store, clock=self._clock, random=self._random),
                background_tasks(
                    scheduler.run(), self._retry_offline(), run_maintenance(maintained, self._maintenance)
                ),
            ):
                while True:
                    await self._clock.sleep_ms(_LOG_INTERVAL_MS)
                    self.log_changes()
        finally:
            self._running = False
            self.log_changes()

    async def _retry_offline(self) -> None:
        """Open what could not be opened, and reopen what has changed, until cancelled."""
        due_ms = self._next_retry_ms()
        while True:
            if await self._retry.wait_ms(self._clock, max(0, due_ms - self._clock.boot_ms())):
                names, self._changed_topics = self._changed_topics, set()
                leases = [
                    lease for lease in self._unserved.values() if partition_from_resource(lease.resource).topic in names
                ]
            else:
                leases, due_ms = await self._openable() if self._unserved else [], self._next_retry_ms()
            await gather_limited(self._retry_open, leases, _OPENS_MAX)

    def _next_retry_ms(self) -> float:
        return self._clock.boot_ms() + self._random.jitter(self._settings.open_retry_ms)

    async def _openable(self) -> list[Lease]:
        """Those that are not served, but for those whose last records are in a WAL that nobody has open: one scan tells."""
        waits_for, live = self._waits_for, frozenset[str]()
        if waits_for:
            with suppress(UnavailableError):  # the next round asks again
                entries = (await self._store.scan(WALS, prefix_end(WALS))).entries
                live = frozenset(entry.key.removeprefix(WALS) for entry in entries)
        return [
            lease
            for resource, lease in self._unserved.items()
            if resource not in waits_for or waits_for[resource] in live
        ]

    def topics_changed(self, names: Iterable[str]) -> None:
        """These topics were created, altered or deleted: look at their partitions, and at no others."""
        for name in names:
            for number in range(self._numbers.get(name, 0)):
                self._apply_topic(TopicPartition(name, number))
            if self._topic(name) is None:
                self._configs.pop(name, None)
                self._numbers.pop(name, None)
            self._changed_topics.add(name)
        self._retry.notify()

    def _apply_topic(self, which: TopicPartition) -> None:
        """The topic has changed since the partition was opened."""
        partition, topic = self.leading.get(which), self._topic(which.topic)
        if partition is None:
            return
        if topic is None or topic.id != partition.partition_id.topic_id:
            self._unserved[partition.lease.resource] = partition.lease
        elif (config := self._partition_config(topic)) is not partition.partition_config:
            partition.change_config(config)

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown: publish everything and release every lease."""
        served = sorted(
            (each for each in self.leading.values() if self._exists(each.partition_id)),
            key=lambda each: each.is_quiescent,  # those that need no upload last: they end with the session as well
        )
        groups = list(publication_groups(served, self._settings))
        published = {each.lease.resource for each in served}
        others = [lease for lease in self._leases.values() if lease.resource not in published]
        try:
            async with asyncio.timeout(within_ms / 1000):
                await gather_limited(self._retire, groups, self._settings.publications_max)
                await self._release(others)
        except TimeoutError:
            _log.warning("stopped before everything was published; the rest stays in the WAL until the next start")
        finally:
            for resource in list(self._leases):
                self._close(partition_from_resource(resource), ClosedError("agent"), "agent stopped")
            self._leases.clear()
            self.log_changes()

    async def _retire(self, partitions: Sequence[LeadingPartition]) -> None:
        """Publish these partitions together and release their leases; as long as it takes, or the session lasts."""
        logged = False
        while True:
            self._session.check()
            self._session.report_progress()
            try:
                await self._publisher.publish(partitions)  # while they accept appends
                await close_together(partitions, self._publisher)
                await self._release([each.lease for each in partitions])
                return
            except (ExpiredError, ClosedError):
                raise
            except HoldfastError as error:
                if isinstance(error, FencedError) and len(partitions) == 1:
                    return
                if not logged:
                    _log.info("releasing %d partitions failed, retrying: %s", len(partitions), error)
                logged = True
                passing = isinstance(error, (UnavailableError, OutcomeUnknownError))
            if not passing and len(partitions) > 1:  # one of them cannot be published: the others can
                await gather_or_cancel(*(self._retire([each]) for each in partitions))
                return
            await self._clock.sleep_ms(self._resources.settings.publish_retry_ms)

    async def _release(self, leases: Iterable[Lease]) -> None:
        """Release the leases; those that were lost are not ours to release."""
        await gather_limited(
            lambda lease: release(self._store, lease, clock=self._clock, random=self._random), leases, _RELEASES_MAX
        )

    async def _retry_open(self, lease: Lease) -> None:
        async with self._lock(lease.resource):
            if self._leases.get(lease.resource) is not lease:
                return
            partition = self.leading.get(partition_from_resource(lease.resource))
            if partition is not None:
                if self._exists(partition.partition_id):
                    self._unserved.pop(lease.resource, None)
                    return
                error = UnknownTopicError(partition.partition_id.topic)
                self._close(partition_from_resource(lease.resource), error, "topic deleted")
            with suppress(FencedError):  # the plan executor sees it, too, and closes the partition
                await self._try_open(lease)

    async def _try_open(self, lease: Lease) -> None:
        self._unserved[lease.resource] = lease
        self._waits_for.pop(lease.resource, None)
        which = partition_from_resource(lease.resource)
        topic = self._topic(which.topic)
        if topic is None or which.number >= topic.partitions:
            self.offline[which] = "unknown topic"
            return
        partition_id = PartitionId(topic=which.topic, topic_id=topic.id, number=which.number)
        began_ms = self._clock.boot_ms()
        try:
            partition = self.leading[which] = await open_partition(
                partition_id,
                lease,
                self._resources,
                config=self._partition_config(topic),
                frames=self._unpublished.frames,
            )
        except (FencedError, ExpiredError):
            raise
        except HoldfastError as error:
            if isinstance(error, TailNotLocalError):
                self._waits_for[lease.resource] = error.wal
                with suppress(UnavailableError, OutcomeUnknownError):  # the next attempt may succeed
                    await hand_over_to_wal_owner(self._store, lease, error.wal, clock=self._clock, random=self._random)
            if self.offline.get(which) != str(error):
                _log.warning("partition %s is offline: %s", which, error)
            self.offline[which] = str(error)
            if self._marked.get(which) != str(error):
                with suppress(UnavailableError, OutcomeUnknownError):  # the next attempt may succeed
                    await mark_offline(self._store, lease, partition_id, error, clock=self._clock, random=self._random)
                    self._marked[which] = str(error)
            self._counters.open_failures += 1
            if not isinstance(error, TailNotLocalError):
                self._tail_is_local.add(which)
            return
        del self._unserved[lease.resource]
        self._numbers[which.topic] = max(self._numbers.get(which.topic, 0), which.number + 1)
        if self._topic(which.topic) is not topic:  # it changed while the partition was opened
            self._apply_topic(which)
            self._changed_topics.add(which.topic)
            self._retry.notify()
        self.offline.pop(which, None)
        self._marked.pop(which, None)
        self._retained.pop(which, None)
        self._tail_is_local.discard(which)
        self._unpublished.forget(bytes.fromhex(topic.id), which.number)
        self._counters.opened += 1
        recovered = partition.next_offset - partition.record.published
        ended_ms = self._clock.boot_ms()
        self._changes.gained(which, lease.epoch, recovered=recovered, began_ms=began_ms, ended_ms=ended_ms)

    def _close(self, which: TopicPartition, error: HoldfastError, reason: str) -> None:
        self.offline.pop(which, None)
        self._marked.pop(which, None)
        self._tail_is_local.discard(which)
        partition = self.leading.pop(which, None)
        if partition is None:
            return
        partition.close(error)
        self._counters.closed += 1
        self._changes.lost(which, reason)
        if self._exists(partition.partition_id):
            self._unpublished.remember(partition)
            if not self._session.alive():
                self._retained[which] = partition.retained()
        else:
            self._unpublished.discard(bytes.fromhex(partition.partition_id.topic_id), which.number)

    def _reason_for_close(self, lease: Lease) -> str:
        partition = self.leading.get(partition_from_resource(lease.resource))
        if partition is not None and not partition.accepting:
            return "moved to another agent"  # it was drained
        return "lease lost" if self._session.alive() else "session lost"

    def _policy(self, partition: LeadingPartition) -> CleanupPolicy:
        topic = self._topic(partition.partition_id.topic)
        return self._configs_of(topic)[2] if topic is not None else _KEEP_ALL

    def log_changes(self) -> None:
        """Log what was gained and lost since the last call."""
        for line in self._changes.lines():
            _log.info("%s", line)

    def _exists(self, partition_id: PartitionId) -> bool:
        topic = self._topic(partition_id.topic)
        return topic is not None and topic.id == partition_id.topic_id

    @asynccontextmanager
    async def _lock(self, resource: str) -> AsyncIterator[None]:
        """One call for a resource at a time. The lock lasts as long as somebody wants it: most partitions rest."""
        lock, wanted = self._locks.get(resource, (None, 0))
        lock = lock or asyncio.Lock()
        self._locks[resource] = lock, wanted + 1
        try:
            async with lock:
                yield
        finally:
            _, wanted = self._locks.pop(resource)
            if wanted > 1:
                self._locks[resource] = lock, wanted - 1

    def _partition_config(self, topic: Topic) -> PartitionConfig:
        return self._configs_of(topic)[1]

    def _configs_of(self, topic: Topic) -> tuple[Topic, PartitionConfig, CleanupPolicy]:
        """One for all partitions of a topic."""
        known = self._configs.get(topic.name)
        if known is None or known[0] is not topic:
            known = self._configs[topic.name] = topic, topic.config.partition_config(), topic.config.policy()
        return known
