"""A cluster that this process has open: direct access to store and objects, a client of the brokers, or both.

The one rule: reading creates nothing. Opening the engines behind the URLs is the caller's part (`holdfast.spark.clusters`).
"""

from dataclasses import dataclass, field

from holdfast.client.brokers import BrokerClient, TopicInfo
from holdfast.client.cluster_address import ClusterAddress
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.log.model import PartitionId
from holdfast.log.published_log import PublishedLog
from holdfast.log.reader import LogReader
from holdfast.log.topics import Topics
from holdfast.vocabulary.clock import Clock, RealClock


@dataclass(frozen=True, slots=True)
class DirectAccess:
    """Store and objects, without a broker in between: everything that is published. `owner`: whose objects they were at open."""

    store: Store
    objects: Objects
    topics: Topics
    log_reader: LogReader
    owner: ObjectsOwner


@dataclass(slots=True)
class ClusterAccess:
    """An open cluster. `direct` or `brokers` is None where the address does not name it."""

    cluster_address: ClusterAddress
    direct: DirectAccess | None
    brokers: BrokerClient | None
    clock: Clock = field(default_factory=RealClock)

    @property
    def objects(self) -> Objects:
        """Those of direct access."""
        assert self.direct is not None
        return self.direct.objects

    async def topic(self, name: str) -> TopicInfo:
        """The topic as it is now. `UnknownTopicError`."""
        if self.direct is not None:
            topic = await self.direct.topics.get(name)
            return TopicInfo(topic.name, topic.id, topic.partitions)
        assert self.brokers is not None
        return await self.brokers.topic(name)

    async def topics(self) -> list[TopicInfo]:
        """Every topic, by name."""
        if self.direct is not None:
            return [TopicInfo(each.name, each.id, each.partitions) for each in await self.direct.topics.list()]
        assert self.brokers is not None
        return await self.brokers.topics()

    async def published(self, topic: TopicInfo, partition: int) -> PublishedLog | None:
        """The published part of a partition; None without direct access."""
        if self.direct is None:
            return None
        partition_id = PartitionId(topic=topic.name, topic_id=topic.id, number=partition)
        return await PublishedLog.open(partition_id, store=self.direct.store, clock=self.clock)
