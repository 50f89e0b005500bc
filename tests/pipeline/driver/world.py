"""A cluster with pipelines in it, as a worker would leave it to a driver: topics, recipes, claims."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from confluent_kafka import Producer
from tests.clients.broker import Broker

from holdfast.contracts.store import Store
from holdfast.kernel.registry import RegistrySettings, RegistryStore
from holdfast.pipeline.catalog import PipelineStore
from holdfast.pipeline.driver.jobs import Jobs
from holdfast.pipeline.driver.messages import Run
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.work import SlotWork, Tools
from holdfast.pipeline.nouns import Pipeline, registry_of
from holdfast.spark.reach import Reach
from holdfast.spark.reading.loop import loop_thread, run
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealChance, RealClock

MAPPING = {
    "columns": [
        {"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False},
        {"fieldPath": "name", "column": "name", "type": "String", "nullable": True},
        {"fieldPath": "amount", "column": "amount", "type": "Float64", "nullable": True},
    ]
}
SETTINGS = DriverSettings(poll_ms=20, retry_base_ms=20, retry_max_ms=200, refresh_ms=10, margin_ms=500)


def event(number: int) -> bytes:
    return b'{"id": %d, "name": "n%d", "amount": %d.5}' % (number, number % 7, number)


@dataclass
class World:
    broker: Broker
    reach: Reach
    store: Store
    clock: RealClock = field(default_factory=RealClock)
    chance: RealChance = field(default_factory=RealChance)
    works: list[SlotWork] = field(default_factory=list)

    @property
    def catalog(self) -> PipelineStore:
        return PipelineStore(self.store, clock=self.clock, chance=self.chance)

    def topic(self, partitions: int = 1) -> str:
        return self.broker.create_topic("source", partitions)

    def produce(self, topic: str, values: Iterable[bytes | None], *, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20})
        for value in values:
            producer.produce(topic, value=value, partition=partition)
            producer.poll(0)
        assert producer.flush(30) == 0

    def pipeline(self, topic: str, sink: dict[str, Any], **parts: Any) -> Pipeline:
        async def make() -> Pipeline:
            made = await self.catalog.create(self.broker.unique("pipeline"))
            given = {"source": {"topic": topic}, "sink": sink, "mapping": MAPPING, **parts}
            await self.catalog.put_parts(made.id, given)
            return await self.catalog.set_state(made.id, desired="started")

        return run(make())

    def registry(self, pipeline: Pipeline, partitions: int, generation: int = 1) -> RegistryStore:
        settings = RegistrySettings(namespace=registry_of(pipeline.id, generation), partitions=partitions)
        registry = RegistryStore(self.store, clock=self.clock, chance=self.chance, settings=settings)
        run(registry.initialize())
        return registry

    def claim(self, registry: RegistryStore, consumer: str, numbers: Iterable[int]) -> dict[int, int]:
        """As a worker claims: whoever had them is out."""

        async def claimed() -> dict[int, int]:
            epochs = {}
            for number in numbers:
                state = await registry.partition(number)
                assert state is not None
                if state.owner is not None:
                    await registry.release(number, state.owner, state.epoch)
                    state = await registry.partition(number)
                    assert state is not None
                assert await registry.claim(number, consumer, state.epoch)
                epochs[number] = state.epoch + 1
            return epochs

        return run(claimed())

    def tools(self, jobs: Jobs, *, embedded: str = "", settings: DriverSettings = SETTINGS) -> Tools:
        return Tools(
            jobs=jobs,
            store=self.store,
            reach=self.reach,
            embedded=embedded,
            settings=settings,
            clock=self.clock,
            chance=self.chance,
        )

    def work(
        self, jobs: Jobs, pipeline: Pipeline, consumer: str, *, generation: int = 1, embedded: str = ""
    ) -> SlotWork:
        said = Run(slot=consumer, pipeline_id=pipeline.id, generation=generation)
        self.works.append(SlotWork(said, self.tools(jobs, embedded=embedded), lambda: True))
        return self.works[-1]

    def close_works(self) -> None:
        """As a slot does at its end: a client that is dropped instead of closed waits for its session."""
        while self.works:
            self.works.pop().close()

    def checkpoint(self, registry: RegistryStore, number: int) -> int:
        return run(registry.checkpoint(number))


def opened_world(broker: Broker) -> tuple[World, Any]:
    """A world, and what closes its store."""
    reach = Reach(bootstrap=broker.bootstrap).learned()
    context = open_store(reach.store, clock=RealClock(), chance=RealChance())
    store = loop_thread().submit(context.__aenter__()).result()
    return World(broker, reach, store), lambda: loop_thread().submit(context.__aexit__(None, None, None)).result()


def drain(work: SlotWork, claims: dict[int, int], reached: dict[int, int], *, turns_max: int = 200) -> None:
    """Let a slot work until its positions are these."""
    for _ in range(turns_max):
        work.step(claims)
        if all(number in work.held and work.held[number].position == end for number, end in reached.items()):
            return
        RealPause.wait(0.02)
    at = {number: held.position for number, held in work.held.items()}
    raise AssertionError(f"at {at}, wanted {reached}; blocked: {work.blocked}")


class RealPause:
    @staticmethod
    def wait(seconds: float) -> None:
        import threading

        threading.Event().wait(seconds)


def line(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"
