"""An agent as far as the log needs one: a session, a WAL, partitions, the loop that publishes what is due, upkeep.

It joins no cluster and asks for no plan: it takes its partitions and keeps them.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Committed, Conflict, Operation, Put, Requirement, Store
from holdfast.kernel.keys import partition_resource
from holdfast.kernel.lease import Lease, acquire
from holdfast.kernel.objects_owner import claim_objects
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.log.maintenance import MaintainedAgent, MaintenanceContext, MaintenanceSettings, run_maintenance
from holdfast.log.model import CleanupPolicy, PartitionConfig, PartitionId
from holdfast.log.partition.due_partitions import is_due
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publish_scheduler import PublishScheduler
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.partition.takeover import open_partition
from holdfast.log.settings import LeadershipCounters, LeadershipSettings, LogSettings
from holdfast.log.wal import Wal
from holdfast.log.wal.identity import wal_identity
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.random import Random, SystemRandom
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.types import TopicPartition

_TOPIC, _TOPIC_ID, _AGENT = "events", "ab" * 16, "bench"


class CountedStore(FaultyStore):
    """Counts the commits that named segments, and the segments they named. It loses nothing unless told to."""

    def __init__(self, store: Store, *, random: Random) -> None:
        super().__init__(store, random=random)
        self.commits = self.naming_commits = self.segments = 0

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        named = sum(isinstance(each, Put) and "/seg/" in each.key for each in apply)
        self.commits += 1
        self.segments += named
        self.naming_commits += named > 0
        return await super().commit(require=require, apply=apply)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an agent is made of, and on which terms it keeps its partitions."""

    store: Store
    objects: Objects
    directory: Path
    clock: Clock
    partitions: int
    partition_config: PartitionConfig = field(default_factory=PartitionConfig)
    log: LogSettings = field(default_factory=LogSettings)
    upkeep: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    policy: CleanupPolicy = field(default_factory=CleanupPolicy)
    session: SessionSettings = field(default_factory=lambda: SessionSettings(stall_ms=0))


class Leader:
    """Partitions that this process leads. Made by `leading`."""

    def __init__(self, parts: Parts, wal: Wal, wal_id: str, session: HeldSession, random: Random) -> None:
        self.parts, self.wal, self.session, self.random = parts, wal, session, random
        self._resources = PartitionResources(
            session=session,
            store=parts.store,
            objects=parts.objects,
            wal=wal,
            wal_id=wal_id,
            clock=parts.clock,
            random=random,
            settings=parts.log,
            budget=TailBudget(LeadershipSettings().tail_bytes_max),
        )
        self.partitions: list[LeadingPartition] = []
        self._publisher = SegmentPublisher(
            store=parts.store, objects=parts.objects, clock=parts.clock, random=random, settings=parts.log
        )

    async def take(self) -> None:
        """Open every partition."""
        parts = self.parts
        for number in range(parts.partitions):
            resource = partition_resource(TopicPartition(_TOPIC, number))
            lease = await acquire(
                parts.store, resource, holder=_AGENT, session=self.session.id, clock=parts.clock, random=self.random
            )
            assert isinstance(lease, Lease)
            partition_id = PartitionId(topic=_TOPIC, topic_id=_TOPIC_ID, number=number)
            opened = await open_partition(partition_id, lease, self._resources, config=parts.partition_config)
            self.partitions.append(opened)

    async def publish_due(self) -> None:
        """Publish together what is due together now."""
        now_ms, interval_ms = self.parts.clock.boot_ms(), self.parts.log.object_interval_ms
        if chosen := [each for each in self.partitions if is_due(each, now_ms, object_interval_ms=interval_ms)]:
            lost = await self._publisher.publish(chosen)
            assert not lost, lost

    async def keep_publishing(self) -> None:
        """The agent's own loop, until cancelled."""
        settings, counters = LeadershipSettings(), LeadershipCounters()
        await PublishScheduler(self._publisher, self._resources, settings=settings, counters=counters).run()


@asynccontextmanager
async def leading(parts: Parts) -> AsyncIterator[Leader]:
    """The agent, with upkeep beside it, for the body."""
    random = SystemRandom()
    async with AsyncExitStack() as stack:
        # The WAL lives in real time, whatever time the log is told.
        wal = await stack.enter_async_context(Wal.open(parts.directory, clock=RealClock(), random=random))
        wal_id = await wal_identity(wal.directory, random=random)
        session = await stack.enter_async_context(
            hold_session(parts.store, clock=parts.clock, random=random, settings=parts.session)
        )
        leader = Leader(parts, wal, wal_id, session, random)
        await leader.take()
        owner = await claim_objects(parts.store, parts.objects, clock=parts.clock, random=random)
        context = MaintenanceContext(
            store=parts.store,
            objects=parts.objects,
            owner=owner,
            clock=parts.clock,
            random=random,
            log=parts.log,
            settings=parts.upkeep,
        )
        maintained = MaintainedAgent(
            agent=_AGENT, session=session, partitions=lambda: leader.partitions, policy=lambda _: parts.policy
        )
        await stack.enter_async_context(background_tasks(run_maintenance(maintained, context)))
        yield leader
