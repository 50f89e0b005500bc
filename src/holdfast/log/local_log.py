"""The log of one process that leads partitions: its WAL, what its partitions share, and the service gateways call.

It outlives sessions; each session gets a `PartitionLeaseHandler` over the same WAL, so that what was acknowledged and not published
is still there. Implements `agent.lease_handlers.LeaseHandlerFactory` and `service.LeaderLookup`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.lease import Held
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.kernel.session import HeldSession
from holdfast.kernel.unmoved_store import UnmovedStore
from holdfast.log.append_traces import AppendTraces
from holdfast.log.errors import NotLeaderError
from holdfast.log.figures import TopicTraffic
from holdfast.log.follower_reads import FollowerReads
from holdfast.log.lease_handler import PartitionLeaseHandler
from holdfast.log.maintenance import MaintenanceContext, MaintenanceSettings, PendingRanges
from holdfast.log.model import PartitionId
from holdfast.log.owned_partition import OwnedPartition, PartitionListener
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.resources import PartitionResources, ReplicationResources
from holdfast.log.partition.retained_partition import RetainedPartition
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.partition.unpublished_frames import UnpublishedFrames
from holdfast.log.reader import LogReader
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.unneeded_replicas import drop_log
from holdfast.log.service import LogService
from holdfast.log.settings import LeadershipCounters, LeadershipSettings, LogSettings
from holdfast.log.topics import Topic, Topics
from holdfast.log.wal import Wal
from holdfast.log.wal_owners import close_previous_session, register_wal_owner
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tracing import Tracer
from holdfast.vocabulary.types import Member, TopicPartition


class ClusterMetadata(Protocol):
    """The topics and leaders visible to this process."""

    def topic(self, name: str) -> Topic | None: ...

    def leader(self, topic: str, number: int) -> Held | None: ...

    @property
    def members(self) -> Sequence[Member]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReach:
    """This agent's own replicas; how all are reached, and which are planned for a partition: see `ReplicationResources`."""

    host: ReplicaHost
    network: ReplicaNetwork
    planned: Callable[[TopicPartition], Sequence[str]]
    lag_ms: int


class LocalLog:
    """The partitions this process leads, session after session."""

    def __init__(
        self,
        settings: LeadershipSettings,
        *,
        agent: str,
        log: LogSettings,
        maintenance: MaintenanceSettings,
        counters: LeadershipCounters,
        cluster: ClusterMetadata,
        store: Store,
        objects: Objects,
        owner: ObjectsOwner,
        wal: Wal,
        wal_id: str,
        clock: Clock,
        random: Random,
        replicas: ReplicaReach | None = None,
        tracer: Tracer | None = None,
        listener: PartitionListener | None = None,
    ) -> None:
        """`replicas`: how those of other agents are reached; without it nothing is replicated. `tracer`: None if traces are off.

        `listener`: told of partitions that open and end here.
        """
        traces = AppendTraces(tracer) if tracer is not None else None
        self._replicas, self._listener = replicas, listener
        self.wal, self.wal_id = wal, wal_id
        self._settings, self._agent, self._log, self._counters = settings, agent, log, counters
        self._cluster, self._store, self._objects, self._clock, self._random = cluster, store, objects, clock, random
        self._handler: PartitionLeaseHandler | None = None
        self._retained: dict[TopicPartition, RetainedPartition] = {}  # led when the session was lost, and not led since
        self._dirty_partitions: DirtyPartitions[LeadingPartition] = DirtyPartitions()
        self._published_tail_cache = PublishedTailCache(settings.afterglow_bytes_max)
        self._budget = TailBudget(settings.tail_bytes_max)
        self.traffic = TopicTraffic()
        self._unpublished = UnpublishedFrames(wal, wal_id, store, clock=clock, budget=self._budget)
        self._publisher = SegmentPublisher(
            store=store, objects=objects, clock=clock, random=random, settings=log, prefix=owner.prefix, traces=traces
        )
        self.pending_ranges = PendingRanges()
        self._context = MaintenanceContext(
            store=store,
            objects=objects,
            owner=owner,
            clock=clock,
            random=random,
            log=log,
            settings=maintenance,
            pending_from=self.pending_ranges.lowest,
            refresh_pending=self.pending_ranges.refresh,
        )
        reading = self._reading = LogReader(objects, clock=clock, settings=log)
        self.service = LogService(
            self,
            topics=Topics(UnmovedStore(store), clock=clock, random=random),
            reading=reading,
            context=self._context,
            clock=clock,
            directory=wal.directory,
            traffic=self.traffic,
            traces=traces,
            followers=None
            if replicas is None
            else FollowerReads(replicas.host, leader=cluster.leader, store=store, reading=reading, clock=clock),
        )

    @property
    def leading(self) -> Mapping[TopicPartition, LeadingPartition]:
        """The partitions that are served now."""
        return self._handler.leading if self._handler is not None else {}

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """The partitions whose lease is held here and that cannot be opened, and why."""
        return self._handler.offline if self._handler is not None else {}

    def topic(self, name: str) -> Topic | None:
        """The topic, if it is known here."""
        return self._cluster.topic(name)

    def partition(self, topic: Topic, number: int) -> LeadingPartition:
        """The partition if it is led here. `NotLeaderError` names its leader, or the reason why it has none."""
        handler, which = self._handler, TopicPartition(topic.name, number)
        if handler is not None:
            led = handler.leading.get(which)
            if led is not None and led.partition_id.topic_id == topic.id:
                return led
        held = self._cluster.leader(topic.name, number)
        raise NotLeaderError(topic.name, number, held.holder if held else "", self.offline.get(which, ""))

    def readable(self, topic: Topic, number: int) -> LeadingPartition | RetainedPartition:
        """The partition if it is led here, or was until the session was lost and no other leader is known."""
        handler, which = self._handler, TopicPartition(topic.name, number)
        led = handler.leading.get(which) if handler is not None else None
        kept = self._retained.get(which)
        if led is not None and led.partition_id.topic_id == topic.id:
            if led.is_current():
                return led
            if kept is None or kept.epoch != led.epoch:  # one, so that the reads of several fetches are shared
                kept = self._retained[which] = led.retained()
            return kept
        if kept is not None:
            held = self._cluster.leader(topic.name, number)
            elsewhere = held is not None and held.holder != self._agent and held.epoch > kept.epoch
            if kept.partition_id.topic_id == topic.id and not elsewhere:
                return kept
            del self._retained[which]
        return self.partition(topic, number)

    async def prepare(self) -> None:
        """End the session of the process that had this WAL before, and look at what it left there: not under our own session."""
        await close_previous_session(self._store, self.wal_id)
        await self._unpublished.release_unneeded()

    async def start(self, session: HeldSession) -> PartitionLeaseHandler:
        """Register this process as the owner of the WAL, and serve the leases that come."""
        clock, random = self._clock, self._random
        await register_wal_owner(
            self._store,
            self.wal_id,
            agent=self._agent,
            session=session.id,
            clock=clock,
            random=random,
            replica=self._replicas.host.wal_id if self._replicas is not None else "",
        )
        resources = PartitionResources(
            session=session,
            store=self._store,
            objects=self._objects,
            wal=self.wal,
            wal_id=self.wal_id,
            clock=clock,
            random=random,
            settings=self._log,
            dirty_partitions=self._dirty_partitions,
            published_tail_cache=self._published_tail_cache,
            budget=self._budget,
            counters=self._counters,
            traffic=self.traffic,
            replication=self._replication(),
        )
        self._handler = PartitionLeaseHandler(
            resources,
            agent=self._agent,
            settings=self._settings,
            counters=self._counters,
            publisher=self._publisher,
            unpublished=self._unpublished,
            maintenance=self._context,
            pending_ranges=self.pending_ranges,
            retained=self._retained,
            topic=self.topic,
            members=lambda: self._cluster.members,
            on_opened=self._opened,
            on_closed=self._closed,
        )
        return self._handler

    def _opened(self, topic: Topic, partition: LeadingPartition) -> None:
        if self._listener is not None:
            self._listener.opened(topic, OwnedPartition(partition, self._reading, self._context))

    def _closed(self, partition_id: PartitionId) -> None:
        if self._listener is not None:
            self._listener.closed(partition_id)

    def _replication(self) -> ReplicationResources | None:
        found = self._replicas
        if found is None:
            return None
        return ReplicationResources(
            network=found.network,
            planned_replicas=found.planned,
            drop_log=partial(drop_log, found.host),
            lag_ms=found.lag_ms,
            catch_up_rate=found.host.catch_up_rate,
            has_learners=found.host.settings.catch_up_bytes_per_s > 0,
        )

    def stop(self) -> None:
        """Lead nothing."""
        if self._handler is not None:
            self._handler.log_changes()  # its own loop may have ended first
        self._handler = None

    def topics_changed(self, names: Collection[str]) -> None:
        """Apply changed configurations, and close partitions of deleted topics."""
        for which in [each for each in self._retained if self.topic(each.topic) is None]:
            del self._retained[which]
        for name in [each for each in self.traffic if each in names and self.topic(each) is None]:
            del self.traffic[name]
        if self._handler is not None:
            self._handler.topics_changed(names)
