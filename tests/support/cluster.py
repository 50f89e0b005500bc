"""Agents in one process: one store and one object storage for all, a WAL folder each, timings at second scale."""

import asyncio
import errno
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.support.partitions import batch, records
from tests.support.waiting import async_until

from holdfast.agent import Agent, AgentSettings, running_agent
from holdfast.agent.peers.peers import PeerEndpoint
from holdfast.contracts.validation import StoreLimits
from holdfast.groups.settings import GroupSettings
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.plan_executor import PlanExecutorSettings
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.batches import parse_header
from holdfast.log.errors import NotEnoughReplicasError, NotLeaderError
from holdfast.log.service import LogService
from holdfast.log.settings import LogSettings
from holdfast.log.topics import UnknownTopicError
from holdfast.log.wal import Wal, WalSettings
from holdfast.log.wal.disk import WalDisk
from holdfast.log.wal.frames import Buffer
from holdfast.objects.memory import MemoryObjects
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import FencedError, HoldfastError, UnavailableError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.sockets import bind_one

FEW_SHARDS = GroupSettings(shards=2, initial_delay_ms=10)  # each is a lease that every agent of every test would take


def fast_settings(name: str, **changes: object) -> AgentSettings:
    """Settings of an agent that does in milliseconds what others do in seconds."""
    settings: dict[str, object] = {
        "id": name,
        "open_retry_ms": 100,
        "idle_ms": 60_000,
        "rejoin_ms": 50,
        # Long enough for a machine that is busy with something else; a test that needs the end of a session calls `lose_session`.
        "session": SessionSettings(ttl_ms=20_000, renew_ms=500, margin_ms=300, stall_ms=10_000, retry_ms=50),
        "membership": MembershipSettings(wait_for_id_ms=5_000),
        "planner": PlannerSettings(settle_ms=20, tick_ms=1_000),
        "follower": PlanExecutorSettings(tick_ms=1_000, transfer_timeout_ms=2_000, retry_ms=50),
        "log": LogSettings(reserve_offsets=100, publish_tick_ms=10, publish_retry_ms=20, object_interval_ms=20),
        "wal": WalSettings(file_bytes=256 * KIB),
        "groups": FEW_SHARDS,
    }
    return AgentSettings(**{**settings, **changes})  # type: ignore[arg-type]


def wal_bytes(directory: Path) -> int:
    """What the files of a WAL take; one that is renamed or removed meanwhile is none."""
    total = 0
    for each in directory.glob("*.wal"):
        with suppress(FileNotFoundError):
            total += each.stat().st_size
    return total


class FillableDisk(WalDisk):
    """A disk that a test can fill, or hold back: nothing is written before `gate` is set."""

    def __init__(self) -> None:
        self.full = False
        self.gate: threading.Event | None = None
        self.limit_bytes = 0  # of the files of a WAL; 0: none

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        self._check()
        return super().write(descriptor, buffers, position)

    def write_blocks(self, descriptor: int, buffers: Sequence[Buffer], memory: memoryview, position: int) -> int:
        self._check()
        return super().write_blocks(descriptor, buffers, memory, position)

    def free_bytes(self, directory: Path) -> int:
        if self.limit_bytes:
            return max(0, self.limit_bytes - wal_bytes(directory))
        return 0 if self.full else super().free_bytes(directory)

    def _check(self) -> None:
        if self.gate is not None:
            self.gate.wait(30)
        if self.full:
            raise OSError(errno.ENOSPC, "full on purpose")


class Node:
    """One agent: a task that is stopped gracefully, dropped, or cut off."""

    def __init__(self, world: "LocalCluster", name: str, **changes: object) -> None:
        self.world, self.name = world, name
        self.store = FaultyStore(world.store, random=world.random)
        self.objects = FaultyObjects(world.objects, clock=world.clock, random=world.random)
        self.disk = FillableDisk()
        self.agent: Agent
        self.serving = False  # whether what stands on the agent runs: its gateways
        self._changes = changes
        self._end = asyncio.Event()
        self._up = asyncio.Event()
        self.task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        try:
            async with running_agent(
                fast_settings(self.name, **self._changes),
                self.world.directory / self.name,
                store=self.store,
                objects=self.objects,
                clock=self.world.clock,
                random=self.world.random,
                peers=self._endpoint() if self.world.streams else None,
                open_wal=partial(Wal.open, disk=self.disk),
            ) as self.agent:
                self.serving = True
                self._up.set()
                try:
                    await self._end.wait()
                finally:
                    self.serving = False
        finally:
            self._up.set()

    def _endpoint(self) -> PeerEndpoint:
        bound = bind_one("127.0.0.1", 0)
        return PeerEndpoint(sockets=[bound], address=f"127.0.0.1:{bound.getsockname()[1]}")

    async def up(self) -> "Node":
        await self._up.wait()
        if self.task.done():
            self.task.result()
        return self

    @property
    def service(self) -> LogService:
        return self.agent.service

    async def stop(self) -> None:
        """Gracefully: everything is published and handed over."""
        self._end.set()
        await self.task

    async def drop(self) -> None:
        """As a crash does, once the store has noticed it: nothing is published, nothing is handed over."""
        self.objects.reachable = False
        self.agent.sessions.graceful = False
        self._end.set()
        session = self.agent.sessions.session
        if session is not None:
            session.deadline_ms = 0
            await self.world.store.close_session(session.id)
        await self.task

    async def lose_session(self) -> None:
        """Cut the agent off from the store until its session is lost, without waiting for its deadline. The store stays away."""
        session, lost = self.agent.sessions.session, self.agent.counters.sessions_lost
        assert session is not None
        self.store.reachable, self.store.sessions_over = False, True
        session.deadline_ms = 0
        await async_until(lambda: self.agent.counters.sessions_lost > lost)
        self.store.sessions_over = False
        await self.world.store.close_session(session.id)  # which ends later than the agent's own deadline

    def leads(self) -> set[int]:
        return {partition.number for partition in self.agent.leading}


class LocalCluster:
    """Everything that outlives an agent, and the agents."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock, self.random = RealClock(), SeededRandom(11)
        self.store = MemoryStore(clock=self.clock, random=self.random, limits=StoreLimits())
        self.objects = MemoryObjects(clock=self.clock)
        self.nodes: list[Node] = []
        self.streams = False  # whether agents connect to each other

    async def node(self, name: str = "ann", **changes: object) -> Node:
        node = Node(self, name, **changes)
        self.nodes.append(node)
        return await node.up()

    async def end(self) -> None:
        for node in self.nodes:
            if not node.task.done():
                await node.drop()

    def leader(self, partition: int) -> Node | None:
        return next((node for node in self.nodes if not node.task.done() and partition in node.leads()), None)

    async def produce(self, topic: str, partition: int, *values: str) -> int:
        """As a client does: find the leader, try again while there is none."""
        while True:
            node = self.leader(partition)
            if node is not None:
                try:
                    return (await node.service.produce(topic, partition, batch(*values))).base_offset
                except (NotLeaderError, NotEnoughReplicasError, FencedError, UnavailableError, UnknownTopicError):
                    pass
            await self.clock.sleep_ms(5)

    async def read(self, topic: str, partition: int) -> list[tuple[int, str]]:
        """Everything visible, read batch by batch from whoever leads, with a new look at every retry."""
        found: list[tuple[int, str]] = []
        at = 0
        while True:
            node = self.leader(partition)
            if node is not None:
                try:
                    fetched = await node.service.fetch(topic, partition, at, bytes_max=1)
                except HoldfastError:
                    await self.clock.sleep_ms(5)
                    continue
                if not fetched.batches:
                    return found
                found += [each for each in records(fetched.batches) if each[0] >= at]
                at = parse_header(fetched.batches[-1]).last_offset + 1  # which may have no records
            else:
                await self.clock.sleep_ms(5)
