"""A cluster as one process has it open: store, objects and agents, whichever its reach names. Kept for later tasks.

The one rule: a process that reads must not make anything. A folder or a database file that is not there is refused, because opening
it would make an empty one, and an empty log looks like a log without records.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.client.brokers import BrokerClient, TopicInfo
from holdfast.client.cluster_address import ClusterAddress, why_objects_invisible, why_store_invisible
from holdfast.client.loop_thread import loop_thread
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.log.model import PartitionId
from holdfast.log.published_log import PublishedLog
from holdfast.log.reader import LogReader
from holdfast.log.settings import LogSettings
from holdfast.log.topics import Topics
from holdfast.objects.urls import open_objects, parse_objects_url
from holdfast.stores.urls import open_store, parse_store_url
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random, SystemRandom

_IDENTITY_KEY: Final = "cluster/identity"
_VISIBLE_URL: Final = (
    "a URL that every driver and executor can see: shared storage, or a folder that is mounted on all of them"
)


@dataclass(frozen=True, slots=True)
class DirectAccess:
    """The way past the agents: what is published."""

    store: Store
    objects: Objects
    topics: Topics
    reading: LogReader


@dataclass(slots=True)
class ClusterAccess:
    """What a reach names, open. `direct` and `agents` are None where the reach has no such way."""

    cluster_address: ClusterAddress
    direct: DirectAccess | None
    agents: BrokerClient | None
    clock: Clock = field(default_factory=RealClock)

    async def topic(self, name: str) -> TopicInfo:
        """The topic as it is now. `UnknownTopicError`."""
        if self.direct is not None:
            topic = await self.direct.topics.get(name)
            return TopicInfo(topic.name, topic.id, topic.partitions)
        assert self.agents is not None
        return await self.agents.topic(name)

    async def topics(self) -> list[TopicInfo]:
        """Every topic, by name."""
        if self.direct is not None:
            return [TopicInfo(each.name, each.id, each.partitions) for each in await self.direct.topics.list()]
        assert self.agents is not None
        return await self.agents.topics()

    async def published(self, topic: TopicInfo, number: int) -> PublishedLog | None:
        """The published part of a partition, if there is a way to it."""
        if self.direct is None:
            return None
        partition_id = PartitionId(topic=topic.name, topic_id=topic.id, number=number)
        return await PublishedLog.open(partition_id, store=self.direct.store, clock=self.clock)


@asynccontextmanager
async def _open(cluster_address: ClusterAddress, clock: Clock, random: Random) -> AsyncIterator[ClusterAccess]:
    async with AsyncExitStack() as stack:
        agents = BrokerClient(cluster_address.bootstrap, clock=clock) if cluster_address.bootstrap else None
        if agents is not None:
            stack.push_async_callback(agents.close)
        direct = None
        if cluster_address.store:
            _check_visible(cluster_address)
            store = await stack.enter_async_context(open_store(cluster_address.store, clock=clock, random=random))
            objects = await stack.enter_async_context(open_objects(cluster_address.objects, clock=clock, random=random))
            reading = LogReader(objects, clock=clock, settings=LogSettings())
            stack.push_async_callback(reading.close)
            direct = DirectAccess(store, objects, Topics(store, clock=clock, random=random), reading)
            if agents is not None:
                await _check_same_cluster(cluster_address, store, agents)
        yield ClusterAccess(cluster_address, direct, agents, clock)


def _check_visible(cluster_address: ClusterAddress) -> None:
    if reason := why_objects_invisible(cluster_address.objects):
        raise InvalidError(
            "option objects", parse_objects_url(cluster_address.objects).shown, f"{_VISIBLE_URL}; {reason}"
        )
    if reason := why_store_invisible(cluster_address.store):
        raise InvalidError("option store", parse_store_url(cluster_address.store).shown, f"{_VISIBLE_URL}; {reason}")


async def _check_same_cluster(cluster_address: ClusterAddress, store: Store, agents: BrokerClient) -> None:
    """Refuse a store of another cluster: a path that exists on two machines, say."""
    entry = await store.get(_IDENTITY_KEY)
    known = msgspec.json.decode(entry.value, type=dict[str, str])["id"] if entry is not None else ""
    told = await agents.cluster_id()
    if known != told:
        shown = parse_store_url(cluster_address.store).shown
        raise InvalidError(
            "option store",
            shown,
            f"the store of the cluster at {cluster_address.bootstrap} ({told}), not of {known or 'none'}",
        )


class _CachedCluster:
    """One cluster, open from the first use until the process's loop ends."""

    def __init__(self, cluster_address: ClusterAddress) -> None:
        self._closing = asyncio.Event()
        self.opened: asyncio.Future[ClusterAccess] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._hold(cluster_address))

    async def _hold(self, cluster_address: ClusterAddress) -> None:
        # Opened and closed by one task: some engines run tasks of their own, which only their opener may end.
        try:
            async with _open(cluster_address, RealClock(), SystemRandom()) as opened:
                self.opened.set_result(opened)
                await self._closing.wait()
        except BaseException as error:
            if self.opened.done():
                raise
            self.opened.set_exception(error)

    async def close(self) -> None:
        self._closing.set()
        await asyncio.wait((self._task,))


async def open_cluster(cluster_address: ClusterAddress) -> ClusterAccess:
    """The cluster, opened at the first use in this process. On the loop's thread."""
    thread = loop_thread()
    held = thread.kept.get(cluster_address)
    if held is None:
        held = thread.kept[cluster_address] = _CachedCluster(cluster_address)
        thread.on_close(held.close)
    assert isinstance(held, _CachedCluster)
    try:
        return await asyncio.shield(held.opened)
    except BaseException:
        if held.opened.done() and (held.opened.cancelled() or held.opened.exception() is not None):
            thread.kept.pop(cluster_address, None)  # the next use tries again
        raise
