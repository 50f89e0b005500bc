"""Fetches of consumers with a rack at a replica of their zone: what the leader has acknowledged, published or not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import FETCH, KafkaGateway, WireClient, fetch_request, gateway_of
from tests.support.partitions import records
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.topics import Topic
from holdfast.vocabulary.types import TopicPartition

QUORUM = {"durability": "quorum", "replication_factor": 3}
NOBODY = -1


class Zones:
    """Three agents, one in each zone, and a topic of one partition that all of them keep."""

    def __init__(self, cluster: LocalCluster, gateways: dict[str, KafkaGateway]) -> None:
        self.cluster, self.gateways = cluster, gateways

    @property
    def leader(self) -> str:
        """The zone of the leader; "" while there is none."""
        return next((zone for zone, gateway in self.gateways.items() if 0 in gateway.node.leads()), "")

    @property
    def follower(self) -> str:
        return next(zone for zone in self.gateways if zone != self.leader)

    async def fetch(self, zone: str, offset: int, *, rack: str, epoch: int = -1, wait_ms: int = 0) -> Any:
        client: WireClient = await self.gateways[zone].client()
        request = fetch_request("orders", {0: offset}, rack=rack, wait_ms=wait_ms, leader_epoch=epoch)
        answer = await client.ask(FETCH, 12, request)
        return answer.responses[0].partitions[0]

    def in_sync(self) -> int:
        """How many replicas keep up."""
        if not self.leader:
            return 0
        led = self.gateways[self.leader].node.agent.log.leading[TopicPartition("orders", 0)]
        return len(led.record.in_sync)

    async def produce(self, *values: str) -> None:
        for value in values:
            await self.cluster.produce("orders", 0, value)


def values(found: Any) -> list[str]:
    return [value for _, value in records([bytes(found.records)])] if found.records else []


def shown_in_sync(gateway: KafkaGateway, topic: Topic) -> int:
    """How many replicas keep up as this node shows it: its view of the cluster lags behind the store."""
    replicas = gateway.backend.cluster.replicas(topic.id, 0)
    return 0 if replicas is None else len(replicas.in_sync)


@pytest.fixture
async def zones(tmp_path: Path) -> AsyncIterator[Zones]:
    cluster = LocalCluster(tmp_path)
    cluster.streams = True
    try:
        async with AsyncExitStack() as stack:
            gateways = {
                zone: await stack.enter_async_context(
                    gateway_of(cluster, name, KafkaSettings(), zone=zone, replica=ReplicaSettings(lag_ms=60_000))
                )
                for zone, name in (("a", "ann"), ("b", "bob"), ("c", "carol"))
            }
            made = Zones(cluster, gateways)
            topic = await gateways["a"].backend.log.create_topic("orders", 1, QUORUM)
            await async_until(lambda: made.in_sync() == 3)
            await async_until(lambda: all(shown_in_sync(each, topic) == 3 for each in gateways.values()))
            yield made
    finally:
        await cluster.end()


async def found_at(zones: Zones, zone: str, expected: list[str]) -> bool:
    return values(await zones.fetch(zone, 0, rack=zone)) == expected


async def test_a_consumer_is_sent_to_the_replica_of_its_zone_and_reads_unpublished_records_there(zones: Zones) -> None:
    await zones.produce("one", "two")
    follower, leader = zones.follower, zones.leader
    node = zones.gateways[follower].node.agent.member
    assert node is not None
    for offset in (0, 2):  # behind, and at the end
        sent = await zones.fetch(leader, offset, rack=follower)
        assert (sent.preferred_read_replica, values(sent)) == (node.node, [])
    at_home = await zones.fetch(leader, 0, rack=leader)
    assert (at_home.preferred_read_replica, values(at_home)) == (NOBODY, ["one", "two"])
    await async_until(partial(found_at, zones, follower, ["one", "two"]))
    refused = await zones.fetch(follower, 0, rack="")  # who was not sent here
    assert refused.error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER
    beyond = await zones.fetch(follower, 7, rack=follower)
    assert (beyond.error_code.value, values(beyond)) == (ErrorCode.NONE, [])
    newer = await zones.fetch(follower, 0, rack=follower, epoch=99)
    assert newer.error_code.value == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_log_dirs_list_replicas_with_what_they_keep_and_how_far_they_are_behind(zones: Zones) -> None:
    await zones.produce("one", "two")
    gateway = zones.gateways[zones.follower]
    key = (bytes.fromhex(gateway.backend.cluster.topics[0].id), 0)
    hosted = gateway.node.agent.replicas.get(key)
    assert hosted is not None
    await async_until(lambda: hosted.visible.value == 2)
    client = await gateway.client()
    answer = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, {"topics": None})
    (listed,) = answer.results[0].topics[0].partitions
    assert (listed.partition_size, listed.offset_lag, listed.is_future_key) == (hosted.size_bytes, 0, False)
    assert listed.partition_size > 0


async def test_a_long_poll_at_a_replica_ends_when_the_leader_acknowledges_something(zones: Zones) -> None:
    await zones.produce("one")
    follower = zones.follower
    await async_until(partial(found_at, zones, follower, ["one"]))
    waiting = asyncio.ensure_future(zones.fetch(follower, 1, rack=follower, wait_ms=60_000))
    await zones.produce("two")
    assert values(await waiting) == ["two"]


async def test_a_replica_reads_what_is_published_and_what_is_not(zones: Zones) -> None:
    await zones.produce("one", "two")
    await zones.gateways[zones.leader].backend.log.flush("orders", 0)
    await zones.produce("three")
    follower = zones.follower
    await async_until(lambda: _visible(zones, follower) == 3)
    found: list[str] = []
    while len(found) < 3:
        found += values(await zones.fetch(follower, len(found), rack=follower, wait_ms=30_000))
    assert found == ["one", "two", "three"]


def _visible(zones: Zones, zone: str) -> int:
    [hosted] = zones.gateways[zone].node.agent.replicas.replicas
    return hosted.visible.value
