"""A cluster with pipelines, as a worker prepares it for a driver: topics, revisions, claims."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from confluent_kafka import Producer
from tests.support.broker import Broker
from tests.support.waiting import until

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import loop_thread, run
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.slot_context import DriverResources
from holdfast.pipeline.driver.slot_processor import SlotProcessor
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.streaming.stream_processor import StreamProcessor
from holdfast.pipeline.model.definition import Pipeline, registry_namespace
from holdfast.pipeline.model.driver_protocol import RunSlot
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.spark.clusters import discover_urls
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

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
class DriverCluster:
    broker: Broker
    cluster_address: ClusterAddress
    store: Store
    clock: RealClock = field(default_factory=RealClock)
    random: SystemRandom = field(default_factory=SystemRandom)
    works: list[SlotProcessor | StreamProcessor] = field(default_factory=list)

    @property
    def catalog(self) -> PipelineStore:
        return PipelineStore(self.store, clock=self.clock, random=self.random)

    def topic(self, partitions: int = 1) -> str:
        return self.broker.create_topic("source", partitions)

    def produce(self, topic: str, values: Iterable[bytes | None], *, partition: int = 0) -> None:
        self.produce_keyed(topic, ((None, value) for value in values), partition=partition)

    def produce_keyed(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], *, partition: int = 0
    ) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20})
        for key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition)
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
        settings = RegistrySettings(namespace=registry_namespace(pipeline.id, generation), partitions=partitions)
        registry = RegistryStore(self.store, clock=self.clock, random=self.random, settings=settings)
        run(registry.initialize())
        return registry

    def claim(self, registry: RegistryStore, consumer: str, numbers: Iterable[int]) -> dict[int, int]:
        """As a worker claims: former owners are released."""

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

    def resources(
        self,
        jobs: SparkJobs,
        *,
        embedded: str = "",
        settings: DriverSettings = SETTINGS,
        sink_roots: tuple[str, ...] = (),
        python_queries: bool = False,
    ) -> DriverResources:
        return DriverResources(
            jobs=jobs,
            store=self.store,
            cluster_address=self.cluster_address,
            embedded=embedded,
            settings=settings,
            clock=self.clock,
            random=self.random,
            sink_roots=sink_roots,
            python_queries=python_queries,
        )

    def work(
        self, jobs: SparkJobs, pipeline: Pipeline, consumer: str, *, generation: int = 1, embedded: str = ""
    ) -> SlotProcessor:
        said = RunSlot(slot=consumer, pipeline_id=pipeline.id, generation=generation)
        made = SlotProcessor(said, self.resources(jobs, embedded=embedded), lambda: True)
        self.works.append(made)
        return made

    def close_works(self) -> None:
        """As a slot does at its end: a client that is dropped instead of closed waits for its session."""
        while self.works:
            self.works.pop().close()

    def checkpoint(self, registry: RegistryStore, number: int) -> int:
        return run(registry.checkpoint(number))


def open_driver_cluster(broker: Broker, address: ClusterAddress | None = None) -> tuple[DriverCluster, Any]:
    """A world, and what closes its store. Without an `address`, what the brokers advertise."""
    cluster_address = address or discover_urls(ClusterAddress(bootstrap=broker.bootstrap), contact_ms=None)
    context = open_store(cluster_address.store, clock=RealClock(), random=SystemRandom())
    store = loop_thread().submit(context.__aenter__()).result()
    return DriverCluster(
        broker, cluster_address, store
    ), lambda: loop_thread().submit(context.__aexit__(None, None, None)).result()


def drain(work: SlotProcessor, claims: dict[int, int], reached: dict[int, int]) -> None:
    """Let a slot work until its positions are these."""

    def is_reached() -> bool:
        work.turn(claims)
        return reached.items() <= positions().items()

    def positions() -> dict[int, int]:
        return {number: owned.position for number, owned in work.owned.items()}

    until(is_reached, what=lambda: f"at {positions()}, expected {reached}; blocked: {work.blocked}")


class RealClockPause:
    @staticmethod
    def wait(seconds: float) -> None:
        import threading

        threading.Event().wait(seconds)


def line(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"
