"""A real broker, a real ClickHouse over HTTP, and a service between them."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from tests.support.server_process import ServeProcess, create_topic, produce

from holdfast.contracts.store import Store
from holdfast.pipeline.model.definition import Pipeline, registry_namespace
from holdfast.pipeline.service.service import PipelineService
from holdfast.pipeline.service.settings import ServiceSettings
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

MAPPING: dict[str, Any] = {
    "columns": [
        {"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False},
        {"fieldPath": "amount", "column": "amount", "type": "Decimal(9, 2)", "nullable": True},
    ]
}
DEFAULTS = ServiceSettings()


class PipelineServiceHarness:
    """What a test of the service needs, under names of its own."""

    def __init__(self, store: Store, node: ServeProcess, clickhouse: ClickHouseServer) -> None:
        self.store, self.node, self.clickhouse = store, node, clickhouse
        self.clock, self.random = RealClock(), SystemRandom()
        self.name = f"t{self.random.token()[:12]}"
        self.service = self.another()

    def another(self, settings: ServiceSettings = DEFAULTS, store: Store | None = None) -> PipelineService:
        """A service as another process would have it."""
        return PipelineService(
            store or self.store,
            clock=self.clock,
            random=self.random,
            bootstrap=self.node.kafka,
            embedded=self.clickhouse.url,
            settings=settings,
        )

    async def topic(self, *values: str, partitions: int = 2, partition: int = 0) -> str:
        await asyncio.to_thread(create_topic, self.node.kafka, self.name, partitions)
        if values:
            await self.send(*values, partition=partition)
        return self.name

    async def send(self, *values: str, partition: int = 0) -> list[int]:
        return await asyncio.to_thread(lambda: produce(self.node.kafka, self.name, *values, partition=partition))

    async def pipeline(self, mapping: dict[str, Any] | None = None, **parts: Any) -> Pipeline:
        """A complete pipeline from the topic into a table of the same name."""
        made = await self.service.catalog.create(f"pipeline {self.name}")
        given = {"source": {"topic": self.name}, "sink": {"table": self.name}, "mapping": mapping or MAPPING, **parts}
        done, _ = await self.service.catalog.put_parts(made.id, given)
        return done

    async def ask(self, statement: str) -> str:
        """A statement's answer as text."""
        return (await asyncio.to_thread(self.clickhouse.query, statement)).decode().strip()

    async def registry(self, pipeline: Pipeline, generation: int, partitions: int = 2) -> RegistryStore:
        """The progress of a generation, as a worker would have made it."""
        settings = RegistrySettings(namespace=registry_namespace(pipeline.id, generation), partitions=partitions)
        made = RegistryStore(self.store, clock=self.clock, random=self.random, settings=settings)
        await made.initialize()
        return made

    async def progress(self, registry: RegistryStore, checkpoints: Iterable[int]) -> None:
        """Claim each partition, move its checkpoint, and let it go."""
        for number, offset in enumerate(checkpoints):
            state = await registry.partition(number)
            assert state is not None
            assert await registry.claim(number, "run", state.epoch)
            assert await registry.update_checkpoint(number, "run", offset, state.epoch + 1)
            assert await registry.release(number, "run", state.epoch + 1)

    async def refuse(
        self, pipeline: Pipeline, *letters: tuple[int, int, str, str], generation: int = 1, revision: int = 1
    ) -> None:
        """Rows of the DLQ as the sink writes them: partition, offset, payload, reason."""
        from holdfast.pipeline.sinks.clickhouse import statements

        await self.ask(statements.create_dlq("default", self.name, 1_000))
        rows = [
            {
                "_pipeline": pipeline.id,
                "_generation": generation,
                "_topic": self.name,
                "_partition": partition,
                "_offset": offset,
                "recipe": revision,
                "reason": reason,
                "key": None,
                "payload": payload,
            }
            for partition, offset, payload, reason in letters
        ]
        lines = "\n".join(msgspec.json.encode(row).decode() for row in rows)
        await self.ask(f"INSERT INTO default.{self.name}_dlq FORMAT JSONEachRow {lines}")
