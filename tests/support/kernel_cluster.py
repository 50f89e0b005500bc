"""Agents of a cluster without a log, on the memory store under a fake clock: no test waits for real time."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack

import msgspec
from tests.support.waiting import FAKE_WAIT_MS, until_in_fake_time

from holdfast.contracts.store import Put
from holdfast.kernel.early_ends import EarlyTakeover
from holdfast.kernel.early_takeover import EarlyTakeoverSettings
from holdfast.kernel.keys import workload_key
from holdfast.kernel.lease import Lease
from holdfast.kernel.membership import MembershipSettings, hold_membership
from holdfast.kernel.placement import Workload
from holdfast.kernel.plan_executor import PlanExecutor, PlanExecutorSettings, execute_plan
from holdfast.kernel.planner import PlannerSettings, run_planner
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import ExpiredError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import background_tasks, leaf_errors
from holdfast.vocabulary.types import Member


class RecordingHandler:
    """A tenant that notes what happens to it, and can be made slow to drain."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, int]] = []
        self.open_now: dict[str, int] = {}
        self.may_drain = asyncio.Event()
        self.may_drain.set()

    async def open(self, lease: Lease) -> None:
        self.log.append(("open", lease.resource, lease.epoch))
        self.open_now[lease.resource] = lease.epoch

    async def open_many(self, leases: Sequence[Lease]) -> Collection[str]:
        for lease in leases:
            await self.open(lease)
        return ()

    async def drain(self, lease: Lease) -> None:
        self.log.append(("drain", lease.resource, lease.epoch))
        await self.may_drain.wait()

    async def resume(self, lease: Lease) -> None:
        self.log.append(("resume", lease.resource, lease.epoch))

    async def close(self, lease: Lease) -> None:
        self.log.append(("close", lease.resource, lease.epoch))
        self.open_now.pop(lease.resource, None)


class SimulatedAgent:
    """One agent of the world: a task that can be stopped politely, or cut off from the store."""

    def __init__(self, world: "KernelCluster", name: str, *, zone: str = "", group: str = "default") -> None:
        self.world, self.name, self.zone, self.group = world, name, zone, group
        self.store = FaultyStore(world.store, random=world.random)
        self.serving = RecordingHandler()
        self.session: HeldSession | None = None
        self.sessions_ended_early = self.sessions_ended_wrongly = 0
        self.executor: PlanExecutor | None = None
        self.task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        store, clock, random = self.store, self.world.clock, self.world.random
        try:
            async with AsyncExitStack() as stack:
                self.session = session = await stack.enter_async_context(
                    hold_session(store, clock=clock, random=random, settings=SessionSettings())
                )
                member = Member(
                    id=self.name, session=session.id, zone=self.zone, group=self.group, process=f"process-{self.name}"
                )
                await stack.enter_async_context(
                    hold_membership(store, "agent", member, clock=clock, random=random, settings=MembershipSettings())
                )
                self.executor = await stack.enter_async_context(
                    execute_plan(
                        store,
                        self.serving,
                        agent=self.name,
                        session=session,
                        clock=clock,
                        random=random,
                        settings=PlanExecutorSettings(),
                    )
                )
                early = EarlyTakeover(
                    settings=EarlyTakeoverSettings(), may_move=self.world.movable.__contains__, counters=self
                )
                planning = run_planner(
                    store,
                    agent=self.name,
                    session=session,
                    clock=clock,
                    random=random,
                    settings=PlannerSettings(),
                    early=early,
                )
                await stack.enter_async_context(background_tasks(planning))
                await asyncio.Event().wait()
        except (ExpiredError, BaseExceptionGroup) as error:
            if not all(isinstance(each, ExpiredError) for each in leaf_errors(error)):
                raise
            self.executor = None

    def owns(self) -> set[str]:
        return set(self.serving.open_now)

    async def stop(self) -> None:
        self.task.cancel()
        while not self.task.done():
            await self.world.clock.run_for_ms(100)
        await asyncio.gather(self.task, return_exceptions=True)


class KernelCluster:
    def __init__(self, store: MemoryStore, clock: FakeClock) -> None:
        self.store, self.clock, self.random = store, clock, SeededRandom(7)
        self.agents: dict[str, SimulatedAgent] = {}
        self.movable: set[str] = set()  # whose sessions may be ended early

    def start(self, *names: str, zone: str = "", group: str = "default") -> list[SimulatedAgent]:
        for name in names:
            self.agents[name] = SimulatedAgent(self, name, zone=zone, group=group)
        return [self.agents[name] for name in names]

    async def workload(self, topic: str, partitions: int) -> None:
        value = msgspec.json.encode(Workload(topic=topic, partitions=partitions))
        await self.store.commit(apply=[Put(workload_key(topic), value)])

    async def run_ms(self, duration_ms: int) -> None:
        await self.clock.run_for_ms(duration_ms)

    async def run_until(self, condition: Callable[[], bool], *, within_ms: int = FAKE_WAIT_MS) -> None:
        """Let time pass until the condition holds; fail if it never does."""
        await until_in_fake_time(self.clock, condition, within_ms=within_ms)

    def owners(self) -> dict[str, list[str]]:
        """Resource → who serves it now."""
        found: dict[str, list[str]] = {}
        for agent in self.agents.values():
            for resource in agent.owns():
                found.setdefault(resource, []).append(agent.name)
        return found
