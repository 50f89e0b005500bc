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
from holdfast.agent.leftovers import Leftovers, SetAside
from holdfast.agent.publishing import PublishingLoop
from holdfast.agent.routing import RoutingTenant
from holdfast.agent.settings import AgentCounters, AgentSettings
from holdfast.agent.tenant import LogTenant
from holdfast.agent.wal_owners import announce, end_former_life
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Delete, Store
from holdfast.contracts.surely import commit_surely
from holdfast.groups.founding import found_shards
from holdfast.groups.service import GroupService
from holdfast.groups.tenant import GroupTenant
from holdfast.kernel.follower import Follower, following_plan
from holdfast.kernel.keys import member_key
from holdfast.kernel.membership import joined
from holdfast.kernel.planner import run_planner
from holdfast.kernel.session import HeldSession, hold_session
from holdfast.log.identity import wal_identity
from holdfast.log.partition.afterglow import Afterglow
from holdfast.log.partition.attention import Attention
from holdfast.log.partition.budget import TailBudget
from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.publishing import Publisher
from holdfast.log.reading import Reading
from holdfast.log.service import LogService, NotLeaderError
from holdfast.log.topics import Topic, Topics
from holdfast.log.upkeep import BegunRanges, Kit, Policy, Upkept, run_upkeep
from holdfast.log.wal import Wal
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import ExpiredError, FencedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.nouns import Member, Partition
from holdfast.vocabulary.tasks import beside, the_only_error

_log: Final = logging.getLogger(__name__)

_LOOK_MS: Final = 100
_BEGIN_AGAIN: Final = (ExpiredError, FencedError, UnavailableError, OutcomeUnknownError)  # with a new session


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
        chance: Chance,
    ) -> None:
        self.settings, self.wal, self.wal_id = settings, wal, wal_id
        self.counters = AgentCounters()
        self.cluster: Cluster  # set before anything runs
        self.member: Member | None = None
        self.polite = True  # whether leaving hands everything back first
        self._store, self._objects, self._clock, self._chance = store, objects, clock, chance
        self._leftovers = Leftovers(wal, wal_id, store)
        self._tenant: LogTenant | None = None
        self._group_tenant: GroupTenant | None = None
        self._attention: Attention[LeadingPartition] = Attention()
        self._afterglow = Afterglow(settings.afterglow_bytes_max)
        self._budget = TailBudget(settings.tail_bytes_max)
        self._stopping = asyncio.Event()
        self._publisher = Publisher(store=store, objects=objects, clock=clock, chance=chance, settings=settings.log)
        self._begun = BegunRanges()
        self._kit = Kit(
            store=store,
            objects=objects,
            clock=clock,
            chance=chance,
            log=settings.log,
            settings=settings.upkeep,
            begun=self._begun.lowest,
        )
        self.service = LogService(
            self,
            topics=Topics(store, clock=clock, chance=chance),
            reading=Reading(objects, clock=clock, settings=settings.log),
            kit=self._kit,
            clock=clock,
            directory=wal.directory,
        )
        self.groups = GroupService(store=store, settings=settings.groups)

    @property
    def leading(self) -> Mapping[Partition, LeadingPartition]:
        """The partitions this agent serves now."""
        return self._tenant.leading if self._tenant is not None else {}

    @property
    def offline(self) -> Mapping[Partition, str]:
        """The partitions this agent should serve and cannot open, and why."""
        return self._tenant.offline if self._tenant is not None else {}

    @property
    def set_aside(self) -> list[SetAside]:
        """What unclean takeovers left out and this WAL may hold."""
        return self._leftovers.set_aside

    def topic(self, name: str) -> Topic | None:
        """The topic, as far as it is known here."""
        return self.cluster.topic(name)

    def partition(self, topic: Topic, number: int) -> LeadingPartition:
        """The partition if it is led here. `NotLeaderError` says who leads it, or why nobody does."""
        which = Partition(topic.name, number)
        led = self.leading.get(which)
        if led is not None and led.place.topic_id == topic.id:
            return led
        held = self.cluster.leader(topic.name, number)
        raise NotLeaderError(topic.name, number, held.holder if held else "", self.offline.get(which, ""))

    def topics_changed(self) -> None:
        """Some topic was created, altered or deleted."""
        if self._tenant is not None:
            self._tenant.topics_changed()
        if self._group_tenant is not None:
            self._group_tenant.topics_changed()

    def policy(self, partition: LeadingPartition) -> Policy:
        """What upkeep is to do with a partition."""
        topic = self.topic(partition.place.topic)
        return topic.config.policy() if topic is not None else Policy(retention_ms=None)

    def stop(self) -> None:
        """End `run` as soon as everything is handed back."""
        self._stopping.set()

    async def run(self) -> None:
        """Live, session after session, until `stop`."""
        while not self._stopping.is_set():
            try:
                await self._live()
            except (HoldfastError, BaseExceptionGroup) as error:
                if not all(isinstance(each, _BEGIN_AGAIN) for each in leaves(error)):
                    raise
                self.counters.sessions_lost += 1
                _log.warning(
                    "agent %s begins again: %s", self.settings.id, "; ".join(dict.fromkeys(map(str, leaves(error))))
                )
            if not self._stopping.is_set():
                await self._clock.sleep_ms(self._chance.jitter(self.settings.rejoin_ms))

    async def _live(self) -> None:
        """One session, from joining to losing it or handing everything back."""
        settings, store, clock, chance = self.settings, self._store, self._clock, self._chance
        async with AsyncExitStack() as stack:
            await end_former_life(store, self.wal_id)
            session = await stack.enter_async_context(
                hold_session(store, clock=clock, chance=chance, settings=settings.session)
            )
            self.counters.sessions += 1
            await announce(store, self.wal_id, agent=settings.id, session=session.id, clock=clock, chance=chance)
            await self._leftovers.tidy()
            await found_shards(store, settings.groups.shards, clock=clock, chance=chance)
            tenant = RoutingTenant(
                self._new_tenant(session), self._new_group_tenant(session), drain_ms=settings.drain_ms
            )
            stack.push_async_callback(self._end, tenant)
            self.member = await stack.enter_async_context(
                joined(
                    store, "agent", self._as_member(session), clock=clock, chance=chance, settings=settings.membership
                )
            )
            self._tenant, self._group_tenant, self.groups.leading = tenant.log, tenant.groups, tenant.groups
            await self._work(session, tenant)

    async def _work(self, session: HeldSession, tenant: RoutingTenant) -> None:
        settings, store, clock, chance = self.settings, self._store, self._clock, self._chance
        loop = PublishingLoop(
            self._publisher,
            wal=self.wal,
            session=session,
            clock=clock,
            chance=chance,
            settings=settings,
            counters=self.counters,
            attention=self._attention,
            budget=self._budget,
        )
        upkept = Upkept(
            agent=settings.id,
            session=session,
            partitions=tenant.log.leading.values,
            policy=self.policy,
            protect=lambda partition: self._begun.lowest(partition.place.topic, partition.place.number),
        )
        planning = run_planner(
            store, agent=settings.id, session=session, clock=clock, chance=chance, settings=settings.planner
        )
        async with (
            self._begun.following(store, clock=clock, chance=chance),
            beside(planning, loop.run(), tenant.log.keep_trying(), tenant.groups.run(), run_upkeep(upkept, self._kit)),
            following_plan(
                store,
                tenant,
                agent=settings.id,
                session=session,
                clock=clock,
                chance=chance,
                settings=settings.follower,
            ) as follower,
        ):
            await self._stopping.wait()
            if self.polite:
                await self._hand_over(follower)
                tenant.retiring(True)
        if self.polite:
            await tenant.retire()

    async def _hand_over(self, follower: Follower) -> None:
        """Leave the members, so that the planner gives our partitions to others, and follow that plan to the end."""
        key = member_key("agent", self.settings.id)
        with suppress(UnavailableError, OutcomeUnknownError):
            await commit_surely(self._store, clock=self._clock, chance=self._chance, apply=(Delete(key),))
        deadline_ms = self._clock.boot_ms() + self.settings.hand_over_ms
        while follower.owned and self._clock.boot_ms() < deadline_ms:
            if not any(
                each.group == self.settings.group and each.id != self.settings.id for each in self.cluster.members
            ):
                return
            await follower.changed.wait_ms(self._clock, _LOOK_MS)

    async def _end(self, tenant: RoutingTenant) -> None:
        """However the session ends: let go of what is still held, and remember what was not published."""
        self.groups.leading = None
        await tenant.end()
        self._tenant = self._group_tenant = self.member = None

    def _new_tenant(self, session: HeldSession) -> LogTenant:
        return LogTenant(
            store=self._store,
            objects=self._objects,
            wal=self.wal,
            wal_id=self.wal_id,
            session=session,
            clock=self._clock,
            chance=self._chance,
            settings=self.settings,
            counters=self.counters,
            publisher=self._publisher,
            leftovers=self._leftovers,
            topic=self.topic,
            attention=self._attention,
            afterglow=self._afterglow,
            budget=self._budget,
        )

    def _new_group_tenant(self, session: HeldSession) -> GroupTenant:
        return GroupTenant(
            store=self._store,
            session=session,
            clock=self._clock,
            chance=self._chance,
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
    settings: AgentSettings, directory: Path, *, store: Store, objects: Objects, clock: Clock, chance: Chance
) -> AsyncIterator[Agent]:
    """An agent with its WAL in `directory`, for the body. Leaving stops it, politely unless `agent.polite` says otherwise."""
    async with Wal.open(directory, clock=clock, chance=chance, settings=settings.wal) as wal:
        wal_id = await wal_identity(wal.directory, chance=chance)
        agent = Agent(settings, store=store, objects=objects, wal=wal, wal_id=wal_id, clock=clock, chance=chance)
        async with watching_cluster(store, clock=clock, chance=chance, on_topics=agent.topics_changed) as cluster:
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
        raise the_only_error(failed) from None


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside nested groups: a session that ends is noticed by several tasks at once."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error
