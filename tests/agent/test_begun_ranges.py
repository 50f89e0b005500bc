"""Retention and deletion stop where somebody has begun a range, and go on when it is finished."""

from dataclasses import replace

import msgspec
import pytest
from tests.support.cluster import LocalCluster
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.kafka.special_offsets import EARLIEST
from holdfast.log.errors import PendingRangeError
from holdfast.log.maintenance import MaintenanceSettings
from holdfast.log.maintenance.pending_ranges import PendingRanges
from holdfast.log.model import PartitionId
from holdfast.log.service import LogService
from holdfast.pipeline.model.definition import RangeIntent, registry_namespace
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.types import TopicPartition

ORDERS = PartitionId(topic="orders", topic_id="1", number=0)
OFTEN = MaintenanceSettings(retention_interval_ms=20, grace_ms=0)


async def begun(cluster: LocalCluster, topic: str = "orders", topic_id: str = "") -> RegistryStore:
    """A pipeline that has begun offsets 2 to 4 of partition 0."""
    registry = RegistryStore(
        cluster.store,
        clock=cluster.clock,
        random=cluster.random,
        settings=RegistrySettings(namespace=registry_namespace("p", 1), partitions=2),
    )
    await registry.initialize()
    assert await registry.claim(0, "worker", 0)
    intent = msgspec.json.encode(RangeIntent(start=2, end=4, revision=1, topic=topic, topic_id=topic_id)).decode()
    assert await registry.begin_range(0, "worker", 1, intent)
    return registry


async def start_of(service: LogService, partition: int) -> int:
    found = await service.offset_for_timestamp("orders", partition, EARLIEST)
    assert found is not None
    return found.offset


async def test_retention_waits_for_a_begun_range_and_for_no_longer(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann", upkeep=OFTEN)
    registry = await begun(cluster)
    await ann.service.create_topic("orders", 2, {"retention_ms": 1})
    await async_until(lambda: len(ann.agent.leading) == 2)
    for partition in (0, 1):
        for _ in range(3):
            await ann.service.produce("orders", partition, batch("a", "b", at_ms=1_000))
            await ann.service.flush("orders", partition)
    led = ann.agent.log.leading
    await async_until(lambda: led[TopicPartition("orders", 1)].record.start == 6)
    await ann.service.produce("orders", 1, batch("c", at_ms=1_000))
    await ann.service.flush("orders", 1)
    await async_until(lambda: led[TopicPartition("orders", 1)].record.start == 7)  # a whole round has gone over both
    assert await start_of(ann.service, 0) == 2
    assert await registry.update_checkpoint(0, "worker", 4, 1)
    await async_until(lambda: led[TopicPartition("orders", 0)].record.start == 6)


async def test_records_of_a_begun_range_are_not_deleted_on_demand(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 2)
    await async_until(lambda: len(ann.agent.leading) == 2)
    await ann.service.produce("orders", 0, batch("a", "b", "c", "d", "e"))
    registry = await begun(cluster)
    with pytest.raises(PendingRangeError, match="at most 2, from where a pipeline reads"):
        await ann.service.delete_records("orders", 0, 3)
    assert await ann.service.delete_records("orders", 0, 2) == 2
    assert await registry.update_checkpoint(0, "worker", 4, 1)
    assert await ann.service.delete_records("orders", 0, 4) == 4


async def test_deletion_on_demand_does_not_rely_on_a_mirror_that_lags(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 2)
    await async_until(lambda: len(ann.agent.leading) == 2)
    await ann.service.produce("orders", 0, batch("a", "b", "c", "d", "e"))
    mirror = ann.agent.log.pending_ranges._mirror
    assert mirror is not None
    monkeypatch.setattr(mirror, "apply", lambda _: None)  # no commit arrives
    registry = await begun(cluster)
    assert ann.agent.log.pending_ranges.lowest(ORDERS) is None
    with pytest.raises(PendingRangeError):
        await ann.service.delete_records("orders", 0, 3)
    assert await registry.update_checkpoint(0, "worker", 4, 1)
    assert ann.agent.log.pending_ranges.lowest(ORDERS) == 2
    assert await ann.service.delete_records("orders", 0, 4) == 4


async def test_a_range_of_a_deleted_topic_holds_nothing_of_its_successor(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await begun(cluster, topic_id="deleted")
    created = await ann.service.create_topic("orders", 2)
    await async_until(lambda: len(ann.agent.leading) == 2)
    await ann.service.produce("orders", 0, batch("a", "b", "c", "d", "e"))
    assert await ann.service.delete_records("orders", 0, 3) == 3
    ranges = ann.agent.log.pending_ranges
    assert ranges.lowest(replace(ORDERS, topic_id="deleted")) == 2
    assert ranges.lowest(replace(ORDERS, topic_id=created.id)) is None


async def test_ranges_of_another_kafka_hold_nothing_here(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await begun(cluster, topic="")
    await async_until(
        lambda: (
            ann.agent.log.pending_ranges._mirror is not None
            and "registry/pipeline-p-1/meta" in ann.agent.log.pending_ranges._mirror.items
        )
    )
    assert ann.agent.log.pending_ranges.lowest(ORDERS) is None
    assert ann.agent.log.pending_ranges.lowest(replace(ORDERS, topic="")) is None


async def test_nothing_is_deleted_before_the_begun_ranges_are_known(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1)
    await async_until(lambda: len(ann.agent.leading) == 1)
    ranges = PendingRanges()  # no mirror yet, as right after a start, or after a session was lost
    assert ranges.lowest(ORDERS) == 0
    clock, random = RealClock(), SystemRandom()
    async with ranges.following(ann.agent.log._store, clock=clock, random=random):
        assert ranges.lowest(ORDERS) is None
    assert ranges.lowest(ORDERS) == 0
