"""PartitionQueues: messages in this process's memory, with a producer and a consumer to go with them.

For demos, tests and single-process use: a partition is an append-only list, and a reader waits at an offset. There is no
second place to read from, so "replay, then live" cannot deliver a message twice.
"""

import asyncio
from collections import Counter
from typing import Final

from holdfast.registry.delivery import Delivery
from holdfast.registry.model import Message
from holdfast.registry.partitioners import ModuloPartitioner, Partitioner
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.settings import check_at_least

MESSAGES_MAX: Final = 1_000_000


class PartitionQueues:
    """A `MessageSource` in memory, for one event loop."""

    def __init__(self, partitions: int, *, messages_max: int = MESSAGES_MAX) -> None:
        check_at_least("partitions", partitions, 1)
        self.partitions = partitions
        self._messages_max = messages_max
        self._base = [0] * partitions  # offset of the first message still kept
        self._kept: list[list[Message]] = [[] for _ in range(partitions)]
        self._waiting: list[set[asyncio.Future[None]]] = [set() for _ in range(partitions)]

    def put(self, partition: int, key: str, value: bytes, *, produced_at_ms: int = 0) -> Message:
        """Append a message and wake its readers."""
        self._check(partition)
        kept = self._kept[partition]
        if len(kept) >= self._messages_max:
            raise UnavailableError(f"queue of partition {partition}", f"full with {len(kept)} messages")
        offset = self.end(partition)
        message = Message(partition=partition, offset=offset, key=key, value=value, produced_at_ms=produced_at_ms)
        kept.append(message)
        for waiter in self._waiting[partition]:
            if not waiter.done():
                waiter.set_result(None)
        return message

    async def next(self, partition: int, offset: int) -> Message:
        """The first message at or after `offset`; waits until there is one."""
        self._check(partition)
        waiting = self._waiting[partition]
        while offset >= self.end(partition):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.add(waiter)
            try:
                await waiter
            finally:
                waiting.discard(waiter)
        return self._kept[partition][max(0, offset - self._base[partition])]

    def end(self, partition: int) -> int:
        """The offset the next message will get."""
        self._check(partition)
        return self._base[partition] + len(self._kept[partition])

    def forget(self, partition: int, *, below: int) -> None:
        """Drop messages below an offset, usually a checkpoint."""
        self._check(partition)
        count = min(max(0, below - self._base[partition]), len(self._kept[partition]))
        del self._kept[partition][:count]
        self._base[partition] += count

    def _check(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise InvalidError("partition", partition, f"0 to {self.partitions - 1}")


class SimpleProducer:
    """Sends each message to the partition its key belongs to."""

    def __init__(self, queues: PartitionQueues, *, clock: Clock, strategy: Partitioner | None = None) -> None:
        self._queues, self._clock = queues, clock
        self._strategy = strategy or ModuloPartitioner()

    def send(self, key: str, value: bytes) -> Message:
        """Append to the key's partition; it is delivered as soon as its consumer gets there."""
        partition = self._strategy.partition(key, self._queues.partitions)
        return self._queues.put(partition, key, value, produced_at_ms=self._clock.now_ms())


class SimpleConsumer:
    """A handler that counts what it gets, by partition."""

    def __init__(self) -> None:
        self.processed: Counter[int] = Counter()

    async def __call__(self, delivery: Delivery) -> None:
        self.processed[delivery.message.partition] += 1
