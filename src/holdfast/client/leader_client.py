"""Appends and reads at the leader of a partition, for a node that does not lead it.

    InitProducerId v4, Produce v13, Fetch v13 (by topic id: a recreated topic is another one)

The one rule: every append carries a producer id and a sequence number, so that sending it again after a lost answer appends it
once. A refusal proves nothing by itself: a leader that lost its lease after the append answers like one that never led.
"""

import asyncio
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.brokers import FetchResult, TopicInfo
from holdfast.client.connection import BrokerConnection
from holdfast.client.producer import SEQUENCE_MODULUS, KafkaIdempotentProducer, OutOfSequenceError, stamp_producer
from holdfast.kafka.error_codes import RETRIABLE, ErrorCode, error_name
from holdfast.log.batches import parse_header
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, OutcomeUnknownError, UnavailableError

_POLL_MS: Final = 100
_RETRY_MS: Final = 50
_LANES_MAX: Final = 1_024
_CONNECTIONS_MAX: Final = 16  # to one leader
_TRIES_MIN: Final = 4  # within the time of an append
_SENT_AGAIN: Final = (RETRIABLE - {ErrorCode.CORRUPT_MESSAGE}) | {ErrorCode.UNKNOWN_SERVER_ERROR}


class AppendedBatch(NamedTuple):
    """Where a batch is in its partition. `append_time_ms` is -1 unless the topic takes append time."""

    base_offset: int
    append_time_ms: int


class UnknownAppendError(OutcomeUnknownError):
    """A batch was sent, and whether it was appended is not known."""

    def __init__(self, partition: str, reason: str) -> None:
        super().__init__(f"append to {partition}", reason)

    def __str__(self) -> str:
        return f"the outcome of the {self.commit_id} is unknown: {self.reason}"


class _Lane:
    """One partition's producer id and next sequence number. One append at a time: their order is that of the numbers."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.producer: tuple[int, int] | None = None
        self.sequence = 0


class LeaderClient(KafkaIdempotentProducer):
    """A client of the leaders of one cluster. Belongs to one event loop."""

    def __init__(self, bootstrap: str, *, clock: Clock, timeout_ms: int, login: BrokerLogin | None = None) -> None:
        super().__init__(bootstrap, clock=clock, timeout_ms=timeout_ms, login=login)
        self._append_ms = timeout_ms
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._pools: dict[BrokerAddress, list[BrokerConnection]] = {}

    async def close(self) -> None:
        await super().close()
        for connection in (each for pool in self._pools.values() for each in pool):
            await connection.close()
        self._pools.clear()

    async def append(self, topic: TopicInfo, number: int, batch: bytes, *, acks: int) -> AppendedBatch:
        """Append one batch at its leader, for as long as a request may take.

        `InvalidError`: it is refused for good. `UnavailableError`: nothing was sent. `UnknownAppendError`: it may be appended.
        """
        lane = self._lane(topic.id, number)
        async with lane.turn:
            while True:
                if lane.producer is None:
                    lane.producer, lane.sequence = await self.init_producer_id(), 0
                stamped = stamp_producer(bytearray(batch), lane.producer, lane.sequence)
                try:
                    appended = await self.append_stamped(topic, number, stamped, acks=acks)
                except (InvalidError, UnavailableError):
                    raise  # the number is free again
                except OutOfSequenceError:
                    lane.producer = None
                    if not lane.sequence:
                        raise
                    continue  # a leader that has lost what was acknowledged before expects an earlier number
                except BaseException:
                    lane.producer = None  # the number may be used up
                    raise
                lane.sequence = (lane.sequence + parse_header(stamped).count) % SEQUENCE_MODULUS
                return appended

    async def append_stamped(self, topic: TopicInfo, number: int, batch: bytes, *, acks: int) -> AppendedBatch:
        """The same for a batch that has its producer id and sequence number. `OutOfSequenceError`: it is refused for these."""
        deadline_ms = self._clock.boot_ms() + self._append_ms
        where = f"{topic.name}:{number}"
        sent = False
        while True:
            try:
                node = next(iter(await self._group_by_leader(topic.name, {number: 0})))
                connection = await self._connected(node)
                try:
                    return await self._produce_one(connection, topic, number, batch, acks)
                except UnavailableError:
                    sent = True
                    self._forget(node)
                    raise
            except UnavailableError as error:
                reason = error.reason
            except (InvalidError, OutOfSequenceError) as error:
                if sent:  # this refusal says nothing of the tries before
                    raise UnknownAppendError(where, str(error)) from None
                raise
            if self._clock.boot_ms() + _RETRY_MS >= deadline_ms:
                raise UnknownAppendError(where, reason) if sent else UnavailableError(f"partition {where}", reason)
            await self._clock.sleep_ms(_RETRY_MS)

    async def _produce_one(
        self, connection: Any, topic: TopicInfo, number: int, batch: bytes, acks: int
    ) -> AppendedBatch:
        from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData

        part: Any = PartitionProduceData(index=number, records=batch)  # type: ignore[arg-type]
        request = ProduceRequest(
            acks=acks,  # type: ignore[arg-type]
            timeout=timedelta(milliseconds=self._append_ms),  # type: ignore[arg-type]
            topic_data=(TopicProduceData(topic_id=UUID(hex=topic.id), partition_data=(part,)),),
        )
        answer = await connection.request(request)
        (found,) = answer.responses[0].partition_responses
        code = int(found.error_code)
        if code == ErrorCode.NONE:
            stamp = found.log_append_time
            return AppendedBatch(int(found.base_offset), -1 if stamp is None else round(stamp.timestamp() * 1_000))
        raise _refused(topic.name, number, code, str(found.error_message or ""))

    async def _connected(self, node: int) -> Any:
        """The connection to a broker, open: what fails until here was not sent."""
        if node not in self._metadata_cache.addresses:
            await self._metadata(())
        address = self._metadata_cache.addresses.get(node)
        if address is None:
            self._forget(node)
            raise UnavailableError(f"broker {node}", "it is not in the cluster")
        connection = self._connection(address)
        try:
            await connection.connect()
        except UnavailableError:
            self._forget(node)
            raise
        return connection

    def _connection(self, address: BrokerAddress) -> BrokerConnection:
        """The one with the fewest requests. A leader may take long for one partition, which must not hold up the others."""
        pool = self._pools.setdefault(address, [])
        idlest = min(pool, key=lambda each: each.pending, default=None)
        if idlest is None or (idlest.pending and len(pool) < _CONNECTIONS_MAX):
            # A leader that does not answer may have been replaced: there must be time to ask the next one.
            idlest = BrokerConnection(address, timeout_s=self._timeout_ms / 1000 / _TRIES_MIN, login=self._login)
            pool.append(idlest)
        return idlest

    async def read(
        self, topic: TopicInfo, number: int, offset: int, *, bytes_max: int, wait_ms: float = 0
    ) -> FetchResult:
        """Batches from the one that holds `offset` on; at the end of the log it waits for more, up to `wait_ms`."""
        deadline_ms = self._clock.boot_ms() + wait_ms
        while True:
            found = await self.fetch(topic, number, offset, bytes_max=bytes_max)
            left_ms = deadline_ms - self._clock.boot_ms()
            if len(found.records) or left_ms <= 0:
                return found
            await self._clock.sleep_ms(min(_POLL_MS, left_ms))

    def _lane(self, topic_id: str, number: int) -> _Lane:
        lane = self._lanes.pop((topic_id, number), None) or _Lane()
        self._lanes[topic_id, number] = lane  # the youngest again
        if len(self._lanes) > _LANES_MAX:
            # A lane that is dropped while somebody uses it goes on under its id; the next one gets another.
            del self._lanes[next(iter(self._lanes))]
        return lane


def _refused(topic: str, number: int, code: int, text: str) -> HoldfastError:
    name, where = error_name(code), f"partition {topic}:{number}"
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return UnknownTopicError(topic)
    if code in _SENT_AGAIN:
        return UnavailableError(where, f"its leader answered with {name}")
    if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return OutOfSequenceError(topic, number, code)
    return InvalidError(f"records for {where}", name, text or "accepted by the topic's configuration")
