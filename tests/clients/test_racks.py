"""Consumers with a rack read every partition, also those that are led in another zone."""

import asyncio
from pathlib import Path

import pytest
from tests.support.clients.readers import READERS
from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import gateway_of
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings

PARTITIONS = 2


@pytest.mark.parametrize(
    "client", ["librdkafka", pytest.param("java", marks=[pytest.mark.timeout(300), pytest.mark.xdist_group("java")])]
)
async def test_a_consumer_with_a_rack_reads_what_is_led_in_another_zone(tmp_path: Path, client: str) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with (
            asyncio.timeout(120),
            gateway_of(cluster, "ann", KafkaSettings(), zone="a") as ann,
            gateway_of(cluster, "bob", KafkaSettings(), zone="b") as bob,
        ):
            await ann.backend.log.create_topic("orders", PARTITIONS)
            await async_until(lambda: ann.node.leads() and bob.node.leads())
            for number in range(PARTITIONS):
                await cluster.produce("orders", number, f"published {number}")
                leader = cluster.leader(number)
                assert leader is not None
                await leader.service.flush("orders", number)
            async with READERS[client](bob, "orders", PARTITIONS, rack="b") as read:
                await async_until(lambda: {f"published {number}" for number in range(PARTITIONS)} <= set(read))
                for number in range(PARTITIONS):
                    await cluster.produce("orders", number, f"new {number}")
                await async_until(lambda: {f"new {number}" for number in range(PARTITIONS)} <= set(read))
    finally:
        await cluster.end()
