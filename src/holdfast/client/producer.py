"""What is asked of brokers to publish: a producer's id, where partitions end, Produce, and what a partition holds of a producer.

    InitProducerId v4, Produce v13 (topics by their ids: one that was deleted and made anew takes nothing meant for the old one)

The one rule: a batch that the broker says it has, is sent. It says so with the offset for a batch it remembers, and with
DUPLICATE_SEQUENCE_NUMBER for one further back; neither is an append. A batch out of order is never sent again under another number.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Protocol
from uuid import UUID

from holdfast.client.brokers import LATEST, BrokerClient, OutOfRangeError, TopicInfo
from holdfast.log.batches import parse_header
from holdfast.log.batches.header import HEADER_BYTES, LENGTH_COVERS_FROM
from holdfast.spark.sink.pieces import TopicRef
from holdfast.spark.sink.query_state import SEQUENCE_MODULUS
from holdfast.spark.sink.sequences import SequencedBatch, TargetPartition
from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.settings import MIB

REQUEST_BYTES_MAX: Final = 8 * MIB

_NONE, _DUPLICATE = 0, 46
_OUT_OF_SEQUENCE: Final = {45, 47}  # out of order, older epoch: somebody else has gone further with this producer
_RETRIABLE: Final = {
    3,
    5,
    6,
    7,
    14,
    15,
    16,
    19,
    20,
    56,
    72,
    74,
    75,
    89,
    100,
}  # leaders that change, room that comes, time-outs
_UNKNOWN_TOPIC: Final = {3, 100}
_RETRY_PAUSE_MS: Final = 100


class OutOfSequenceError(HoldfastError):
    """The partition has seen later batches of this producer than the one that was sent: look at the record again."""

    def __init__(self, topic: str, partition: int, code: int) -> None:
        super().__init__(topic, partition, code)
        self.topic, self.partition, self.code = topic, partition, code

    def __str__(self) -> str:
        return f"partition {self.topic}:{self.partition} refused a batch as out of order (code {self.code})"


class IdempotentProducer(Protocol):
    """The brokers of one cluster."""

    async def init_producer_id(self) -> tuple[int, int]:
        """An id that nobody else has, and its epoch."""
        ...

    async def ends(self, target: TopicRef, partitions: Sequence[int]) -> dict[int, int]:
        """Where these partitions end. `InvalidError` if the topic is no longer the one that was meant."""
        ...

    async def send(self, batches: Sequence[SequencedBatch], *, deadline_ms: int) -> None:
        """Return when all are durable: at most one batch of each lane. `UnavailableError` at the deadline, `OutOfSequenceError`."""
        ...

    async def appended_records(
        self, lane: TargetPartition, *, start: int, producer: tuple[int, int], sequence: int
    ) -> int:
        """How many records from `sequence` on the partition holds of this producer, at or behind offset `start`."""
        ...


class KafkaIdempotentProducer(BrokerClient):
    """Brokers over Kafka's protocol. On the loop's thread only."""

    async def init_producer_id(self) -> tuple[int, int]:
        return await self._retry_until_deadline(self._init_producer_id)

    async def _init_producer_id(self) -> tuple[int, int]:
        from kio.schema.init_producer_id.v4.request import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=timedelta(minutes=1),  # type: ignore[arg-type]
        )
        answer = await self._request_any(request)
        if int(answer.error_code) != _NONE:
            raise UnavailableError("producer ids", f"the broker answered with {answer.error_code.name}")
        return int(answer.producer_id), int(answer.producer_epoch)

    async def ends(self, target: TopicRef, partitions: Sequence[int]) -> dict[int, int]:
        found = await self.topic(target.name)
        if found.id != target.id:
            raise InvalidError(
                f"topic {target.name}", f"id {found.id}", f"id {target.id}: it was deleted and made anew"
            )
        return await self.offsets(target.name, dict.fromkeys(partitions, LATEST))

    async def send(self, batches: Sequence[SequencedBatch], *, deadline_ms: int) -> None:
        left = {batch.lane: batch for batch in batches}
        while left:
            # Checked before every try: whoever slept for longer than brokers remember must not wake up and send.
            if self._clock.boot_ms() >= deadline_ms:
                raise UnavailableError("publishing", f"{len(left)} partitions did not take their batch in time")
            reason = await self._send_some(left)
            if left and reason is not None:
                if self._clock.boot_ms() + _RETRY_PAUSE_MS >= deadline_ms:
                    raise reason
                await self._clock.sleep_ms(_RETRY_PAUSE_MS)

    async def _send_some(self, left: dict[TargetPartition, SequencedBatch]) -> HoldfastError | None:
        """One round of requests: what was taken leaves `left`. Why something stayed, if it did."""
        reason: HoldfastError | None = None
        for topic in {lane.target for lane in left}:
            lanes = {lane.partition: lane for lane in left if lane.target == topic}
            try:
                led = await self._group_by_leader(topic.name, dict.fromkeys(lanes, 0))
            except UnavailableError as error:
                reason = error
                continue
            for node, partitions in led.items():
                chosen = _fit_request(REQUEST_BYTES_MAX, [left[lanes[partition]] for partition in partitions])
                try:
                    codes = await self._produce(node, topic, chosen)
                except UnavailableError as error:
                    reason = error
                    continue
                for batch in chosen:
                    refused = self._refusal(batch.lane, codes.get(batch.lane.partition, 7))
                    if refused is None:
                        del left[batch.lane]
                    reason = refused or reason
        return reason

    async def _produce(self, node: int, topic: TopicRef, batches: Sequence[SequencedBatch]) -> dict[int, int]:
        from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData

        parts: Any = tuple(PartitionProduceData(index=each.lane.partition, records=each.data) for each in batches)  # type: ignore[arg-type]
        request = ProduceRequest(
            acks=-1,  # type: ignore[arg-type]
            timeout=timedelta(seconds=20),  # type: ignore[arg-type]
            topic_data=(TopicProduceData(topic_id=UUID(hex=topic.id), partition_data=parts),),
        )
        answer = await self._request(node, request)
        return {each.index: int(each.error_code) for found in answer.responses for each in found.partition_responses}

    def _refusal(self, lane: TargetPartition, code: int) -> HoldfastError | None:
        if code in (_NONE, _DUPLICATE):
            return None
        self._metadata_cache.leaders.pop((lane.target.name, lane.partition), None)
        name = f"partition {lane.target.name}:{lane.partition}"
        if code in _RETRIABLE:
            known = "; the topic may have been deleted" if code in _UNKNOWN_TOPIC else ""
            return UnavailableError(name, f"the broker answered with Kafka's error {code}{known}")
        if code in _OUT_OF_SEQUENCE:
            raise OutOfSequenceError(lane.target.name, lane.partition, code)
        raise InvalidError(f"batch for {name}", f"Kafka's error {code}", "what the topic's settings let pass")

    async def appended_records(
        self, lane: TargetPartition, *, start: int, producer: tuple[int, int], sequence: int
    ) -> int:
        topic = TopicInfo(lane.target.name, lane.target.id, lane.partition + 1)
        most, offset = 0, start
        while True:
            try:
                fetched = await self.fetch(topic, lane.partition, offset)
            except OutOfRangeError as error:
                if error.start <= offset:
                    return most  # beyond the end: the log ends where we began
                raise _unknown_start(lane, start, error.start) from None
            offset, counted = _scan_batches(fetched.records, offset, producer, sequence)
            most = max(most, counted)
            if offset >= fetched.high_watermark or not len(fetched.records):
                return most


def _unknown_start(lane: TargetPartition, start: int, first: int) -> CorruptError:
    return CorruptError(
        f"partition {lane.target.name}:{lane.partition}",
        f"it begins at {first}, so that nobody can tell what of the plan was published from {start} on",
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
    """Where the whole batches in `records` end, and how far behind `sequence` the producer's go."""
    most, at = 0, 0
    while at + HEADER_BYTES <= len(records):
        header = parse_header(records, at)
        if at + header.length + LENGTH_COVERS_FROM > len(records):
            break  # the last may be cut
        offset = max(offset, header.last_offset + 1)
        if (header.producer_id, header.producer_epoch) == producer:
            behind = (header.base_sequence - sequence) % SEQUENCE_MODULUS + header.last_offset_delta + 1
            most = max(most, behind) if behind <= SEQUENCE_MODULUS // 2 else most
        at += header.size_bytes
    return offset, most
