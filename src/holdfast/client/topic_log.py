"""Topics of one partition, appended to and followed from an event loop: no librdkafka, no threads.

    CreateTopics v7, Produce v13, and what `BrokerClient` has

The one rule: an append is at least once. It is for messages whose readers do not mind one twice, and that nobody misses who was
not there: announcements, replies, events.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.client.brokers import BrokerClient, TopicInfo
from holdfast.kafka.codec import prepare
from holdfast.kafka.enums import Acks
from holdfast.kafka.error_codes import ErrorCode, error_name
from holdfast.kafka.special_offsets import LATEST
from holdfast.log.batches import Record, decode, encode, parse_header
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError

_WAIT_MS: Final = 1_000


class LogEntry(NamedTuple):
    """A record that was read."""

    offset: int
    key: bytes
    value: bytes


class TopicLog(BrokerClient):
    """Appends to topics and follows them. Belongs to one event loop."""

    def __init__(self, bootstrap: str, *, clock: Clock | None = None, timeout_ms: int = 30_000) -> None:
        super().__init__(bootstrap, clock=clock, timeout_ms=timeout_ms)
        self._infos: dict[str, TopicInfo] = {}

    @staticmethod
    def load() -> None:
        """Import what encodes requests: it takes a while, and an event loop should not wait for it."""
        from kio.schema.create_topics.v7.request import CreateTopicsRequest
        from kio.schema.fetch.v13.request import FetchRequest
        from kio.schema.list_offsets.v7.request import ListOffsetsRequest
        from kio.schema.metadata.v12.request import MetadataRequest
        from kio.schema.produce.v13.request import ProduceRequest

        for kind in (CreateTopicsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest):
            prepare(kind)

    async def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a topic of one partition, unless there is one of this name."""
        await self._retry_until_deadline(lambda: self._create(name, config))

    async def append(self, topic: str, key: bytes, value: bytes) -> None:
        """Append a record; returns when it is durable. `UnknownTopicError`."""
        now_ms = self._clock.now_ms()
        batch = encode([Record(0, now_ms, key, value)])
        await self._retry_until_deadline(lambda: self._append(topic, batch))

    async def end(self, topic: str) -> int:
        """The offset that the next record gets."""
        return (await self.offsets(topic, {0: LATEST}))[0]

    async def follow(self, topic: str, offset: int) -> AsyncGenerator[LogEntry, None]:
        """Records from `offset` on, for as long as it is iterated, through every failover. Use a client of its own for it."""
        info = await self.topic(topic)
        while True:
            try:
                fetched = await self.fetch(info, 0, offset, wait_ms=_WAIT_MS)
            except (
                OffsetOutOfRangeError
            ) as error:  # retention removed what was not read in time, or the log has lost its end
                offset = error.start if offset < error.start else error.end
                continue
            except UnavailableError:
                continue  # it was tried for long enough to be no busy loop
            for end, entries in _batches(fetched.records):
                for entry in entries:
                    if entry.offset >= offset:
                        yield entry
                offset = max(
                    offset, end
                )  # a batch may cover more than it has: a gap after a takeover has no record at all

    async def _create(self, name: str, config: Mapping[str, str]) -> None:
        from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

        settings = tuple(CreatableTopicConfig(name=key, value=value) for key, value in config.items())
        make: Any = CreatableTopic
        topic = make(name=name, num_partitions=1, replication_factor=-1, assignments=(), configs=settings)
        answer = await self._request_any(
            CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=10), validate_only=False)  # type: ignore[arg-type]
        )
        (made,) = answer.topics
        code = int(made.error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        if code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION):
            raise InvalidError("topic", name, made.error_message or error_name(code))
        raise UnavailableError(f"topic {name}", made.error_message or error_name(code))

    async def _append(self, topic: str, batch: bytes) -> None:
        from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData

        info: TopicInfo = await self._known(topic)
        node = next(iter(await self._group_by_leader(topic, {0: 0})))
        part: Any = PartitionProduceData(index=0, records=batch)  # type: ignore[arg-type]
        request = ProduceRequest(
            acks=Acks.ALL,  # type: ignore[arg-type]
            timeout=timedelta(seconds=20),  # type: ignore[arg-type]
            topic_data=(TopicProduceData(topic_id=UUID(hex=info.id), partition_data=(part,)),),
        )
        answer = await self._request(node, request)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code == ErrorCode.UNKNOWN_TOPIC_ID:
            self._infos.pop(topic, None)
        self._check(topic, 0, code)

    async def _known(self, topic: str) -> TopicInfo:
        info = self._infos.get(topic)
        if info is None:
            info = self._infos[topic] = await self.topic(topic)
        return info


def _batches(fetched: memoryview) -> Iterator[tuple[int, list[LogEntry]]]:
    """The end of each whole batch, and its records."""
    while len(fetched) >= HEADER_BYTES:
        header = parse_header(fetched)
        if header.size_bytes > len(fetched):
            return
        records = () if header.is_control else decode(fetched[: header.size_bytes])
        yield header.last_offset + 1, [LogEntry(each.offset, each.key or b"", each.value or b"") for each in records]
        fetched = fetched[header.size_bytes :]
