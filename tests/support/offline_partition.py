"""Three agents, one of which crashes with records that only its WAL has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import KafkaGateway, gateway_of
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings

TOPIC = "orders"
PARTITIONS = 3


class Outage(NamedTuple):
    """Ann has crashed with a record of partition `number` that only her WAL has; bob and carl live on."""

    cluster: LocalCluster
    bob: KafkaGateway
    carl: KafkaGateway
    number: int
    ann_node: int

    def holder(self) -> KafkaGateway:
        """The gateway of the agent that holds the lease and cannot open the partition."""
        return self.bob if self.bob.node.agent.offline else self.carl

    def other(self) -> KafkaGateway:
        return self.carl if self.holder() is self.bob else self.bob

    @property
    def requests(self) -> int:
        """Requests so far, of all clients."""
        return self.bob.server.requests + self.carl.server.requests


@asynccontextmanager
async def ann_crashed(directory: Path) -> AsyncIterator[Outage]:
    """The other two for the body; every partition has one record."""
    cluster = LocalCluster(directory)
    try:
        async with (
            asyncio.timeout(120),
            gateway_of(cluster, "bob", KafkaSettings()) as bob,
            gateway_of(cluster, "carl", KafkaSettings()) as carl,
        ):
            async with gateway_of(cluster, "ann", KafkaSettings()) as ann:
                await bob.backend.log.create_topic(TOPIC, PARTITIONS)
                await async_until(lambda: all(len(each.node.leads()) == 1 for each in (ann, bob, carl)))
                (number,) = ann.node.leads()
                ann.node.objects.reachable = False
                for each in range(PARTITIONS):
                    await cluster.produce(TOPIC, each, f"record {each}")
                await ann.backend.log.produce(TOPIC, number, batch("only here"))
                assert ann.node.agent.member is not None
                ann_node = ann.node.agent.member.node
                await ann.node.drop()
            await async_until(lambda: bob.node.agent.offline or carl.node.agent.offline)
            await async_until(lambda: all(_is_offline(each, number) for each in (bob, carl)))
            yield Outage(cluster, bob, carl, number, ann_node)
    finally:
        await cluster.end()


def _is_offline(gateway: KafkaGateway, number: int) -> bool:
    """Whether this node shows the partition as offline: its view of the cluster lags behind the store."""
    cluster = gateway.backend.cluster
    held = cluster.leader(TOPIC, number)
    return held is not None and cluster.offline(held) is not None
