"""The demo: three consumers, 100 messages, one consumer leaves, 50 more. Yields what the registry looks like on the way.

It makes a namespace of its own in the store it is given and removes it at the end, so that it may run anywhere, twice.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from holdfast.contracts.store import Store
from holdfast.registry.coordinator import ConsumerCoordinator
from holdfast.registry.engine import ConsumerEngine
from holdfast.registry.model import PartitionState
from holdfast.registry.queues import PartitionQueues, SimpleConsumer, SimpleProducer
from holdfast.registry.settings import RegistrySettings
from holdfast.registry.store import RegistryStore
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPhase:
    """One look at the registry: its partitions, and how many messages each consumer has processed so far."""

    phase: str
    partitions: tuple[PartitionState, ...]
    processed: dict[str, int]


async def run_demo(
    store: Store, *, clock: Clock, random: Random, settings: RegistrySettings | None = None
) -> AsyncGenerator[DemoPhase, None]:
    """The phases: initial assignment, 100 messages, A removed, rebalance, final. Close it (`contextlib.aclosing`)."""
    wanted = settings or RegistrySettings(partitions=8)
    wanted = replace(wanted, namespace=f"{wanted.namespace}-demo-{random.token()}")
    registry = RegistryStore(store, clock=clock, random=random, settings=wanted)
    await registry.initialize()
    queues = PartitionQueues(wanted.partitions)
    producer = SimpleProducer(queues, clock=clock)
    handlers = {name: SimpleConsumer() for name in ("A", "B", "C")}
    coordinator = ConsumerCoordinator(registry, clock=clock, random=random)

    async def look(phase: str) -> DemoPhase:
        processed = {name: handler.processed.total() for name, handler in handlers.items()}
        return DemoPhase(phase=phase, partitions=await registry.partitions(), processed=processed)

    async with _removed_at_end(registry), AsyncExitStack() as running:
        engines = {}
        for name, handler in handlers.items():
            engine = ConsumerEngine(registry, name, source=queues, handler=handler, clock=clock, random=random)
            engines[name] = await running.enter_async_context(engine.running())
            await coordinator.add_consumer(engine)
        await coordinator.tick()
        yield await look("initial assignment")

        for number in range(100):
            producer.send(f"account-{number}", b"deposit")
        await _processed(registry, 100)
        yield await look("100 messages")

        await coordinator.remove_consumer(engines["A"])
        yield await look("A removed")

        await coordinator.tick()
        yield await look("rebalance")

        for number in range(100, 150):
            producer.send(f"account-{number}", b"withdrawal")
        await _processed(registry, 150)
        yield await look("final")


@asynccontextmanager
async def _removed_at_end(registry: RegistryStore) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await registry.remove()


async def _processed(registry: RegistryStore, total: int) -> None:
    """Return once the checkpoints add up to `total`."""
    async with aclosing(registry.watch(checkpoints=True)) as views:
        async for view in views:
            if sum(state.checkpoint for state in view.partitions.values()) >= total:
                return
