"""Coordinators on one store: each has its session, its shards by lease, and the service gateways call."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tests.support.group import join_request, subscription

from holdfast.contracts.store import Store
from holdfast.groups.errors import NotCoordinatorError
from holdfast.groups.keys import GROUP_SHARD, shard_resource
from holdfast.groups.lease_handler import GroupShardLeaseHandler
from holdfast.groups.model import AssignmentProtocol, CommittedOffset, JoinResult, SyncRequest, SyncResult
from holdfast.groups.service import GroupService
from holdfast.groups.settings import GroupSettings
from holdfast.kernel.keys import holder_key
from holdfast.kernel.lease import Lease, acquire
from holdfast.kernel.session import HeldSession, SessionSettings
from holdfast.kernel.shard_count import ensure_shards
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.types import TopicPartition

T = TypeVar("T")

FAST_SETTINGS = GroupSettings(shards=2, initial_delay_ms=10, session_min_ms=50)


class Coordinator:
    """The group part of one agent."""

    def __init__(self, world: "CoordinatorWorld", name: str, session: HeldSession, settings: GroupSettings) -> None:
        self.world, self.name, self.session = world, name, session
        self.store = FaultyStore(world.store, random=world.random)
        self.service = GroupService(store=self.store, settings=settings)
        self.handler = GroupShardLeaseHandler(
            store=self.store,
            session=session,
            clock=world.clock,
            random=world.random,
            settings=settings,
            counters=self.service.counters,
            topic_id=world.topic_id,
        )
        self.service.leading = self.handler
        self.leases: list[Lease] = []
        self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        async with background_tasks(self.handler.run()):
            await asyncio.Event().wait()

    async def take_all(self) -> None:
        """Acquire every shard, also from another coordinator."""
        for number in range(self.service.settings.shards):
            resource = shard_resource(number)
            held = await self.world.store.get(holder_key(resource))
            if held is not None and held.session is not None:
                await self.world.store.close_session(held.session)
            lease = await acquire(
                self.world.store,
                resource,
                holder=self.name,
                session=self.session.id,
                clock=self.world.clock,
                random=self.world.random,
            )
            assert isinstance(lease, Lease), lease
            self.leases.append(lease)
        await asyncio.gather(*(self.handler.open(lease) for lease in self.leases))

    async def stop(self) -> None:
        """The process is gone: nothing more is done, no reply is sent."""
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running

    async def close(self) -> None:
        for lease in self.leases:
            await self.handler.close(lease)
        await self.stop()

    # What clients do

    async def join(self, group_id: str, **changes: Any) -> JoinResult:
        return await self.service.join(group_id, join_request(**changes))

    async def sync(self, group_id: str, joined: JoinResult, assignments: dict[str, bytes] | None = None) -> SyncResult:
        ask = SyncRequest(member_id=joined.member_id, generation=joined.generation, assignments=assignments or {})
        return await self.service.sync(group_id, ask)

    async def member(self, group_id: str, **changes: Any) -> JoinResult:
        """A group of one, stable."""
        joined = await self.join(group_id, **changes)
        await self.sync(group_id, joined, {joined.member_id: b"everything"})
        return joined

    async def commit(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], member: JoinResult | None = None
    ) -> None:
        results = await self.service.commit_offsets(
            group_id,
            {TopicPartition(*where): CommittedOffset(offset=offset) for where, offset in offsets.items()},
            member_id=member.member_id if member else "",
            generation=member.generation if member else -1,
        )
        for error in results.values():
            if error is not None:
                raise error

    async def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        found = await self.service.fetch_offsets(group_id)
        return {(partition.topic, partition.number): each.offset for partition, each in found.items()}


class CoordinatorWorld:
    """One store and its coordinators."""

    def __init__(self, store: Store, *, clock: Clock | None = None) -> None:
        self.store, self.clock, self.random = store, clock or RealClock(), SeededRandom(7)
        self.topics: dict[str, str] = {"orders": "id-1", "bills": "id-2"}
        self.coordinators: list[Coordinator] = []

    def topic_id(self, name: str) -> str | None:
        return self.topics.get(name)

    async def coordinator(self, name: str = "ann", settings: GroupSettings = FAST_SETTINGS) -> Coordinator:
        await ensure_shards(self.store, GROUP_SHARD, settings.shards, clock=self.clock, random=self.random)
        opened = await self.store.open_session(600_000)
        session = HeldSession(
            opened.id,
            opened.ttl_ms,
            opened_ms=self.clock.boot_ms(),
            clock=self.clock,
            settings=SessionSettings(),
        )
        coordinator = Coordinator(self, name, session, settings)
        self.coordinators.append(coordinator)
        await coordinator.take_all()
        return coordinator

    async def end(self) -> None:
        for coordinator in self.coordinators:
            coordinator.store.reachable = True
            await coordinator.close()


@contextmanager
def held_back(store: FaultyStore) -> Iterator[asyncio.Event]:
    """Commits do not begin before the event is set."""
    go, real = asyncio.Event(), store.commit

    async def commit(**given: Any) -> Any:
        await go.wait()
        return await real(**given)

    store.commit = commit  # type: ignore[method-assign]
    try:
        yield go
    finally:
        go.set()
        store.commit = real  # type: ignore[method-assign]


def one_of(*topics: str) -> tuple[AssignmentProtocol, ...]:
    """A subscription to these topics."""
    return (AssignmentProtocol("range", subscription(*topics)),)


async def patiently(call: Callable[[], Awaitable[T]], *, within_ms: int = 20_000) -> T:
    """Retry while there is no coordinator, as clients do."""
    clock = RealClock()
    deadline_ms = clock.boot_ms() + within_ms
    while True:
        try:
            return await call()
        except NotCoordinatorError:
            assert clock.boot_ms() < deadline_ms, "waited in vain"
            await clock.sleep_ms(5)
