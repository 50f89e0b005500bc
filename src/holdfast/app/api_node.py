"""A node that owns nothing: it answers about the cluster from mirrors of the store, and sends everybody to whoever leads.

It has a number and an address, so that clients can bootstrap from it; it is no member, so that nothing is ever placed on it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from holdfast.agent.cluster import Cluster, watching_cluster
from holdfast.app.config import ServeSettings
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.cursors.service import CursorService
from holdfast.groups.service import GroupService
from holdfast.heap.local_heaps import LocalHeaps
from holdfast.heap.service import HeapService
from holdfast.heap.spine.spine_shards import SpineShards
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.log.errors import NotLeaderError
from holdfast.log.maintenance import MaintenanceContext
from holdfast.log.reader import LogReader
from holdfast.log.service import LogService
from holdfast.log.topics import Topic, Topics
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


class _NoPartitions:
    """Knows topics, leads none."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topic(self, name: str) -> Topic | None:
        return self._cluster.topic(name)

    def partition(self, topic: Topic, number: int) -> NoReturn:
        held = self._cluster.leader(topic.name, number)
        raise NotLeaderError(topic.name, number, held.holder if held else "")

    def readable(self, topic: Topic, number: int) -> NoReturn:
        self.partition(topic, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiNode:
    """What a node without an agent has."""

    cluster: Cluster
    service: LogService
    groups: GroupService
    cursors: CursorService
    heaps: HeapService


@asynccontextmanager
async def running_api_node(
    settings: ServeSettings, *, store: Store, objects: Objects, owner: ObjectsOwner, clock: Clock, random: Random
) -> AsyncIterator[ApiNode]:
    """An API-only node, for the body."""
    async with watching_cluster(store, clock=clock, random=random) as cluster:
        tuning = settings.agent
        context = MaintenanceContext(
            store=store,
            objects=objects,
            owner=owner,
            clock=clock,
            random=random,
            log=tuning.log,
            settings=tuning.upkeep,
        )
        service = LogService(
            _NoPartitions(cluster),
            topics=Topics(store, clock=clock, random=random),
            reading=LogReader(objects, clock=clock, settings=tuning.log),
            context=context,
            clock=clock,
        )
        heaps = HeapService(
            LocalHeaps(tuning.heaps, topic=cluster.topic, clock=clock, random=random),
            topics=service.topics,
            topic=cluster.topic,
            leader=cluster.leader,
            clock=clock,
        )
        heaps.spine_shards = SpineShards(store)
        try:
            yield ApiNode(
                cluster=cluster,
                service=service,
                groups=GroupService(store=store, settings=tuning.groups),
                cursors=CursorService(store=store, settings=tuning.cursors),
                heaps=heaps,
            )
        finally:
            await service.close()
