"""A gateway whose object storage does not answer for some of its partitions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import KafkaGateway, gateway_of
from tests.support.partitions import batch
from tests.support.stalling_objects import StallingObjects
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.settings import LogSettings


class StalledGateway:
    """A gateway whose objects may be stalled, by partition. `published` of its partitions are in object storage alone."""

    def __init__(self, gateway: KafkaGateway, objects: StallingObjects) -> None:
        self.gateway, self.objects, self.log = gateway, objects, gateway.backend.log

    def led(self, number: int, topic: str = "orders") -> LeadingPartition:
        found = self.log._serving(topic, number)
        assert found is not None
        return found

    async def publish(self, number: int, *values: str, topic: str = "orders") -> None:
        """Records that are in object storage, and no longer in memory."""
        for value in values:
            await self.log.produce(topic, number, batch(value))
        await self.log.flush(topic, number)
        led = self.led(number, topic)
        led.tail.forget_until(led.high_watermark)

    def stall(self, *numbers: int) -> None:
        """From now on the objects of these partitions do not answer."""
        self.objects.stalled |= {segment.object for number in numbers for segment in self.led(number).segments.recent}


@asynccontextmanager
async def stalled_gateway(
    directory: Path,
    partitions: int,
    *,
    topics: Sequence[str] = ("orders",),
    segment_reads_max: int = 64,
    **settings: Any,
) -> AsyncIterator[StalledGateway]:
    cluster = LocalCluster(directory)
    objects = StallingObjects(cluster.objects)
    cluster.objects = objects  # type: ignore[assignment]  # what its nodes get
    try:
        log = LogSettings(publish_tick_ms=10, segment_reads_max=segment_reads_max)
        async with asyncio.timeout(60), gateway_of(cluster, "ann", KafkaSettings(**settings), log=log) as gateway:
            for topic in topics:
                await gateway.backend.log.create_topic(topic, partitions)
            await async_until(lambda: len(gateway.node.agent.leading) == len(topics) * partitions)
            yield StalledGateway(gateway, objects)
            objects.resume()
    finally:
        objects.resume()
        await cluster.end()
