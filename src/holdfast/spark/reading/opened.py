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

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.log.partition.terms import Place
from holdfast.log.published import PublishedLog
from holdfast.log.reading import Reading
from holdfast.log.settings import LogSettings
from holdfast.log.topics import Topics
from holdfast.objects.urls import open_objects, parse_objects_url
from holdfast.spark.reach import Reach, unseen_objects, unseen_store
from holdfast.spark.reading.agents import Agents, TopicFacts
from holdfast.spark.reading.loop import loop_thread
from holdfast.stores.urls import open_store, parse_store_url
from holdfast.vocabulary.clock import Chance, Clock, RealChance, RealClock
from holdfast.vocabulary.errors import InvalidError

_IDENTITY: Final = "cluster/identity"
_SEEN: Final = (
    "a URL that every driver and executor can see: shared storage, or a folder that is mounted on all of them"
)


@dataclass(frozen=True, slots=True)
class Direct:
    """The way past the agents: what is published."""

    store: Store
    objects: Objects
    topics: Topics
    reading: Reading


@dataclass(slots=True)
class Opened:
    """What a reach names, open. `direct` and `agents` are None where the reach has no such way."""

    reach: Reach
    direct: Direct | None
    agents: Agents | None
    clock: Clock = field(default_factory=RealClock)

    async def topic(self, name: str) -> TopicFacts:
        """The topic as it is now. `UnknownTopicError`."""
        if self.direct is not None:
            topic = await self.direct.topics.get(name)
            return TopicFacts(topic.name, topic.id, topic.partitions)
        assert self.agents is not None
        return await self.agents.topic(name)

    async def topics(self) -> list[TopicFacts]:
        """Every topic, by name."""
        if self.direct is not None:
            return [TopicFacts(each.name, each.id, each.partitions) for each in await self.direct.topics.list()]
        assert self.agents is not None
        return await self.agents.topics()

    async def published(self, topic: TopicFacts, number: int) -> PublishedLog | None:
        """The published part of a partition, if there is a way to it."""
        if self.direct is None:
            return None
        place = Place(topic=topic.name, topic_id=topic.id, number=number)
        return await PublishedLog.open(place, store=self.direct.store, clock=self.clock)


@asynccontextmanager
async def _opening(reach: Reach, clock: Clock, chance: Chance) -> AsyncIterator[Opened]:
    async with AsyncExitStack() as stack:
        agents = Agents(reach.bootstrap, clock=clock) if reach.bootstrap else None
        if agents is not None:
            stack.push_async_callback(agents.close)
        direct = None
        if reach.store:
            _check_seen(reach)
            store = await stack.enter_async_context(open_store(reach.store, clock=clock, chance=chance))
            objects = await stack.enter_async_context(open_objects(reach.objects, clock=clock, chance=chance))
            reading = Reading(objects, clock=clock, settings=LogSettings())
            stack.push_async_callback(reading.close)
            direct = Direct(store, objects, Topics(store, clock=clock, chance=chance), reading)
            if agents is not None:
                await _check_same_cluster(reach, store, agents)
        yield Opened(reach, direct, agents, clock)


def _check_seen(reach: Reach) -> None:
    if reason := unseen_objects(reach.objects):
        raise InvalidError("option objects", parse_objects_url(reach.objects).shown, f"{_SEEN}; {reason}")
    if reason := unseen_store(reach.store):
        raise InvalidError("option store", parse_store_url(reach.store).shown, f"{_SEEN}; {reason}")


async def _check_same_cluster(reach: Reach, store: Store, agents: Agents) -> None:
    """Refuse a store of another cluster: a path that exists on two machines, say."""
    entry = await store.get(_IDENTITY)
    known = msgspec.json.decode(entry.value, type=dict[str, str])["id"] if entry is not None else ""
    told = await agents.cluster_id()
    if known != told:
        shown = parse_store_url(reach.store).shown
        raise InvalidError(
            "option store", shown, f"the store of the cluster at {reach.bootstrap} ({told}), not of {known or 'none'}"
        )


class _Held:
    """One cluster, open from the first use until the process's loop ends."""

    def __init__(self, reach: Reach) -> None:
        self._closing = asyncio.Event()
        self.opened: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._hold(reach))

    async def _hold(self, reach: Reach) -> None:
        # Opened and closed by one task: some engines run tasks of their own, which only their opener may end.
        try:
            async with _opening(reach, RealClock(), RealChance()) as opened:
                self.opened.set_result(opened)
                await self._closing.wait()
        except BaseException as error:
            if self.opened.done():
                raise
            self.opened.set_exception(error)

    async def close(self) -> None:
        self._closing.set()
        await asyncio.wait((self._task,))


async def opened(reach: Reach) -> Opened:
    """The cluster, opened at the first use in this process. On the loop's thread."""
    thread = loop_thread()
    held = thread.kept.get(reach)
    if held is None:
        held = thread.kept[reach] = _Held(reach)
        thread.on_close(held.close)
    assert isinstance(held, _Held)
    try:
        return await asyncio.shield(held.opened)
    except BaseException:
        if held.opened.done() and (held.opened.cancelled() or held.opened.exception() is not None):
            thread.kept.pop(reach, None)  # the next use tries again
        raise
