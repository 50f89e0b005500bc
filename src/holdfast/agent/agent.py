"""An agent: session, membership, planner and follower of the kernel, log and groups as tenants; and the services faces call.

An agent that loses its session stops everything it did under it at once, and begins again with a new one, over the same WAL: what
it had acknowledged and not published is still there. Left politely, it publishes everything and hands its leases back first.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.agent.cluster import Cluster, watching_cluster
from holdfast.agent.lease_router import LeaseRouter
from holdfast.agent.partition_handler import PartitionLeaseHandler
from holdfast.agent.publish_scheduler import PublishScheduler
from holdfast.agent.settings import AgentCounters, AgentSettings
from holdfast.agent.unpublished_frames import QuarantinedRange, UnpublishedFrames
from holdfast.agent.wal_owners import close_previous_session, register_wal_owner
from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Delete, Store
from holdfast.groups.lease_handler import GroupShardLeaseHandler
from holdfast.groups.service import GroupService
from holdfast.groups.shard_count import ensure_shards
from holdfast.kernel.keys import member_key
from holdfast.kernel.membership import hold_membership
from holdfast.kernel.plan_executor import PlanExecutor, execute_plan
from holdfast.kernel.planner import run_planner
from holdfast.kernel.session import HeldSession, hold_session
from holdfast.log.maintenance import CleanupPolicy, MaintainedAgent, MaintenanceContext, PendingRanges, run_maintenance
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.reader import LogReader
from holdfast.log.service import LogService, NotLeaderError
from holdfast.log.topics import Topic, Topics
from holdfast.log.wal import Wal
from holdfast.log.wal.identity import wal_identity
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, FencedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks, unwrap_exception_group
from holdfast.vocabulary.types import Member, TopicPartition

_log: Final = logging.getLogger(__name__)

_POLL_MS: Final = 100
_REJOIN_ON: Final = (ExpiredError, FencedError, UnavailableError, OutcomeUnknownError)  # with a new session


class Agent:
    """One agent of a process. Made by `running_agent`."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        store: Store,
        objects: Objects,
        wal: Wal,
        wal_id: str,
        clock: Clock,
        random: Random,
    ) -> None:
        self.settings, self.wal, self.wal_id = settings, wal, wal_id
        self.counters = AgentCounters()
        self.cluster: Cluster  # set before anything runs
        self.member: Member | None = None
        self.graceful = True  # whether leaving hands everything back first
        self._store, self._objects, self._clock, self._random = store, objects, clock, random
        self._leftovers = UnpublishedFrames(wal, wal_id, store)
        self._partition_handler: PartitionLeaseHandler | None = None
        self._shard_handler: GroupShardLeaseHandler | None = None
        self._dirty_partitions: DirtyPartitions[LeadingPartition] = DirtyPartitions()
        self._published_tail_cache = PublishedTailCache(settings.afterglow_bytes_max)
        self._budget = TailBudget(settings.tail_bytes_max)
        self._stopping = asyncio.Event()
        self._publisher = SegmentPublisher(
            store=store, objects=objects, clock=clock, random=random, settings=settings.log
        )
        self._begun = PendingRanges()
        self._context = MaintenanceContext(
            store=store,
            objects=objects,
            clock=clock,
            random=random,
            log=settings.log,
            settings=settings.upkeep,
            begun=self._begun.lowest,
        )
        self.service = LogService(
            self,
            topics=Topics(store, clock=clock, random=random),
            reading=LogReader(objects, clock=clock, settings=settings.log),
            context=self._context,
            clock=clock,
            directory=wal.directory,
        )
        self.groups = GroupService(store=store, settings=settings.groups)

    @property
    def leading(self) -> Mapping[TopicPartition, LeadingPartition]:
        """The partitions this agent serves now."""
        return self._partition_handler.leading if self._partition_handler is not None else {}

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """The partitions this agent should serve and cannot open, and why."""
        return self._partition_handler.offline if self._partition_handler is not None else {}

    @property
    def quarantined(self) -> list[QuarantinedRange]:
        """What unclean takeovers left out and this WAL may hold."""
        return self._leftovers.quarantined

    def topic(self, name: str) -> Topic | None:
        """The topic, as far as it is known here."""
        return self.cluster.topic(name)

    def partition(self, topic: Topic, number: int) -> LeadingPartition:
        """The partition if it is led here. `NotLeaderError` says who leads it, or why nobody does."""
        which = TopicPartition(topic.name, number)
        led = self.leading.get(which)
        if led is not None and led.partition_id.topic_id == topic.id:
            return led
        held = self.cluster.leader(topic.name, number)
        raise NotLeaderError(topic.name, number, held.holder if held else "", self.offline.get(which, ""))

    def topics_changed(self) -> None:
        """Some topic was created, altered or deleted."""
        if self._partition_handler is not None:
            self._partition_handler.topics_changed()
        if self._shard_handler is not None:
            self._shard_handler.topics_changed()

    def policy(self, partition: LeadingPartition) -> CleanupPolicy:
        """What upkeep is to do with a partition."""
        topic = self.topic(partition.partition_id.topic)
        return topic.config.policy() if topic is not None else CleanupPolicy(retention_ms=None)

    def stop(self) -> None:
        """End `run` as soon as everything is handed back."""
        self._stopping.set()

    async def run(self) -> None:
        """Live, session after session, until `stop`."""
        while not self._stopping.is_set():
            try:
                await self._run_session()
            except (HoldfastError, BaseExceptionGroup) as error:
                if not all(isinstance(each, _REJOIN_ON) for each in leaf_errors(error)):
                    raise
                self.counters.sessions_lost += 1
                _log.warning(
                    "agent %s begins again: %s",
                    self.settings.id,
                    "; ".join(dict.fromkeys(map(str, leaf_errors(error)))),
                )
            if not self._stopping.is_set():
                await self._clock.sleep_ms(self._random.jitter(self.settings.rejoin_ms))

    async def _run_session(self) -> None:
        """One session, from joining to losing it or handing everything back."""
        settings, store, clock, random = self.settings, self._store, self._clock, self._random
        async with AsyncExitStack() as stack:
            await close_previous_session(store, self.wal_id)
            session = await stack.enter_async_context(
                hold_session(store, clock=clock, random=random, settings=settings.session)
            )
            self.counters.sessions += 1
            await register_wal_owner(
                store, self.wal_id, agent=settings.id, session=session.id, clock=clock, random=random
            )
            await self._leftovers.tidy()
            await ensure_shards(store, settings.groups.shards, clock=clock, random=random)
            tenant = LeaseRouter(
                self._new_partition_handler(session), self._new_shard_handler(session), drain_ms=settings.drain_ms
            )
            stack.push_async_callback(self._end, tenant)
            self.member = await stack.enter_async_context(
                hold_membership(
                    store, "agent", self._as_member(session), clock=clock, random=random, settings=settings.membership
                )
            )
            self._partition_handler, self._shard_handler, self.groups.leading = tenant.log, tenant.groups, tenant.groups
            await self._work(session, tenant)

    async def _work(self, session: HeldSession, tenant: LeaseRouter) -> None:
        settings, store, clock, random = self.settings, self._store, self._clock, self._random
        loop = PublishScheduler(
            self._publisher,
            wal=self.wal,
            session=session,
            clock=clock,
            random=random,
            settings=settings,
            counters=self.counters,
            dirty_partitions=self._dirty_partitions,
            budget=self._budget,
        )
        maintained = MaintainedAgent(
            agent=settings.id,
            session=session,
            partitions=tenant.log.leading.values,
            policy=self.policy,
            protect=lambda partition: self._begun.lowest(partition.partition_id.topic, partition.partition_id.number),
        )
        planning = run_planner(
            store, agent=settings.id, session=session, clock=clock, random=random, settings=settings.planner
        )
        async with (
            self._begun.following(store, clock=clock, random=random),
            background_tasks(
                planning,
                loop.run(),
                tenant.log.retry_offline(),
                tenant.groups.run(),
                run_maintenance(maintained, self._context),
            ),
            execute_plan(
                store,
                tenant,
                agent=settings.id,
                session=session,
                clock=clock,
                random=random,
                settings=settings.follower,
            ) as follower,
        ):
            await self._stopping.wait()
            if self.graceful:
                await self._hand_over(follower)
                tenant.retiring(True)
        if self.graceful:
            await tenant.retire()

    async def _hand_over(self, follower: PlanExecutor) -> None:
        """Leave the members, so that the planner gives our partitions to others, and follow that plan to the end."""
        key = member_key("agent", self.settings.id)
        with suppress(UnavailableError, OutcomeUnknownError):
            await commit_resolved(self._store, clock=self._clock, random=self._random, apply=(Delete(key),))
        deadline_ms = self._clock.boot_ms() + self.settings.hand_over_ms
        while follower.owned and self._clock.boot_ms() < deadline_ms:
            if not any(
                each.group == self.settings.group and each.id != self.settings.id for each in self.cluster.members
            ):
                return
            await follower.changed.wait_ms(self._clock, _POLL_MS)

    async def _end(self, tenant: LeaseRouter) -> None:
        """However the session ends: let go of what is still held, and remember what was not published."""
        self.groups.leading = None
        await tenant.end()
        self._partition_handler = self._shard_handler = self.member = None

    def _new_partition_handler(self, session: HeldSession) -> PartitionLeaseHandler:
        return PartitionLeaseHandler(
            store=self._store,
            objects=self._objects,
            wal=self.wal,
            wal_id=self.wal_id,
            session=session,
            clock=self._clock,
            random=self._random,
            settings=self.settings,
            counters=self.counters,
            publisher=self._publisher,
            leftovers=self._leftovers,
            topic=self.topic,
            dirty_partitions=self._dirty_partitions,
            published_tail_cache=self._published_tail_cache,
            budget=self._budget,
        )

    def _new_shard_handler(self, session: HeldSession) -> GroupShardLeaseHandler:
        return GroupShardLeaseHandler(
            store=self._store,
            session=session,
            clock=self._clock,
            random=self._random,
            settings=self.settings.groups,
            counters=self.groups.counters,
            topic_id=self._topic_id,
        )

    def _topic_id(self, name: str) -> str | None:
        topic = self.topic(name)
        return None if topic is None else topic.id

    def _as_member(self, session: HeldSession) -> Member:
        return Member(
            id=self.settings.id,
            session=session.id,
            address=self.settings.address,
            zone=self.settings.zone,
            group=self.settings.group,
            started_at_ms=self._clock.now_ms(),
        )


@asynccontextmanager
async def running_agent(
    settings: AgentSettings, directory: Path, *, store: Store, objects: Objects, clock: Clock, random: Random
) -> AsyncIterator[Agent]:
    """An agent with its WAL in `directory`, for the body. Leaving stops it, politely unless `agent.polite` says otherwise."""
    async with Wal.open(directory, clock=clock, random=random, settings=settings.wal) as wal:
        wal_id = await wal_identity(wal.directory, random=random)
        agent = Agent(settings, store=store, objects=objects, wal=wal, wal_id=wal_id, clock=clock, random=random)
        async with watching_cluster(store, clock=clock, random=random, on_topics=agent.topics_changed) as cluster:
            agent.cluster = cluster
            try:
                async with _running(agent):
                    yield agent
            finally:
                await agent.service.close()


@asynccontextmanager
async def _running(agent: Agent) -> AsyncIterator[None]:
    """Run the agent for the body. Leaving the body stops it and waits; if it fails, the body is cancelled."""
    body_done = asyncio.Event()

    async def run() -> None:
        await agent.run()
        await body_done.wait()  # an agent that was stopped early leaves the body alone

    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(run())
            try:
                yield
            except BaseException:
                running.cancel()
                raise
            agent.stop()
            body_done.set()
    except BaseExceptionGroup as failed:
        raise unwrap_exception_group(failed) from None


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors inside nested groups: a session that ends is noticed by several tasks at once."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaf_errors(each)
    else:
        yield error
