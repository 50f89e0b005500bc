"""Clusters of several agents with gateways, and replica sets as leaders write them."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from tests.support.cluster import LocalCluster
from tests.support.kafka_admin import Admin
from tests.support.kafka_wire import gateway_of
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionId
from holdfast.log.replica_sets import replica_set_write
from holdfast.log.topics import Topic
from holdfast.security.principals import Principal


@asynccontextmanager
async def admins_of(
    directory: Path,
    *agents: str,
    zones: str = "",
    settings: KafkaSettings | None = None,
    super_users: Collection[Principal] = (),
) -> AsyncIterator[list[Admin]]:
    """A gateway on each of these agents, which know each other, and a client of each."""
    cluster = LocalCluster(directory)
    cluster.streams = True
    try:
        async with AsyncExitStack() as stack:
            gateways = [
                await stack.enter_async_context(
                    gateway_of(
                        cluster, name, settings or KafkaSettings(), zone=zones[at : at + 1], super_users=super_users
                    )
                )
                for at, name in enumerate(agents)
            ]
            admins = [Admin(gateway, await gateway.client()) for gateway in gateways]
            for admin in admins:
                await async_until(partial(_joined, admin, len(agents)))
            yield admins
    finally:
        await cluster.end()


def _joined(admin: Admin, agents: int) -> bool:
    return admin.backend.me() is not None and len(admin.backend.cluster.members) == agents


async def show_replicas(
    admins: Sequence[Admin], topic: Topic, number: int, replicas: Sequence[str], in_sync: Sequence[str]
) -> None:
    """Write who keeps the tail of a partition, as its leader does with an open commit or a change of the in-sync set."""
    wals = {admin.gateway.node.name: admin.gateway.node.agent.wal_id for admin in admins}
    record = PartitionRecord(
        opened_epoch=1,
        opened_replicas=tuple(wals[agent] for agent in replicas),
        in_sync=tuple(wals[agent] for agent in in_sync),
    )
    partition_id = PartitionId(topic=topic.name, topic_id=topic.id, number=number)
    await admins[0].gateway.cluster.store.commit(apply=(replica_set_write(partition_id, record),))
    for admin in admins:
        await async_until(partial(_shows, admin, topic, number, (tuple(replicas), tuple(in_sync))))


def _shows(admin: Admin, topic: Topic, number: int, expected: tuple[tuple[str, ...], tuple[str, ...]]) -> bool:
    found = admin.backend.cluster.replicas(topic.id, number)
    return found is not None and (found.agents, found.in_sync) == expected
