"""The lease handler of log partitions: opens, drains, resumes and closes them for the plan executor.

The one rule: a partition that cannot be opened affects no other. It is listed as offline with the reason, and retried for as long
as the lease is ours. Only the end of the session ends the handler.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from holdfast.kernel.keys import partition_from_resource
from holdfast.kernel.lease import Lease, retake
from holdfast.log.epoch_pauses import EpochPauses
from holdfast.log.errors import EpochSpentError
from holdfast.log.led_topics import LedTopics
from holdfast.log.maintenance import MaintainedAgent, MaintenanceContext, PendingRanges, run_maintenance
from holdfast.log.model import QUORUM, PartitionId
from holdfast.log.partition.drain import drain
from holdfast.log.partition.ended_logs import EndedLog, EndedLogs
from holdfast.log.partition.leadership_log import LeadershipLog
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publish_scheduler import PublishScheduler
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.retained_partition import RetainedPartition
from holdfast.log.partition.takeover import open_partitions
from holdfast.log.partition.takeover_recovery import PartitionTakeover
from holdfast.log.partition.unpublished_frames import UnpublishedFrames
from holdfast.log.promises_ahead import is_newest, store_behind_error
from holdfast.log.replica_upkeep import ReplicaUpkeep
from holdfast.log.replicated_moves import ReplicatedMoves
from holdfast.log.retirement import Retirement
from holdfast.log.rotation.rotator import Rotator
from holdfast.log.settings import LeadershipCounters, LeadershipSettings
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.log.unopened_partitions import UnopenedPartitions
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.keyed_locks import KeyedLocks
from holdfast.vocabulary.tasks import Notify, background_tasks, gather_limited, gather_or_cancel
from holdfast.vocabulary.types import Member, TopicPartition

_log: Final = logging.getLogger(__name__)

_OPENED_TOGETHER: Final = 24
_OPENS_MAX: Final = 4  # concurrent, of so many each
_LOG_INTERVAL_MS: Final = 1_000


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
        members: Callable[[], Sequence[Member]],
        on_opened: Callable[[Topic, LeadingPartition], None],
        on_closed: Callable[[PartitionId], None],
    ) -> None:
        self._resources, self._agent, self._settings, self._counters = resources, agent, settings, counters
        self._store, self._session = resources.store, resources.session
        self._clock, self._random = resources.clock, resources.random
        self._publisher, self._unpublished, self._topics = publisher, unpublished, LedTopics(topic)
        self._maintenance, self._pending_ranges, self._retained = maintenance, pending_ranges, retained
        self._on_opened, self._on_closed = on_opened, on_closed
        self._leases: dict[str, Lease] = {}
        self.rotator = Rotator(
            agent=agent,
            members=members,
            settings=settings,
            store=self._store,
            clock=self._clock,
            random=self._random,
        )
        self._locks = KeyedLocks()  # one call for a resource at a time
        self._changed_topics: set[str] = set()
        self._replication = resources.replication
        self._unopened = UnopenedPartitions(
            self._store,
            clock=self._clock,
            random=self._random,
            network=self._replication.network if self._replication is not None else None,
        )
        self._replicated: dict[TopicPartition, LeadingPartition] = {}  # those that are, or shall be
        self._ended: dict[str, Lease] = {}  # by resource: replicated, and to be opened under a new epoch
        self._ended_logs = EndedLogs()
        self._epoch_pauses = EpochPauses(settings.open_retry_ms)
        self._retry = Notify()
        self._upkeep: ReplicaUpkeep | None = None
        self._moves: ReplicatedMoves | None = None
        if self._replication is not None:
            self._upkeep = ReplicaUpkeep(
                self._replication,
                clock=self._clock,
                watched=self._replicated.values,
                reopen=self._reopen,
                on_connected=self._retry.notify,
                retry_ms=settings.open_retry_ms,
            )
            self._moves = ReplicatedMoves(
                self._replication, self._upkeep, store=self._store, publisher=publisher, settings=settings
            )
        self._changes = LeadershipLog()
        self._running = False
        self.leading: dict[TopicPartition, LeadingPartition] = {}

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """The partitions that cannot be opened, and why."""
        return self._unopened.offline

    @property
    def leases(self) -> Collection[Lease]:
        """The leases of this handler, served or offline."""
        return list(self._leases.values())

    async def open(self, lease: Lease) -> None:
        """Open the partition, or list it as offline. `FencedError`, `ExpiredError`: the lease is lost."""
        self._leases[lease.resource] = lease
        async with self._locks.hold(lease.resource):
            for lost in await self._try_open([lease]):
                raise lost

    async def open_many(self, leases: Sequence[Lease]) -> Collection[str]:
        """Open partitions of leases that were just acquired, together; the resources of those that are lost again."""
        resources = [lease.resource for lease in leases]
        self._leases.update(zip(resources, leases, strict=True))
        async with self._locks.hold(*resources):
            return [lost.resource for lost in await self._try_open(leases, acquired=True)]

    async def drain(self, lease: Lease) -> None:
        """Publish everything and release the reserved offsets, unless replicas have it. If that fails, it is served as before."""
        async with self._locks.hold(lease.resource):
            which = partition_from_resource(lease.resource)
            partition = self.leading.get(which)
            if partition is None:
                self._unopened.check_movable(which)
                ended, topic = self._ended_logs.get(lease.resource), self._topics.get(which.topic)
                if ended is not None and topic is not None and self._moves is not None:
                    await self._moves.check_unopened(topic, which.number, ended)
                return
            if not self._topics.has(partition.partition_id):
                partition.stop_accepting()
            elif isinstance(partition, ReplicatedPartition) and self._moves is not None:
                await self._moves.drain(partition)
            else:
                await drain(partition, self._publisher, self._settings)
            self._counters.drained += 1

    async def resume(self, lease: Lease) -> None:
        """Accept appends again."""
        partition = self.leading.get(partition_from_resource(lease.resource))
        if partition is not None:
            partition.resume_accepting()

    async def close(self, lease: Lease) -> None:
        """Stop serving. What was not published stays in the WAL, and is remembered for the next takeover."""
        async with self._locks.hold(lease.resource):
            self._leases.pop(lease.resource, None)
            self._unopened.forget_lease(lease.resource)
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
            policy=lambda partition: self._topics.policy(partition.partition_id),
            protect=lambda partition: self._pending_ranges.lowest(partition.partition_id),
        )
        self._running = True
        try:
            async with (
                self._pending_ranges.following(self._store, clock=self._clock, random=self._random),
                background_tasks(
                    scheduler.run(),
                    self._retry_offline(),
                    run_maintenance(maintained, self._maintenance),
                    *([self._upkeep.run()] if self._upkeep is not None else ()),
                    self.rotator.run(),
                ),
            ):
                while True:
                    await self._clock.sleep_ms(_LOG_INTERVAL_MS)
                    self.log_changes()
                    self._ended_logs.sweep(self._leases, self._clock.boot_ms())
                    self._epoch_pauses.sweep(self._leases)
        finally:
            self._running = False
            self.log_changes()

    async def _retry_offline(self) -> None:
        """Open what could not be opened, and reopen what has changed, until cancelled."""
        due_ms = self._next_retry_ms()
        while True:
            if await self._retry.wait_ms(self._clock, max(0, due_ms - self._clock.boot_ms())):
                names, self._changed_topics = self._changed_topics, set()
                ended, self._ended = self._ended, {}
                changed = [
                    lease
                    for lease in self._unopened.leases.values()
                    if partition_from_resource(lease.resource).topic in names
                ]
                reachable = self._unopened.reachable_again()
                for lease in reachable:
                    self._epoch_pauses.forget(lease.resource)
                leases = list(dict.fromkeys((*changed, *reachable, *ended.values())))
            else:
                leases = await self._unopened.openable() if self._unopened.leases else []
                due_ms = self._next_retry_ms()
            together = [leases[at : at + _OPENED_TOGETHER] for at in range(0, len(leases), _OPENED_TOGETHER)]
            await gather_limited(self._retry_open, together, _OPENS_MAX)

    def _next_retry_ms(self) -> float:
        return self._clock.boot_ms() + self._random.jitter(self._settings.open_retry_ms)

    def topics_changed(self, names: Iterable[str]) -> None:
        """These topics were created, altered or deleted: look at their partitions, and at no others."""
        for name in names:
            for which in self._topics.opened_partitions(name):
                self._apply_topic(which)
            self._topics.forget_deleted(name)
            self._changed_topics.add(name)
        self._retry.notify()

    def _apply_topic(self, which: TopicPartition) -> None:
        """The topic has changed since the partition was opened."""
        partition, topic = self.leading.get(which), self._topics.get(which.topic)
        if partition is None:
            return
        if topic is None or topic.id != partition.partition_id.topic_id:
            self._unopened.leases[partition.lease.resource] = partition.lease
        elif (config := self._topics.partition_config(topic)) is not partition.partition_config:
            partition.change_config(config)
            self._watch(which, partition)
            self.rotator.consider(partition, topic.config.agent_group)

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown: publish everything and release every lease."""
        served = [each for each in self.leading.values() if self._topics.has(each.partition_id)]
        published = {each.lease.resource for each in served}
        others = [lease for lease in self._leases.values() if lease.resource not in published]
        retirement = Retirement(self._resources, publisher=self._publisher, settings=self._settings)
        try:
            async with asyncio.timeout(within_ms / 1000):
                await retirement.run(served)
                await retirement.release(others)
        except TimeoutError:
            _log.warning("stopped before everything was published; the rest stays in the WAL until the next start")
        finally:
            for resource in list(self._leases):
                self._close(partition_from_resource(resource), ClosedError("agent"), "agent stopped")
            self._leases.clear()
            self.log_changes()

    async def _retry_open(self, leases: Sequence[Lease]) -> None:
        async with self._locks.hold(*(lease.resource for lease in leases)):
            left = [lease for lease in leases if self._must_open(lease)]
            spent = [lease for lease in left if self._needs_new_epoch(lease)]
            await gather_limited(self._take_new_epoch, spent, _OPENED_TOGETHER)
            await self._try_open([lease for lease in left if lease not in spent])
            # One that is lost is seen by the plan executor, too, which closes it.

    def _needs_new_epoch(self, lease: Lease) -> bool:
        replication = self._replication
        if replication is None:
            return False
        return replication.spent_epochs.get(lease.resource) == lease.epoch or bool(replication.promises.barring(lease))

    async def _take_new_epoch(self, lease: Lease) -> None:
        """Raise the epoch of a lease that is ours: the plan executor closes it, and opens it under the new one."""
        if not self._epoch_pauses.take(lease.resource, self._clock.boot_ms()):
            return  # the next round tries again
        try:
            if not await self._is_store_behind(lease):
                await retake(self._store, lease, clock=self._clock, random=self._random)
                return
        except UnavailableError:
            pass
        except OutcomeUnknownError:
            return  # it may have been taken
        self._epoch_pauses.forget(lease.resource)  # none was

    async def _is_store_behind(self, lease: Lease) -> bool:
        """Whether no new epoch is taken, because a replica has promised one that the store has forgotten (`promises_ahead`)."""
        which = partition_from_resource(lease.resource)
        topic, replication = self._topics.get(which.topic), self._replication
        promised = replication.promises.barring(lease) if replication is not None else 0
        if not promised or topic is None or topic.config.unclean_takeover:
            return False
        error = store_behind_error(str(which), lease.epoch, promised)
        if self._unopened.offline.get(which) != str(error) and await is_newest(self._store, lease):
            partition_id = PartitionId(topic=which.topic, topic_id=topic.id, number=which.number)
            takeover = PartitionTakeover(
                partition_id=partition_id, lease=lease, config=self._topics.partition_config(topic)
            )
            await self._not_opened([(takeover, error)])
        return True  # otherwise the lease is lost, and the plan executor sees that, too

    def _on_ended(self, partition: ReplicatedPartition) -> None:
        """A replicated partition has closed itself: it goes on under a new epoch, if the lease is still ours."""
        lease, ended = partition.lease, partition.ended
        which = partition_from_resource(lease.resource)
        if self.leading.get(which) is not partition or ended is None:
            return
        error = EpochSpentError(str(partition.partition_id), lease.epoch, ended.reason)
        if self._replication is not None:
            self._replication.promises.refused(lease, ended.promised)
        self._close(which, FencedError(lease.resource, lease.epoch, lease.epoch + 1), f"ended: {ended.reason}")
        self._unopened.leases[lease.resource] = lease
        self._unopened.offline[which] = str(error)
        self._ended[lease.resource] = lease
        self._retry.notify()

    async def _reopen(self, partition: LeadingPartition) -> None:
        """Begin a new epoch with another level or other replicas; what is appended goes on until shortly before.

        A change of the level needs everything published. Other replicas of the same level get what is not from the log that ends.
        """
        lease, which = partition.lease, partition_from_resource(partition.lease.resource)
        async with self._locks.hold(lease.resource):
            if self.leading.get(which) is not partition or not partition.accepting:
                return
            # What cannot become durable cannot be published: another level begins with the log, too, and the tail keeps its own.
            if isinstance(partition, ReplicatedPartition) and (
                partition.partition_config.level == QUORUM or not (partition.is_durable or partition.can_advance)
            ):
                partition.stop_accepting()
                if partition.can_advance:  # otherwise the outcome of what was appended last is unknown
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._settings.drain_refuse_ms / 1000):
                            await partition.wait_durable()
                self._ended_logs.remember(lease.resource, EndedLog(lease.epoch, partition.log), self._clock.boot_ms())
            else:
                await drain(partition, self._publisher, self._settings)
            try:
                await retake(self._store, lease, clock=self._clock, random=self._random)
            except HoldfastError:
                partition.resume_accepting()
                raise

    def _watch(self, which: TopicPartition, partition: LeadingPartition) -> None:
        if isinstance(partition, ReplicatedPartition) or partition.partition_config.level == QUORUM:
            self._replicated[which] = partition
        else:
            self._replicated.pop(which, None)

    def _must_open(self, lease: Lease) -> bool:
        """Whether the lease is still ours, and its partition not served; that of a deleted topic is closed."""
        if self._leases.get(lease.resource) is not lease:
            return False
        which = partition_from_resource(lease.resource)
        partition = self.leading.get(which)
        if partition is None:
            return True
        if self._topics.has(partition.partition_id):
            self._unopened.forget_lease(lease.resource)
            return False
        self._close(which, UnknownTopicError(partition.partition_id.topic), "topic deleted")
        return True

    async def _try_open(self, leases: Sequence[Lease], *, acquired: bool = False) -> list[FencedError]:
        """Open these, or list them as offline; those that are lost. `acquired`: just now, so nobody can have marked them."""
        takeovers: list[PartitionTakeover] = []
        topics: dict[str, Topic] = {}
        for lease in leases:
            self._unopened.opening(lease)
            which = partition_from_resource(lease.resource)
            topic = self._topics.get(which.topic)
            if topic is None or which.number >= topic.partitions:
                self._unopened.offline[which] = "unknown topic"
                continue
            partition_id = PartitionId(topic=which.topic, topic_id=topic.id, number=which.number)
            config = self._topics.partition_config(topic)
            ended = self._ended_logs.get(lease.resource)
            takeovers.append(
                PartitionTakeover(
                    partition_id=partition_id, lease=lease, config=config, was_offline=not acquired, ended=ended
                )
            )
            topics[lease.resource] = topic
        if not takeovers:
            return []
        began_ms = self._clock.boot_ms()
        failed: list[tuple[PartitionTakeover, HoldfastError]] = []

        def on_result(takeover: PartitionTakeover, found: LeadingPartition | HoldfastError) -> None:
            if isinstance(found, HoldfastError):
                failed.append((takeover, found))
            else:
                self._opened(found, topics[takeover.lease.resource], began_ms)

        await open_partitions(takeovers, self._resources, frames=self._unpublished.frames, on_result=on_result)
        return await self._not_opened(failed) if failed else []

    def _opened(self, partition: LeadingPartition, topic: Topic, began_ms: int) -> None:
        lease, which = partition.lease, TopicPartition(topic.name, partition.partition_id.number)
        self.leading[which] = partition
        self.rotator.consider(partition, topic.config.agent_group)
        self._unopened.forget_lease(lease.resource)
        self._ended_logs.forget(lease.resource)
        self._topics.opened(which)
        if self._topics.get(which.topic) is not topic:  # it changed while the partition was opened
            self._apply_topic(which)
            self._changed_topics.add(which.topic)
            self._retry.notify()
        self._unopened.forget_reason(which)
        self._retained.pop(which, None)
        self._unpublished.forget(*partition.wal_key)
        self._counters.opened += 1
        recovered = partition.next_offset - partition.record.published
        ended_ms = self._clock.boot_ms()
        self._watch(which, partition)
        if isinstance(partition, ReplicatedPartition):
            partition.on_ended = self._on_ended
            if partition.ended is not None:
                self._on_ended(partition)
                return
        self._changes.gained(which, lease.epoch, recovered=recovered, began_ms=began_ms, ended_ms=ended_ms)
        self._on_opened(topic, partition)

    async def _not_opened(self, failed: Sequence[tuple[PartitionTakeover, HoldfastError]]) -> list[FencedError]:
        """List these as offline; return those that are lost. `ExpiredError`: all of them are."""
        for takeover, error in failed:
            if isinstance(error, ExpiredError):
                raise error
            if isinstance(error, EpochSpentError) and self._replication is not None:
                self._replication.spent_epochs[takeover.lease.resource] = takeover.lease.epoch
        lost = [error for _, error in failed if isinstance(error, FencedError)]
        offline = [(takeover, error) for takeover, error in failed if not isinstance(error, FencedError)]
        found = await gather_or_cancel(*(self._unopened.go_offline(*each) for each in offline))
        self._counters.open_failures += len(offline)
        return lost + [error for error in found if error is not None]

    def _close(self, which: TopicPartition, error: HoldfastError, reason: str) -> None:
        self._unopened.forget_reason(which)
        partition = self.leading.pop(which, None)
        self._replicated.pop(which, None)
        if partition is None:
            return
        partition.close(error)
        self._on_closed(partition.partition_id)
        self.rotator.forget(partition)
        self._counters.closed += 1
        self._changes.lost(which, reason)
        if self._topics.has(partition.partition_id):
            self._unpublished.remember(partition)
            if not self._session.alive():
                self._retained[which] = partition.retained()
        elif not isinstance(partition, ReplicatedPartition):  # the replica forgets its own
            self._unpublished.discard(bytes.fromhex(partition.partition_id.topic_id), which.number)

    def _reason_for_close(self, lease: Lease) -> str:
        partition = self.leading.get(partition_from_resource(lease.resource))
        if partition is not None and not partition.accepting:
            ended = self._ended_logs.get(lease.resource)
            is_reopened = ended is not None and ended.epoch == lease.epoch
            return "next epoch with other replicas" if is_reopened else "moved to another agent"  # it was drained
        return "lease lost" if self._session.alive() else "session lost"

    def log_changes(self) -> None:
        """Log what was gained and lost since the last call."""
        for line in self._changes.lines():
            _log.info("%s", line)
