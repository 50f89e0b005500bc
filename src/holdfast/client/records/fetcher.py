"""Fetcher: one librdkafka consumer on a thread of its own.

The one rule: all calls but commits run on that thread, one after the other, so that what a poll returned belongs to the
assignment of that moment. A poll that nobody waits for any more leaves its records in the buffer: none is lost to a
cancellation.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from holdfast.client.forks import ForkCheck
from holdfast.client.kafka_errors import kafka_error
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.records.model import TopicPartition
from holdfast.client.records.record_buffer import RecordBuffer
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

T = TypeVar("T")

_POLL_S: Final = 0.1
_RETRY_MS: Final = 10
_BATCH: Final = 1_000
# librdkafka recovers from these by itself.
_PASSING: Final = frozenset({KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF, KafkaError._WAIT_COORD})


class Fetcher:
    """An open consumer. `buffer` has what was fetched."""

    def __init__(self, client: KafkaClient, properties: Mapping[str, Any], *, clock: Clock) -> None:
        self.client, self.buffer = client, RecordBuffer()
        self._clock = clock
        self._forked = ForkCheck("consumer")
        self._consumer = client.consumer(properties)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-consumer")
        self._polling: asyncio.Future[None] | None = None
        self._failure: HoldfastError | None = None
        self.polled_at_ms = clock.boot_ms()

    async def poll(self) -> None:
        """Fetch some records into the buffer; returns after a moment if there are none. Raises what the brokers refuse."""
        if self._polling is None or self._polling.done():
            self._polling = asyncio.ensure_future(self._call(self._poll))
        await asyncio.shield(self._polling)
        if self._failure is not None and not len(self.buffer):
            failure, self._failure = self._failure, None
            raise failure

    async def subscribe(
        self,
        topics: Sequence[str],
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition], bool], None],
    ) -> None:
        """Join the group. The callbacks run on the thread, inside of a poll; the last argument: they are lost already."""

        def revoked(partitions: Iterable[Any], *, lost: bool) -> None:
            gone = _ours(partitions)
            self.buffer.drop(gone)
            on_revoked(gone, lost)

        await self._call(
            lambda: self._consumer.subscribe(
                list(topics),
                on_assign=lambda _, partitions: on_assigned(_ours(partitions)),
                on_revoke=lambda _, partitions: revoked(partitions, lost=False),
                on_lost=lambda _, partitions: revoked(partitions, lost=True),
            )
        )

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, too, from these offsets on."""
        await self._call(lambda: self._consumer.incremental_assign(_theirs(offsets)))

    async def unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these partitions; their records are dropped."""

        def stop() -> None:
            self._consumer.incremental_unassign([KafkaPartition(*each) for each in partitions])
            self.buffer.drop(partitions)

        await self._call(stop)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset."""
        deadline_ms = self._clock.boot_ms() + self.client.bootstrap.timeout_s * 1_000

        def move() -> bool:
            try:
                self._consumer.seek(KafkaPartition(*partition, offset))
            except KafkaException as failure:
                if kafka_error(failure).code() != KafkaError._STATE or self._clock.boot_ms() > deadline_ms:
                    raise
                return False
            self.buffer.clear(partition)
            return True

        while not await self._call(move):  # it was assigned a moment ago, and is not being fetched yet
            await self._clock.sleep_ms(_RETRY_MS)

    async def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch and deliver nothing of these partitions."""

        def stop() -> None:
            self._consumer.pause([KafkaPartition(*each) for each in partitions])
            self.buffer.pause(partitions)

        await self._call(stop)

    async def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch and deliver them again."""

        def start() -> None:
            self._consumer.resume([KafkaPartition(*each) for each in partitions])
            self.buffer.resume(partitions)

        await self._call(start)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets to the group. On another thread: also while this one waits for a rebalance callback."""
        self._forked.check()
        await asyncio.to_thread(self.commit_here, offsets)

    def commit_here(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The same on the calling thread, which may be the one that polls."""
        for each in self._consumer.commit(offsets=_theirs(offsets), asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each; None: there is none."""
        asked = [KafkaPartition(*each) for each in partitions]
        timeout_s = self.client.bootstrap.timeout_s
        try:
            found = await asyncio.to_thread(self._consumer.committed, asked, timeout=timeout_s)
        except KafkaException as failure:
            raise self.client.error(kafka_error(failure), "group", "") from None
        return {TopicPartition(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}

    async def close(self) -> None:
        """Leave the group and close; callbacks run once more."""
        try:
            await self._call(self._consumer.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T]) -> T:
        self._forked.check()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except KafkaException as failure:
            error = kafka_error(failure)
            raise self.client.error(error, "consumer", self.client.bootstrap.servers) from None

    def _poll(self) -> None:
        first = self._consumer.poll(_POLL_S)
        self.polled_at_ms = self._clock.boot_ms()
        if first is None:
            return
        found = [first, *self._consumer.consume(_BATCH - 1, timeout=0)]
        self.buffer.add(
            [
                (TopicPartition(message.topic() or "", message.partition() or 0), message)
                for message in found
                if message.error() is None or self._note(message)
            ]
        )

    def _note(self, message: Message) -> bool:
        """Keep the error of a message for whoever polls next, unless it passes by itself."""
        error = message.error()
        assert error is not None
        found = self.client.error(error, "topic", message.topic() or "")
        if error.code() not in _PASSING and not isinstance(found, UnavailableError):
            self._failure = found
        return False


def _ours(partitions: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def _theirs(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    return [KafkaPartition(*partition, offset) for partition, offset in offsets.items()]
