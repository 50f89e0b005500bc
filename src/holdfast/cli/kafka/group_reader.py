"""Reads as a member of a consumer group.

The one rule: a commit follows the printing of what it commits, so a member that dies prints a record again rather than
never. It commits once a second, before it gives a partition away, and when it leaves.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from holdfast.cli.kafka.consumer import is_partition_end, open_consumer, partition_ref_of, poll_batch, records_in
from holdfast.cli.kafka.record_format import ConsumedRecord
from holdfast.cli.kafka.signals import StopFlag
from holdfast.client.kafka_errors import kafka_error
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.partition_offsets import PartitionRef

COMMIT_EVERY_S: Final = 1.0
JOIN_TIMEOUT_S: Final = 60.0  # another member may take as long to release its partitions


class GroupReader:
    """One member: its partitions, and the offsets that are printed but not yet committed."""

    def __init__(self, connection: KafkaClient, group: str, *, commit: bool) -> None:
        self._connection, self._group, self._commits = connection, group, commit
        self._owned: set[PartitionRef] = set()
        self._ended: set[PartitionRef] = set()
        self._printed: dict[PartitionRef, int] = {}
        self._joined = False
        self._committed_at = time.monotonic()

    def read(
        self, consumer: Consumer, topics: Sequence[str], stop_flag: StopFlag, *, follow: bool, count: int | None
    ) -> Iterator[list[ConsumedRecord]]:
        """Batches, until every partition has reached its end once, or for ever with `follow`; at most `count` records."""

        left = count

        def idle_s_max() -> float:
            if follow:
                return float("inf")
            timeout_s = self._connection.bootstrap.timeout_s
            return timeout_s if self._joined else max(timeout_s, JOIN_TIMEOUT_S)

        consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        try:
            for batch in poll_batch(self._connection, consumer, stop_flag, idle_s_max=idle_s_max):
                mine = [message for message in batch if self._is_assigned(message)]
                self._ended.update(partition_ref_of(message) for message in mine if is_partition_end(message))
                records = records_in(self._connection, mine)[:left]
                yield records
                left = None if left is None else left - len(records)
                self._printed.update({(record.topic, record.partition): record.offset + 1 for record in records})
                if time.monotonic() - self._committed_at > COMMIT_EVERY_S:
                    self._commit(consumer)
                if left == 0 or (self._joined and not follow and self._owned <= self._ended):
                    break
        finally:
            self._commit(consumer)

    def _is_assigned(self, message: Message) -> bool:
        # Polling for the rest of a batch may have taken a partition away: its new owner reads these records.
        place = partition_ref_of(message)
        return place in self._owned or place[1] < 0

    def _commit(self, consumer: Consumer) -> None:
        self._committed_at = time.monotonic()
        if not self._commits or not self._printed:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in self._printed.items()]
        self._printed.clear()
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            error = self._connection.error(kafka_error(failure), "group", self._group, change="committing in")
            raise error from None

    def _on_assign(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._joined = True
        self._owned.update((place.topic, place.partition) for place in places)

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._commit(consumer)
        self._on_lost(consumer, places)

    def _on_lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._joined = False
        for place in ((place.topic, place.partition) for place in places):
            self._owned.discard(place)
            self._ended.discard(place)
            self._printed.pop(place, None)


def read_group(
    connection: KafkaClient,
    group: str,
    topics: Sequence[str],
    stop_flag: StopFlag,
    *,
    from_end: bool,
    follow: bool,
    commit: bool,
    count: int | None,
) -> Iterator[list[ConsumedRecord]]:
    """Records after the group's committed offsets; where it has none, from the beginning or the end."""
    connection.describe(topics)  # raises for a missing topic, for which a member would wait
    settings = {"group.id": group, "auto.offset.reset": "latest" if from_end else "earliest"}
    with open_consumer(connection, settings) as consumer:
        yield from GroupReader(connection, group, commit=commit).read(
            consumer, topics, stop_flag, follow=follow, count=count
        )
