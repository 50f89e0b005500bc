"""Consumers with a rack read every partition, also those that are led in another zone; where there is a replica, from that."""

import asyncio
from pathlib import Path

import pytest
from tests.support.clients.readers import READERS
from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import gateway_of
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings

PARTITIONS = 2


CLIENTS = pytest.mark.parametrize(
    "client", ["librdkafka", pytest.param("java", marks=[pytest.mark.timeout(300), pytest.mark.xdist_group("java")])]
)


@CLIENTS
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


def in_sync(cluster: LocalCluster) -> bool:
    """Whether both agents keep the tails of all partitions."""
    led = [each for node in cluster.nodes for each in node.agent.log.leading.values()]
    return len(led) == PARTITIONS and all(len(each.record.in_sync) == 2 for each in led)


@CLIENTS
async def test_a_consumer_with_a_rack_reads_unpublished_records_from_the_replica_of_its_zone(
    tmp_path: Path, client: str
) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.streams = True
    try:
        async with (
            asyncio.timeout(120),
            gateway_of(cluster, "ann", KafkaSettings(), zone="a") as ann,
            gateway_of(cluster, "bob", KafkaSettings(), zone="b") as bob,
        ):
            config = {"durability": "quorum", "replication_factor": 2}
            await ann.backend.log.create_topic("orders", PARTITIONS, config)
            await async_until(lambda: ann.node.leads() and bob.node.leads() and in_sync(cluster))
            async with READERS[client](ann, "orders", PARTITIONS, rack="b") as read:
                for turn in range(3):
                    values = {f"{turn} of {number}" for number in range(PARTITIONS)}
                    for number in range(PARTITIONS):
                        await cluster.produce("orders", number, f"{turn} of {number}")
                    await async_until(lambda values=values: values <= set(read))  # type: ignore[misc]
                await async_until(lambda: bob.node.agent.replicas.counters.fetches > 0)
            assert ann.node.agent.replicas.counters.fetches == 0  # bob's partition is read from its leader
            once = [f"{turn} of {number}" for turn in range(3) for number in range(PARTITIONS)]
            assert sorted(each for each in read if " of " in each) == once
    finally:
        await cluster.end()
