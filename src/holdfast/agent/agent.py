"""The agent of a server: the lease handlers of log partitions, group shards and cursors in one session loop, and their services.

Gateways call `service`, `groups`, `cursors` and `heaps`. A further kind of lease is one more entry in `handlers`; heap
partitions have none, they live under the leases of log partitions; their spines do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from holdfast.agent.cluster import Cluster, watching_cluster
from holdfast.agent.heap_batches import KEY as HEAP_BATCH_KEY
from holdfast.agent.heap_batches import HeapBatchNetwork
from holdfast.agent.heap_network import KEY as HEAP_KEY
from holdfast.agent.heap_network import HeapNetwork
from holdfast.agent.lease_handlers import LeaseHandlerFactory
from holdfast.agent.peers.handshake import PeerIdentity
from holdfast.agent.peers.peers import PeerEndpoint, Peers
from holdfast.agent.planned_replicas import PlannedReplicas, watching_plan
from holdfast.agent.replica_network import PeerReplicaNetwork
from holdfast.agent.session_loop import SessionLoop
from holdfast.agent.settings import AgentCounters, AgentSettings
from holdfast.contracts.coalesced_commits import coalescing
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.cursors.keys import CURSOR_SHARD
from holdfast.cursors.local_cursors import LocalCursors
from holdfast.cursors.service import CursorService
from holdfast.groups.keys import GROUP_SHARD
from holdfast.groups.local_groups import LocalGroups
from holdfast.groups.service import GroupService
from holdfast.heap.batch.local_batches import LocalBatches
from holdfast.heap.local_heaps import LocalHeaps
from holdfast.heap.service import HeapService
from holdfast.heap.spine.keys import SPINE_SHARD
from holdfast.heap.spine.local_spines import LocalSpines
from holdfast.kernel.cluster_identity import cluster_identity
from holdfast.kernel.keys import LOG_PARTITION, LeaseKind
from holdfast.kernel.objects_owner import ObjectsOwner, claim_objects
from holdfast.log.local_log import LocalLog, ReplicaReach
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.unneeded_replicas import keep_dropping
from holdfast.log.service import LogService
from holdfast.log.topics import Topic
from holdfast.log.wal import Wal
from holdfast.log.wal.identity import wal_identity
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks, task_group, unwrap_exception_group
from holdfast.vocabulary.tracing import Tracer
from holdfast.vocabulary.types import Member, TopicPartition


class RunningReplicaNetwork(ReplicaNetwork, Protocol):
    """A `ReplicaNetwork` that watches its connections."""

    async def run(self) -> None:
        """Until cancelled."""
        ...


class ConnectReplicas(Protocol):
    """Makes the network of an agent from its own replicas and its streams."""

    def __call__(self, host: ReplicaHost, peers: Peers | None, *, clock: Clock) -> RunningReplicaNetwork: ...


class Agent:
    """One agent of a process. Made by `running_agent`."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        cluster: Cluster,
        store: Store,
        objects: Objects,
        owner: ObjectsOwner,
        wal: Wal,
        wal_id: str,
        replicas: ReplicaHost,
        planned: PlannedReplicas,
        peers: Peers | None,
        clock: Clock,
        random: Random,
        connect_replicas: ConnectReplicas = PeerReplicaNetwork,
        tracer: Tracer | None = None,
    ) -> None:
        self.settings, self.cluster, self.wal, self.wal_id, self.peers = settings, cluster, wal, wal_id, peers
        self.replicas = replicas
        self.replica_network = connect_replicas(replicas, peers, clock=clock)
        self.counters = AgentCounters()
        self.local_heaps = LocalHeaps(
            settings.heaps, topic=self.topic, clock=clock, random=random, directory=wal.directory
        )
        self.log = LocalLog(
            settings,
            agent=settings.id,
            log=settings.log,
            maintenance=settings.upkeep,
            counters=self.counters,
            cluster=cluster,
            store=store,
            objects=objects,
            owner=owner,
            wal=wal,
            wal_id=wal_id,
            clock=clock,
            random=random,
            replicas=ReplicaReach(
                host=replicas, network=self.replica_network, planned=planned.of, lag_ms=settings.replica.lag_ms
            ),
            tracer=tracer,
            listener=self.local_heaps,
        )
        self.heaps = HeapService(
            self.local_heaps, topics=self.log.service.topics, topic=self.topic, leader=cluster.leader, clock=clock
        )
        self.groups = GroupService(store=store, settings=settings.groups)
        local_groups = LocalGroups(self.groups, store=store, clock=clock, random=random, topic_id=self._topic_id)
        self.cursors = CursorService(store=store, settings=settings.cursors)
        local_cursors = LocalCursors(
            self.cursors,
            store=store,
            clock=clock,
            random=random,
            topic_exists=lambda name: self.topic(name) is not None,
            placed=bool(settings.text_address),
        )
        heap_network = HeapNetwork(
            settings.id,
            self.local_heaps,
            peers,
            topic=self.topic,
            leader=cluster.leader,
            holder=cluster.holder,
            member=cluster.member,
        )
        self.heaps.spines = heap_network.spines = LocalSpines(
            heap_network,
            store=store,
            clock=clock,
            random=random,
            shards=settings.heaps.spine_shards,
            topics=lambda: cluster.topics,
            topic=self.topic,
        )
        batch_network = HeapBatchNetwork(
            settings.id, self.local_heaps, peers, topic=self.topic, leader=cluster.leader, member=cluster.member
        )
        self.local_heaps.earlier = batch_network
        self.local_heaps.batches = LocalBatches(batch_network, settings.heaps, store=store, clock=clock, random=random)
        if isinstance(self.replica_network, PeerReplicaNetwork):  # not in the simulator
            self.replica_network.others = {HEAP_KEY: heap_network.take, HEAP_BATCH_KEY: batch_network.take}
        self.handlers: Mapping[LeaseKind, LeaseHandlerFactory] = {
            LOG_PARTITION: self.log,
            GROUP_SHARD: local_groups,
            CURSOR_SHARD: local_cursors,
            SPINE_SHARD: self.heaps.spines,
        }
        self.sessions = SessionLoop(
            settings,
            self.handlers,
            cluster=cluster,
            counters=self.counters,
            store=store,
            clock=clock,
            random=random,
            wal_id=replicas.wal_id,
            is_disk_full=lambda: replicas.wal.full,
            peers=peers,
        )
        cluster.on_topics = self._topics_changed

    @property
    def service(self) -> LogService:
        """The log as gateways use it."""
        return self.log.service

    @property
    def member(self) -> Member | None:
        """This agent as a member of the cluster; None: it has no session."""
        return self.sessions.member

    @property
    def leading(self) -> Collection[TopicPartition]:
        """The partitions this agent serves now."""
        return self.log.leading.keys()

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """The partitions whose lease this agent holds and cannot open, and why."""
        return self.log.offline

    def topic(self, name: str) -> Topic | None:
        """The topic, if it is known here."""
        return self.cluster.topic(name)

    def _topics_changed(self, names: Collection[str]) -> None:
        for handler in self.handlers.values():
            handler.topics_changed(names)
        self.local_heaps.topics_changed(names)

    def _topic_id(self, name: str) -> str | None:
        topic = self.topic(name)
        return None if topic is None else topic.id


@asynccontextmanager
async def running_agent(
    settings: AgentSettings,
    directory: Path,
    *,
    store: Store,
    objects: Objects,
    clock: Clock,
    random: Random,
    owner: ObjectsOwner | None = None,
    peers: PeerEndpoint | None = None,
    open_wal: Callable[..., AbstractAsyncContextManager[Wal]] = Wal.open,
    connect_replicas: ConnectReplicas = PeerReplicaNetwork,
    tracer: Tracer | None = None,
) -> AsyncIterator[Agent]:
    """An agent with its WAL in `directory`, for the body. Leaving stops it, gracefully unless `sessions.graceful` is False.

    `owner` is what `claim_objects` returned; without it the objects are claimed here. `NotOwnerError`: they are not ours.
    `peers`: where other agents connect; without it this agent has no streams. `open_wal`: `Wal.open`, or the same on another disk.
    `connect_replicas`: how replicas of other agents are reached. `tracer`: None if traces are off.
    """
    owner = owner or await claim_objects(store, objects, clock=clock, random=random)
    async with (
        open_wal(directory, clock=clock, random=random, settings=settings.wal) as wal,
        coalescing(store) as store,
    ):
        wal_id = await wal_identity(wal.directory, random=random)
        async with (
            ReplicaHost.open(wal, wal_id, clock=clock, settings=settings.replica) as replicas,
            watching_cluster(store, clock=clock, random=random) as cluster,
            watching_plan(store, cluster, clock=clock, random=random) as planned,
            _serving_peers(settings, peers, replicas.wal_id, cluster, store, clock=clock, random=random) as streams,
        ):
            agent = Agent(
                settings,
                cluster=cluster,
                store=store,
                objects=objects,
                owner=owner,
                wal=wal,
                wal_id=wal_id,
                replicas=replicas,
                planned=planned,
                peers=streams,
                clock=clock,
                random=random,
                connect_replicas=connect_replicas,
                tracer=tracer,
            )
            try:
                async with (
                    background_tasks(
                        agent.replica_network.run(),
                        agent.local_heaps.run(),
                        keep_dropping(replicas, store, clock=clock, random=random),
                    ),
                    _running(agent.sessions),
                ):
                    yield agent
            finally:
                await agent.service.close()


@asynccontextmanager
async def _serving_peers(
    settings: AgentSettings,
    endpoint: PeerEndpoint | None,
    wal_id: str,
    cluster: Cluster,
    store: Store,
    *,
    clock: Clock,
    random: Random,
) -> AsyncIterator[Peers | None]:
    """Listen for other agents, before they can learn of this one from the store."""
    if endpoint is None:
        yield None
        return
    cluster_id = await cluster_identity(store, clock=clock, random=random)
    us = PeerIdentity(cluster=cluster_id, agent=settings.id, wal_id=wal_id)
    async with Peers.serving(us, endpoint, cluster, settings=settings.peers, clock=clock, random=random) as peers:
        yield peers


@asynccontextmanager
async def _running(sessions: SessionLoop) -> AsyncIterator[None]:
    """Run the sessions for the body. Leaving the body stops them and waits; if they fail, the body is cancelled."""
    body_done = asyncio.Event()

    async def run() -> None:
        await sessions.run()
        await body_done.wait()  # an agent that was stopped early does not end the body

    try:
        async with task_group() as group:
            running = group.create_task(run())
            try:
                yield
            except BaseException:
                running.cancel()
                raise
            sessions.stop()
            body_done.set()
    except BaseExceptionGroup as failed:
        raise unwrap_exception_group(failed) from None
