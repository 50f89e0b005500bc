"""A pipeline's whole life on a real server with a real worker and Spark: rows, replay, rewind, backfill, the end. The long form."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.server_process import ServeProcess, create_topic, produce, started
from tests.support.waiting import async_until

from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.service.service import PipelineService
from holdfast.stores.urls import open_store
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

STRICT = {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False}]}
LENIENT = {"columns": [{"fieldPath": "n", "column": "id", "type": "Int64", "nullable": False}]}
PER_PARTITION = 300
LIFE_S = 600


def payload(number: int) -> str:
    return f'{{"id": {number if number % 50 else chr(34) + "bad" + chr(34)}, "n": {number}}}'


async def test_a_pipeline_from_creation_to_deletion(tmp_path: Path, clickhouse: ClickHouseServer) -> None:
    clock, random = RealClock(), SystemRandom()

    async def ask(query: str) -> str:
        return (await asyncio.to_thread(clickhouse.query, f"{query} FORMAT TSV")).decode().strip()

    async def shape() -> str:
        return await ask("SELECT count(), uniqExact(_partition, _offset), sum(id) FROM default.orders")

    node = ServeProcess(tmp_path / "node", "--clickhouse", clickhouse.url, "--worker-interval", "1000")
    with started(node):
        create_topic(node.kafka, "orders", 2)
        for partition in (0, 1):
            produce(node.kafka, "orders", *map(payload, range(PER_PARTITION)), partition=partition)
        url = f"sqlite:///{node.data / 'store.db'}"
        async with open_store(url, clock=clock, random=random) as store:
            service = PipelineService(store, clock=clock, random=random, bootstrap=node.kafka, embedded=clickhouse.url)
            made = await service.catalog.create("orders")
            parts: dict[str, dict[str, Any]] = {
                "source": {"topic": "orders"},
                "sink": {"table": "orders", "batchFlushIntervalMs": 100},
            }
            await service.catalog.put_parts(made.id, {**parts, "mapping": STRICT})
            await service.start(made.id)

            async def read_all() -> bool:
                found = (await service.status(made.id)).partitions
                return len(found) == 2 and all(each.checkpoint == PER_PARTITION for each in found)

            await async_until(read_all, within_s=LIFE_S, pause_ms=200)
            whole = 2 * sum(range(PER_PARTITION))
            bad = 2 * sum(range(0, PER_PARTITION, 50))
            assert await shape() == f"{2 * PER_PARTITION - 12}\t{2 * PER_PARTITION - 12}\t{whole - bad}"
            assert (await service.dead_letters.count(made.id)).waiting == 12
            with pytest.raises(NotReadyError):
                await service.reprocessing.rewind(made.id, {0: 5})

            await service.catalog.put_part(made.id, "mapping", LENIENT)
            assert (await service.dead_letters.replay(made.id)).stored == 12
            assert (await service.dead_letters.replay(made.id)).stored == 0
            exact = f"{2 * PER_PARTITION}\t{2 * PER_PARTITION}\t{whole}"
            assert await shape() == exact

            _, fresh = await service.reprocessing.rewind(made.id, {0: 100, 1: 50}, delete_previous=True)

            async def replaced() -> bool:
                await service.maintain()
                return not (await service.catalog.get(made.id)).generations[-1].delete_previous

            await async_until(replaced, within_s=LIFE_S, pause_ms=200)
            assert await read_all()
            assert await shape() == exact
            generations = await ask("SELECT _generation, count() FROM default.orders GROUP BY ALL ORDER BY ALL")
            assert generations == f"1\t150\n{fresh.number}\t{2 * PER_PARTITION - 150}"

            _, backfill = await service.reprocessing.backfill(made.id, {0: 10}, {0: 20})

            async def filled() -> bool:
                return all(
                    each.retired for each in (await service.catalog.get(made.id)).generations if each.number == 3
                )

            await async_until(filled, within_s=LIFE_S, pause_ms=200)
            mine = (
                f"SELECT count(), min(_offset), max(_offset) FROM default.orders WHERE _generation = {backfill.number}"
            )
            assert await ask(mine) == "10\t10\t19"

            await service.stop(made.id)

            async def let_go() -> bool:
                return (await service.status(made.id)).state == "stopped" and not await service.assignments(made.id)

            await async_until(let_go, within_s=LIFE_S, pause_ms=200)
            await service.catalog.delete(made.id)
            assert await service.catalog.list() == []
            assert (await shape()).startswith(f"{2 * PER_PARTITION + 10}\t"), "the table stays"
