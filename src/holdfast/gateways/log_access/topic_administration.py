"""Topics for gateways: created, described, changed and deleted, at whichever node.

The one rule: a name that no topic can have is a topic that does not exist, except where one is created.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.client.admin.topics import (
    PartitionRow,
    TopicSetting,
    add_partitions,
    alter_topic_settings,
    create_topic,
    delete_topics,
    partition_rows,
    set_replication_factor,
    topic_settings,
)
from holdfast.client.librdkafka import KafkaClient
from holdfast.gateways.log_access.backend import KafkaAdmin, LogBackend
from holdfast.log.topics import Topic, TopicExistsError, UnknownTopicError, check_name
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between

SERVER_DEFAULT = -1
"""So many partitions or replicas as the server's settings say."""
_PARTITIONS_MAX, _SHORT_MAX = 100_000, (1 << 15) - 1  # librdkafka's own; a cluster may allow fewer, and says so


class DescribedPartition(NamedTuple):
    """A partition. `offline`: why nobody serves it."""

    row: PartitionRow
    offline: str


class TopicAdministration:
    """The topics of a cluster, at one of its nodes."""

    def __init__(self, backend: LogBackend, kafka: KafkaAdmin) -> None:
        self._backend, self._kafka = backend, kafka

    async def list(self) -> Sequence[Topic]:
        """Every topic, by name."""
        return await self._backend.log.list_topics()

    async def get(self, name: str) -> Topic:
        """The topic. `UnknownTopicError`."""
        try:
            check_name(name)
        except InvalidError:
            raise UnknownTopicError(name) from None
        return await self._backend.log.topics.get(name)

    async def create(self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]) -> Topic:
        """Create a topic and wait until it has leaders. `TopicExistsError`."""
        check_name(name)
        _check_request(partitions, replication_factor, config)
        created = await self._kafka.call(
            create_topic, name, partitions=partitions, replication_factor=replication_factor, config=config
        )
        if not created:
            raise TopicExistsError(name)
        return await self._backend.log.topics.get(name)

    async def settings(self, name: str) -> Sequence[TopicSetting]:
        """All settings of a topic that exists."""
        return (await self._kafka.call(topic_settings, [name]))[name]

    async def change(
        self, name: str, *, partitions: int | None, replication_factor: int | None, config: Mapping[str, str | None]
    ) -> None:
        """Add partitions, change the number of replicas, set or reset settings. Each is one change of its own, in this order."""
        found = await self.get(name)
        _check_request(partitions, replication_factor, config)
        if partitions is not None:
            check_between("partitions", partitions, 1, _PARTITIONS_MAX)
        if partitions is not None and partitions != found.partitions:
            await self._kafka.call(add_partitions, name, partitions)
        if replication_factor is not None and replication_factor != found.config.replication_factor:
            await self._kafka.call(set_replication_factor, name, replication_factor)
        if config:
            to = {setting: value for setting, value in config.items() if value is not None}
            unset = [setting for setting, value in config.items() if value is None]
            await self._kafka.call(alter_topic_settings, name, to=to, unset=unset)

    async def delete(self, name: str) -> None:
        """Delete a topic and everything in it."""
        await self.get(name)
        error = (await self._kafka.call(delete_topics, [name]))[name]
        if error is not None:
            raise error

    async def partitions(self, name: str) -> Sequence[DescribedPartition]:
        """Leader, epoch, replicas and offsets of each partition."""
        await self.get(name)
        cluster = self._backend.cluster

        def offline(number: int) -> str:
            held = cluster.leader(name, number)
            mark = None if held is None else cluster.offline(held)
            return "" if mark is None else mark.reason

        rows = await self._kafka.call(_rows, name)
        return [DescribedPartition(row, offline(row.partition)) for row in rows]


def _rows(client: KafkaClient, topic: str) -> list[PartitionRow]:
    return partition_rows(client, client.describe([topic]).values())[topic]


def _check_request(partitions: int | None, replication_factor: int | None, config: Mapping[str, str | None]) -> None:
    """Refuse what Kafka's protocol, and librdkafka before it, cannot carry."""
    check_between("partitions", SERVER_DEFAULT if partitions is None else partitions, SERVER_DEFAULT, _PARTITIONS_MAX)
    factor = SERVER_DEFAULT if replication_factor is None else replication_factor
    check_between("replication factor", factor, SERVER_DEFAULT, _SHORT_MAX)
    for setting, value in config.items():
        if "\0" in setting or "\0" in (value or ""):
            raise InvalidError(f"setting {setting[:80]!r}", (value or "")[:80], "text without NUL")
