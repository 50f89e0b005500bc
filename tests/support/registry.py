"""Registries, consumers and coordinators on one engine's store, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from tests.support.store_engines.memory import MemoryStoreHarness

from holdfast.contracts.store import Store
from holdfast.registry import (
    Assignment,
    ConsumerCoordinator,
    ConsumerEngine,
    ConsumerInfo,
    DeliveryFailure,
    EngineSettings,
    Handler,
    MessageSource,
    PartitionQueues,
    RegistrySettings,
    RegistryStore,
    RegistryView,
    SimpleProducer,
)
from holdfast.stores.memory import MemoryStore
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import Clock, FakeClock, RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.tasks import background_tasks

LONG_TTL_MS = 30_000
Result = TypeVar("Result")


class RegistryWorld:
    """One engine's store, and registries, consumers and coordinators on it."""

    def __init__(self, harness: StoreHarness, store: Store, clock: Clock | None = None) -> None:
        self.harness, self.store = harness, store
        self.clock, self.random = clock or RealClock(), SystemRandom()
        self.settings = RegistrySettings(partitions=8, ttl_ms=LONG_TTL_MS, settle_ms=0)
        self.queues = PartitionQueues(8)
        self.producer = SimpleProducer(self.queues, clock=self.clock)
        self.failures: list[DeliveryFailure] = []

    @property
    def short_ttl_ms(self) -> int:
        """The shortest TTL that a busy machine still keeps alive and that does not make a test long."""
        return max(self.harness.ttl_ms_min, 600)

    def registry(self, store: Store | None = None, **settings: object) -> RegistryStore:
        changed = replace(self.settings, **settings)  # type: ignore[arg-type]
        return RegistryStore(store or self.store, clock=self.clock, random=self.random, settings=changed)

    async def initialized(self, store: Store | None = None, **settings: object) -> RegistryStore:
        registry = self.registry(store, **settings)
        await registry.initialize()
        return registry

    def coordinator(self, registry: RegistryStore) -> ConsumerCoordinator:
        return ConsumerCoordinator(registry, clock=self.clock, random=self.random)

    def engine(
        self,
        registry: RegistryStore,
        consumer: str,
        handler: Handler,
        *,
        source: MessageSource | None = None,
        **settings: int,
    ) -> ConsumerEngine:
        return ConsumerEngine(
            registry,
            consumer,
            source=source or self.queues,
            handler=handler,
            clock=self.clock,
            random=self.random,
            settings=EngineSettings(**{"drain_ms": 500, "retry_base_ms": 1, "retry_max_ms": 2, **settings}),
            on_failure=self.failures.append,
        )

    async def until_view(
        self, registry: RegistryStore, condition: Callable[[RegistryView], bool], *, within_s: float = 30
    ) -> None:
        """Wait until the condition holds for the registry."""
        async with asyncio.timeout(within_s), aclosing(registry.watch(checkpoints=True)) as views:
            async for view in views:
                if condition(view):
                    return


async def in_time(attempt: Callable[[], Awaitable[Result]], *, within_s: float = 30) -> Result:
    """What an attempt gives that takes no longer than its TTL, as it may on a busy machine: then it is made again."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await attempt()
            except UnavailableError as refused:
                if "longer than its TTL" not in str(refused):
                    raise


@asynccontextmanager
async def world_in_fake_time() -> AsyncIterator[RegistryWorld]:
    """One in which time passes with the turns of the event loop: however busy the machine, nothing expires that is renewed."""
    clock = FakeClock()

    async def pass_time() -> None:
        while True:
            await clock.run_for_ms(10, step_ms=10)

    async with MemoryStore.open(clock=clock, random=SystemRandom()) as store, background_tasks(pass_time()):
        yield RegistryWorld(MemoryStoreHarness(store), store, clock)


class RecordingConsumer:
    """A consumer that only records its calls, in a list that several may share."""

    def __init__(self, info: ConsumerInfo, calls: list[tuple[str, str, int, int]]) -> None:
        self.consumer, self._info, self.calls = info.id, info, calls
        self.left = False

    @property
    def session(self) -> str | None:
        return None if self.left else self._info.session

    async def assign(self, assignment: Assignment) -> None:
        self.calls.append(("assign", self.consumer, assignment.partition, assignment.epoch))

    async def revoke(self, assignment: Assignment, *, lost: bool) -> None:
        self.calls.append(("lost" if lost else "revoke", self.consumer, assignment.partition, assignment.epoch))

    async def leave(self) -> None:
        self.left = True
