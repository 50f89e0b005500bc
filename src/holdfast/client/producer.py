"""An idempotent producer whose sequence numbers the caller assigns: a replay sends the same bytes, which the broker appends once.

    InitProducerId v4, Produce v13 (by topic id: a recreated topic takes nothing meant for the old one)

The one rule: a batch that the partition already has counts as sent. The broker answers with its offset if it remembers the batch,
with DUPLICATE_SEQUENCE_NUMBER for an older one; neither appends. A batch out of order is never sent under another number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from struct import Struct
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from holdfast.client.brokers import BrokerClient, TopicInfo
from holdfast.kafka.enums import Acks
from holdfast.kafka.error_codes import RETRIABLE, ErrorCode, error_name
from holdfast.kafka.special_offsets import LATEST
from holdfast.log.batches import parse_header
from holdfast.log.batches.header import CRC_AT, HEADER_BYTES, PRODUCER_AT, checksum
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.settings import MIB

REQUEST_BYTES_MAX: Final = 8 * MIB
SEQUENCE_MODULUS: Final = 1 << 31  # after 2³¹-1 comes 0

# Another writer has used this producer id with a later sequence number or epoch.
_OUT_OF_SEQUENCE: Final = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH}
# Holdfast answers CORRUPT_MESSAGE for batches that will always be so; these are made here, so another try sends the same.
_RETRIABLE: Final = RETRIABLE - {ErrorCode.CORRUPT_MESSAGE}
_UNKNOWN_TOPIC: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
_RETRY_PAUSE_MS: Final = 100
_PRODUCER_FIELDS: Final = Struct(">qhi")
_UINT32: Final = Struct(">I")


class TopicRef(msgspec.Struct, frozen=True, array_like=True):
    """A topic's name and id; it is part of stored plans, in this order."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """One partition of one topic."""

    topic: TopicRef
    partition: int

    def __str__(self) -> str:
        return f"{self.topic.name}:{self.partition}"


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """A batch ready to be sent; `ordinal` is the number of records before it in the same partition and plan."""

    target: TargetPartition
    ordinal: int
    count: int
    data: bytes


class OutOfSequenceError(HoldfastError):
    """The partition has later batches of this producer: another process got further. Read the query's state again."""

    def __init__(self, topic: str, partition: int, code: int) -> None:
        super().__init__(topic, partition, code)
        self.topic, self.partition, self.code = topic, partition, code

    def __str__(self) -> str:
        return f"partition {self.topic}:{self.partition} rejected a batch: {error_name(self.code)}"


class IdempotentProducer(Protocol):
    """Sends batches whose sequence numbers are already assigned."""

    async def init_producer_id(self) -> tuple[int, int]:
        """A new producer id, and its epoch."""
        ...

    async def end_offsets(self, topic: TopicRef, partitions: Sequence[int]) -> dict[int, int]:
        """Where these partitions end. `InvalidError` if the topic was recreated."""
        ...

    async def send(self, batches: Sequence[SequencedBatch], *, deadline_ms: int) -> None:
        """Send at most one batch per partition; return when all are durable. `UnavailableError` at the deadline,
        `OutOfSequenceError`."""
        ...

    async def appended_records(
        self, target: TargetPartition, *, start: int, producer: tuple[int, int], sequence: int
    ) -> int:
        """How many records of this producer, from `sequence` on, the partition holds at or after offset `start`."""
        ...


class KafkaIdempotentProducer(BrokerClient):
    """The producer over Kafka's protocol. Belongs to one event loop."""

    async def init_producer_id(self) -> tuple[int, int]:
        return await self._retry_until_deadline(self._init_producer_id)

    async def _init_producer_id(self) -> tuple[int, int]:
        from kio.schema.init_producer_id.v4.request import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=timedelta(minutes=1),  # type: ignore[arg-type]
        )
        answer = await self._request_any(request)
        if int(answer.error_code) != ErrorCode.NONE:
            raise UnavailableError("producer ids", f"broker error {answer.error_code.name}")
        return int(answer.producer_id), int(answer.producer_epoch)

    async def end_offsets(self, topic: TopicRef, partitions: Sequence[int]) -> dict[int, int]:
        found = await self.topic(topic.name)
        if found.id != topic.id:
            raise InvalidError(
                f"id of topic {topic.name}", found.id, f"{topic.id}: the topic was deleted and recreated"
            )
        return await self.offsets(topic.name, dict.fromkeys(partitions, LATEST))

    async def send(self, batches: Sequence[SequencedBatch], *, deadline_ms: int) -> None:
        left = {batch.target: batch for batch in batches}
        while left:
            # Before every attempt: a process that was paused for longer than brokers remember a producer must not send.
            if self._clock.boot_ms() >= deadline_ms:
                raise UnavailableError("publishing", f"{len(left)} partitions did not acknowledge their batch in time")
            reason = await self._send_some(left)
            if left and reason is not None:
                if self._clock.boot_ms() + _RETRY_PAUSE_MS >= deadline_ms:
                    raise reason
                await self._clock.sleep_ms(_RETRY_PAUSE_MS)

    async def _send_some(self, left: dict[TargetPartition, SequencedBatch]) -> HoldfastError | None:
        """One round of requests; what is acknowledged leaves `left`. Returns why something stayed, if it did."""
        reason: HoldfastError | None = None
        for topic in {target.topic for target in left}:
            targets = {target.partition: target for target in left if target.topic == topic}
            try:
                led = await self._group_by_leader(topic.name, dict.fromkeys(targets, 0))
            except UnavailableError as error:
                reason = error
                continue
            for node, partitions in led.items():
                chosen = _fit_request(REQUEST_BYTES_MAX, [left[targets[partition]] for partition in partitions])
                try:
                    codes = await self._produce(node, topic, chosen)
                except UnavailableError as error:
                    reason = error
                    continue
                for batch in chosen:
                    code = codes.get(batch.target.partition, ErrorCode.REQUEST_TIMED_OUT)
                    refused = self._refusal(batch.target, code)
                    if refused is None:
                        del left[batch.target]
                    reason = refused or reason
        return reason

    async def _produce(self, node: int, topic: TopicRef, batches: Sequence[SequencedBatch]) -> dict[int, int]:
        from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData

        parts: Any = tuple(PartitionProduceData(index=each.target.partition, records=each.data) for each in batches)  # type: ignore[arg-type]
        request = ProduceRequest(
            acks=Acks.ALL,  # type: ignore[arg-type]
            timeout=timedelta(seconds=20),  # type: ignore[arg-type]
            topic_data=(TopicProduceData(topic_id=UUID(hex=topic.id), partition_data=parts),),
        )
        answer = await self._request(node, request)
        return {each.index: int(each.error_code) for found in answer.responses for each in found.partition_responses}

    def _refusal(self, target: TargetPartition, code: int) -> HoldfastError | None:
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return None
        self._metadata_cache.leaders.pop((target.topic.name, target.partition), None)
        name = f"partition {target}"
        if code in _RETRIABLE:
            known = "; the topic may have been deleted" if code in _UNKNOWN_TOPIC else ""
            return UnavailableError(name, f"the broker answered with {error_name(code)}{known}")
        if code in _OUT_OF_SEQUENCE:
            raise OutOfSequenceError(target.topic.name, target.partition, code)
        raise InvalidError(f"batch for {name}", error_name(code), "accepted by the topic's configuration")

    async def appended_records(
        self, target: TargetPartition, *, start: int, producer: tuple[int, int], sequence: int
    ) -> int:
        topic = TopicInfo(target.topic.name, target.topic.id, target.partition + 1)
        most, offset = 0, start
        while True:
            try:
                fetched = await self.fetch(topic, target.partition, offset)
            except OffsetOutOfRangeError as error:
                if error.start <= offset:
                    return most  # past the end: nothing was appended since `start`
                raise _unknown_start(target, start, error.start) from None
            offset, counted = _scan_batches(fetched.records, offset, producer, sequence)
            most = max(most, counted)
            if offset >= fetched.high_watermark or not len(fetched.records):
                return most


def stamp_producer(batch: bytearray, producer: tuple[int, int], sequence: int) -> bytes:
    """The batch under this producer id and epoch, from `sequence` on, with its checksum."""
    _PRODUCER_FIELDS.pack_into(batch, PRODUCER_AT, *producer, sequence)
    _UINT32.pack_into(batch, CRC_AT, checksum(batch))
    return bytes(batch)


def _unknown_start(target: TargetPartition, start: int, first: int) -> CorruptError:
    return CorruptError(
        f"partition {target}",
        f"it starts at offset {first}: which batches of the plan were published from {start} on cannot be determined",
    )


def _fit_request(bytes_max: int, batches: Sequence[SequencedBatch]) -> list[SequencedBatch]:
    """As many as fit into one request; one at least."""
    chosen: list[SequencedBatch] = []
    size = 0
    for each in batches:
        size += len(each.data)
        if chosen and size > bytes_max:
            break
        chosen.append(each)
    return chosen


def _scan_batches(records: memoryview, offset: int, producer: tuple[int, int], sequence: int) -> tuple[int, int]:
    """The offset after the complete batches, and how many records after `sequence` the producer has in them."""
    most, at = 0, 0
    while at + HEADER_BYTES <= len(records):
        header = parse_header(records, at)
        if not 0 < header.size_bytes <= len(records) - at:
            break  # the last may be truncated
        offset = max(offset, header.last_offset + 1)
        if (header.producer_id, header.producer_epoch) == producer:
            behind = (header.base_sequence - sequence) % SEQUENCE_MODULUS + header.last_offset_delta + 1
            most = max(most, behind) if behind <= SEQUENCE_MODULUS // 2 else most
        at += header.size_bytes
    return offset, most
