"""Reading records for gateways, from this node's log or from the leaders of their partitions.

The one rule: a position is an offset before anything is read, so that every answer says where the next read begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.client.admin.positions import AtOffset, AtTime, Beginning, EndPosition, Position
from holdfast.client.brokers import TopicInfo
from holdfast.client.leader_client import LeaderClient
from holdfast.gateways.log_access.backend import LogBackend
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.batches import Buffer, Record, decode, parse_header
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import ExpiredError, FencedError, InvalidError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """Records of a partition, where the next read begins, and where the partition begins and ends."""

    records: Sequence[Record]
    next_offset: int
    start_offset: int
    high_watermark: int


class LogReads:
    """Reads of one node. `forward` is the client of the other nodes."""

    def __init__(self, backend: LogBackend, forward: LeaderClient) -> None:
        self._backend, self._forward = backend, forward

    async def topic(self, name: str, partition: int | None = None) -> Topic:
        """The topic, which has this partition. `UnknownTopicError`."""
        topic = self._backend.cluster.topic(name) or await self._backend.log.topics.get(name)
        if partition is not None and not 0 <= partition < topic.partitions:
            raise InvalidError("partition", partition, f"0 to {topic.partitions - 1}, as topic {name} has")
        return topic

    async def offset(self, topic: Topic, partition: int, position: Position) -> int:
        """The offset of a position; that of a time after the last record is the end."""
        match position:
            case AtOffset(offset):
                return offset
            case Beginning():
                time_ms = EARLIEST
            case EndPosition():
                time_ms = LATEST
            case AtTime(timestamp_ms):
                time_ms = timestamp_ms
        found = await self._offset_at(topic, partition, time_ms)
        return found if found is not None else await self.offset(topic, partition, EndPosition())

    async def _offset_at(self, topic: Topic, partition: int, time_ms: int) -> int | None:
        if self._backend.log.is_serving(topic.name, partition):
            try:
                found = await self._backend.log.offset_for_timestamp(topic.name, partition, time_ms)
                return None if found is None else found.offset
            except (NotLeaderError, FencedError, ExpiredError):
                pass
        offset = (await self._forward.offsets(topic.name, {partition: time_ms}))[partition]
        return offset if offset >= 0 else None

    async def read(
        self, topic: Topic, partition: int, offset: int, *, records_max: int, bytes_max: int, wait_ms: float = 0
    ) -> ReadResult:
        """Records from `offset` on; at the end it waits for more, up to `wait_ms`. `OffsetOutOfRangeError`."""
        batches: Sequence[Buffer]
        if self._backend.log.is_serving(topic.name, partition):
            try:
                batches, start, end, _ = await self._backend.log.fetch(
                    topic.name, partition, offset, bytes_max=bytes_max, wait_ms=wait_ms
                )
                return await off_loop(sum(map(len, batches)), lambda: _result(batches, offset, records_max, start, end))
            except (NotLeaderError, FencedError, ExpiredError):
                pass  # it has moved
        info = TopicInfo(topic.name, topic.id, topic.partitions)
        found = await self._forward.read(info, partition, offset, bytes_max=bytes_max, wait_ms=wait_ms)
        batches = _whole(found.records)
        return await off_loop(
            len(found.records),
            lambda: _result(batches, offset, records_max, found.start_offset, found.high_watermark),
        )


def _result(batches: Sequence[Buffer], offset: int, records_max: int, start: int, end: int) -> ReadResult:
    records: list[Record] = []
    following = offset
    for batch in batches:
        for record in decode(batch):
            if record.offset >= offset:
                if len(records) == records_max:
                    return ReadResult(
                        records=records, next_offset=record.offset, start_offset=start, high_watermark=end
                    )
                records.append(record)
        following = max(following, parse_header(batch).last_offset + 1)  # also over what compaction has removed
    return ReadResult(records=records, next_offset=following, start_offset=start, high_watermark=end)


def _whole(data: memoryview) -> list[Buffer]:
    """The batches of a response, the last of which may be truncated."""
    batches: list[Buffer] = []
    at = 0
    while len(data) - at >= HEADER_BYTES:
        size = parse_header(data, at).size_bytes
        if not 0 < size <= len(data) - at:
            break
        batches.append(data[at : at + size])
        at += size
    return batches
