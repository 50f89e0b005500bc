"""Consumer: reads records for programs without an event loop. The asynchronous consumer does the work, on the loop's thread.

The one rule: records that were fetched already are taken from the buffer on the caller's thread: no hop to the loop for each one.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from holdfast.client.connection_settings import ConnectionSettings
from holdfast.client.records.consumer import Consumer as AsyncConsumer
from holdfast.client.records.consumer import RebalanceCallback
from holdfast.client.records.model import Record, TopicPartition
from holdfast.client.records.serializers import Deserializer
from holdfast.client.records.settings import ConsumerSettings
from holdfast.client.sync.loop_calls import LoopCalls


class Consumer:
    """Reads records. `with Consumer("localhost:9092", "orders", group_id="billing") as consumer:`, then iterate over it.

    The parameters are those of `holdfast.client.Consumer`; `on_assigned` and `on_revoked` run on the thread of the event loop.
    """

    def __init__(
        self,
        connection: str | ConnectionSettings = "localhost:9092",
        *topics: str,
        group_id: str = "",
        partitions: Sequence[TopicPartition] = (),
        start: str | int | datetime = "earliest",
        value_deserializer: str | Deserializer = "bytes",
        key_deserializer: str | Deserializer = "bytes",
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        settings: ConsumerSettings | None = None,
    ) -> None:
        self._consumer = AsyncConsumer(
            connection,
            *topics,
            group_id=group_id,
            partitions=partitions,
            start=start,
            value_deserializer=value_deserializer,
            key_deserializer=key_deserializer,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            settings=settings,
        )
        self._calls = LoopCalls("consumer")
        self._run = self._calls.run

    def __enter__(self) -> Self:
        self._run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._consumer.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Commit what is processed (unless offsets are committed by `commit` alone), give all partitions back, and close."""
        self._run(self._consumer.close())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read at present."""
        return self._consumer.assignment

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        self._calls.check()
        return self._consumer._next_buffered() or self._run(self._consumer.__anext__())

    def batches(self, max_records: int = 500) -> Iterator[list[Record]]:
        """Records as they arrive, up to `max_records` at once: the fastest way to read. A batch is processed at the next."""
        while True:
            yield self._run(self._consumer.fetch(max_records))

    def fetch(self, max_records: int = 500, *, timeout_ms: int | None = None) -> list[Record]:
        """At least one record, and `max_records` at most; empty after `timeout_ms` without any."""
        return self._run(self._consumer.fetch(max_records, timeout_ms=timeout_ms))

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit `offsets` (of the next record of each partition), or all records that were delivered so far. `ExpiredError`."""
        self._run(self._consumer.commit(offsets))

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition, by default of those assigned; None: there is none."""
        return self._run(self._consumer.committed(*partitions))

    def seek(self, partition: TopicPartition, position: str | int | datetime) -> None:
        """Continue at an offset, a time, `earliest` or `latest`."""
        self._run(self._consumer.seek(partition, position))

    def position(self, partition: TopicPartition) -> int | None:
        """The offset after the last record that was delivered; None: none was since it was assigned."""
        return self._consumer.position(partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these partitions (by default, of all) until `resume`. They stay assigned."""
        self._run(self._consumer.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver records of these partitions (by default, of all) again."""
        self._run(self._consumer.resume(*partitions))

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many records each assigned partition has that were not delivered; None: it has no leader at present."""
        return self._run(self._consumer.lag())
