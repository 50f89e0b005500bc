"""What a process without credentials may read: the segments of one range, by URLs that were signed for it, and the brokers.

The one rule: a grant never decides what a range is. It spares the brokers work: whatever it does not cover, because it was
published, merged or removed since, or because the URLs have expired, is read through the brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.client.brokers import BrokerClient, TopicInfo
from holdfast.contracts.objects import Objects
from holdfast.log.metadata import SegmentRecord
from holdfast.log.model import PartitionId
from holdfast.log.segment_list import SegmentList


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGrant:
    """A partition's segments of one range, as they were listed; `urls` by object. It travels to executors."""

    topic_id: str
    start_offset: int
    published: int
    """Everything below was, when it was listed."""
    segments: tuple[SegmentRecord, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""


class GrantedLog:
    """The published part of a partition, as far as a grant covers it."""

    def __init__(self, partition_id: PartitionId, grant: ReadGrant) -> None:
        self.partition_id, self.start_offset, self.high_watermark = partition_id, grant.start_offset, grant.published
        self.segments = SegmentList(grant.segments)

    async def refresh(self) -> None:
        """Nothing more is known: the rest is the brokers'."""
        self.high_watermark, self.segments = 0, SegmentList()


class GrantedCluster:
    """A cluster as a reader of one granted range has it."""

    def __init__(self, grant: ReadGrant, objects: Objects, brokers: BrokerClient) -> None:
        self._grant, self.objects, self.brokers = grant, objects, brokers

    async def topic(self, name: str) -> TopicInfo:
        """The topic as it is now. `UnknownTopicError`."""
        return await self.brokers.topic(name)

    async def published(self, topic: TopicInfo, partition: int) -> GrantedLog | None:
        """What was granted; None: it is of another topic of this name."""
        if topic.id != self._grant.topic_id:
            return None
        return GrantedLog(PartitionId(topic=topic.name, topic_id=topic.id, number=partition), self._grant)
