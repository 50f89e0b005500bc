"""Clients of a partition that no agent can open: they wait without hammering, read the others, and go on when it is back."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.clients.readers import READERS
from tests.support.kafka_wire import gateway_of
from tests.support.offline_partition import PARTITIONS, TOPIC, Outage, ann_crashed
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings

REQUESTS_PER_S_MAX = (
    60  # of one reader: long polls of the two that are led, and Metadata; in vain they would be hundreds
)
LOOK_MS = 2_000


async def requests_per_s(world: Outage) -> float:
    """The requests of all clients, over a while that may last longer on a busy machine."""
    clock, before = world.cluster.clock, world.requests
    began_ms = clock.boot_ms()
    await clock.sleep_ms(LOOK_MS)
    return (world.requests - before) / (clock.boot_ms() - began_ms) * 1_000


@pytest.mark.parametrize(
    "client", ["librdkafka", pytest.param("java", marks=[pytest.mark.timeout(300), pytest.mark.xdist_group("java")])]
)
async def test_a_reader_waits_for_an_offline_partition_and_goes_on(tmp_path: Path, client: str) -> None:
    async with ann_crashed(tmp_path) as world, READERS[client](world.other(), TOPIC, PARTITIONS) as read:
        served = {f"record {number}" for number in range(PARTITIONS) if number != world.number}
        await async_until(lambda: served <= set(read))
        assert await requests_per_s(world) < REQUESTS_PER_S_MAX
        async with gateway_of(world.cluster, "ann", KafkaSettings()):
            await async_until(lambda: "only here" in read)
        assert sorted(set(read) - {"reading"}) == sorted({"only here", f"record {world.number}", *served})


async def test_a_producer_waits_for_an_offline_partition_and_its_records_arrive(tmp_path: Path) -> None:
    async with ann_crashed(tmp_path) as world:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{world.other().port}", "log_level": 0})
        delivered: list[object] = []
        producer.produce(
            TOPIC, b"later", partition=world.number, on_delivery=lambda error, message: delivered.append(error)
        )
        producer.poll(0)
        assert await requests_per_s(world) < REQUESTS_PER_S_MAX
        assert not delivered
        async with gateway_of(world.cluster, "ann", KafkaSettings()):
            assert await asyncio.to_thread(producer.flush, 60) == 0
        assert delivered == [None]
