"""Reads chosen partitions: from one position to another, the last few records, or for ever."""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from holdfast.cli.kafka.consumer import (
    is_partition_end,
    open_consumer,
    partition_ref_of,
    poll_batch,
    record_of,
    records_in,
)
from holdfast.cli.kafka.record_format import ConsumedRecord
from holdfast.cli.kafka.signals import StopFlag
from holdfast.client.admin.offsets import offsets_at
from holdfast.client.admin.positions import EndPosition, Position
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.partition_offsets import PartitionOffsets, PartitionRef, partition_label, require_partition_offsets
from holdfast.client.types import KafkaRefusedError

Batches = Iterator[list[ConsumedRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    """What to read. No partitions means all. `tail` replaces `start` and `until`."""

    topics: Sequence[str]
    partitions: Sequence[int]
    start: Position
    until: Position
    tail: int | None
    follow: bool
    count: int | None


def read_partitions(connection: KafkaClient, reading: ConsumeRequest, stop_flag: StopFlag) -> Batches:
    """Batches of records up to `until`, or for ever with `follow`; ends early when `stop_flag` is set."""
    left = reading.count
    with closing(_read(connection, reading, stop_flag)) as batches:
        for batch in batches:
            wanted = batch[:left]
            yield wanted
            left = None if left is None else left - len(wanted)
            if left == 0:
                return


def _read(
    connection: KafkaClient, reading: ConsumeRequest, stop_flag: StopFlag
) -> Generator[list[ConsumedRecord], None, None]:
    offsets = require_partition_offsets(connection, _places(connection, reading))
    with open_consumer(connection, {"group.id": "holdfast-cli", "auto.offset.reset": "earliest"}) as consumer:
        if reading.tail is not None:
            yield _last(connection, consumer, offsets, reading.tail, stop_flag)
            starts = {place: each.offsets.end for place, each in offsets.items()}
        else:
            starts = offsets_at(connection, reading.start, offsets)
        if reading.follow:
            _assign(consumer, starts)
            for batch in poll_batch(connection, consumer, stop_flag, idle_s_max=lambda: float("inf")):
                yield records_in(connection, batch)
        elif reading.tail is None:
            yield from _ranges(connection, consumer, starts, offsets_at(connection, reading.until, offsets), stop_flag)


def _ranges(
    connection: KafkaClient,
    consumer: Consumer,
    starts: Mapping[PartitionRef, int],
    ends: Mapping[PartitionRef, int],
    stop_flag: StopFlag,
) -> Batches:
    """Everything from start to before end, in each partition."""
    unfinished = {place: end for place, end in ends.items() if starts[place] < end}
    if not unfinished:
        return
    _assign(consumer, {place: starts[place] for place in unfinished})
    for batch in poll_batch(connection, consumer, stop_flag, idle_s_max=lambda: connection.bootstrap.timeout_s):
        wanted: list[ConsumedRecord] = []
        for message in batch:
            place = partition_ref_of(message)
            end = unfinished.get(place, -1)
            if is_partition_end(message):  # the last offsets may hold no record: a marker, or removed by compaction
                unfinished.pop(place, None)
                continue
            record = record_of(connection, message)
            if record.offset < end:
                wanted.append(record)
            if record.offset + 1 >= end and place in unfinished:
                del unfinished[place]
                consumer.pause([TopicPartition(*place)])
        yield wanted
        if not unfinished:
            return


def _last(
    connection: KafkaClient,
    consumer: Consumer,
    offsets: Mapping[PartitionRef, PartitionOffsets],
    count: int,
    stop_flag: StopFlag,
) -> list[ConsumedRecord]:
    """The last `count` records of all partitions together, by their timestamps.

    A partition may have fewer records than offsets (compaction, markers): then it is read again from further back.
    """
    kept: dict[PartitionRef, deque[ConsumedRecord]] = {}
    wanted, width = dict(offsets), count
    while wanted and not stop_flag.asked:
        starts = {place: each.offsets.clamp(each.offsets.end - width) for place, each in wanted.items()}
        kept.update({place: deque(maxlen=count) for place in wanted})
        for batch in _ranges(connection, consumer, starts, offsets_at(connection, EndPosition(), wanted), stop_flag):
            for record in batch:
                kept[record.topic, record.partition].append(record)
        wanted = {
            place: each
            for place, each in wanted.items()
            if len(kept[place]) < count and starts[place] > each.offsets.start
        }
        width *= 4
    return merged(list(kept.values()))[-count:]


def merged(partitions: Sequence[Sequence[ConsumedRecord]]) -> list[ConsumedRecord]:
    """All records by time; those of one partition stay in offset order."""
    timed: list[tuple[int, ConsumedRecord]] = []
    for records in partitions:
        latest_ms = -1
        for record in records:
            latest_ms = max(latest_ms, -1 if record.timestamp_ms is None else record.timestamp_ms)
            timed.append((latest_ms, record))
    return [record for _, record in sorted(timed, key=lambda each: each[0])]


def _assign(consumer: Consumer, starts: Mapping[PartitionRef, int]) -> None:
    places = [TopicPartition(*place, offset) for place, offset in starts.items()]
    consumer.assign(places)
    consumer.resume(places)  # a partition that was paused at its end stays paused through an assignment


def _places(connection: KafkaClient, reading: ConsumeRequest) -> list[PartitionRef]:
    described = connection.describe(reading.topics).values()
    there = [(topic.name, info.id) for topic in described for info in topic.partitions]
    wanted = [(topic, number) for topic in reading.topics for number in reading.partitions]
    for place in wanted:
        if place not in there:
            raise KafkaRefusedError("partition", partition_label(place), f"does not exist at {connection.bootstrap}")
    return list(dict.fromkeys(wanted)) or there
