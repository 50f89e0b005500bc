"""Start, end and offsets by time of partitions, through a `KafkaClient`. One request per kind, however many partitions."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from holdfast.client.librdkafka import KafkaClient
from holdfast.vocabulary.types import OffsetRange

T = TypeVar("T")

PartitionRef = tuple[str, int]  # topic and partition
_Spec: Any = OffsetSpec  # its methods have no types


class PartitionOffsets(NamedTuple):
    """The offsets that a partition holds, and the epoch of its leader."""

    offsets: OffsetRange
    leader_epoch: int | None


def partition_label(partition: PartitionRef) -> str:
    """A partition as Kafka's tools write it."""
    return f"{partition[0]}-{partition[1]}"


def partition_offsets(
    client: KafkaClient, partitions: Iterable[PartitionRef]
) -> dict[PartitionRef, PartitionOffsets | KafkaError]:
    """The offsets of each partition, or its error: it has no leader, or does not exist."""
    wanted = list(partitions)
    earliest = _list_offsets(client, dict.fromkeys(wanted, _Spec.earliest()))
    latest = _list_offsets(client, dict.fromkeys(wanted, _Spec.latest()))
    return {partition: _combine(earliest[partition], latest[partition]) for partition in wanted}


def require_partition_offsets(
    client: KafkaClient, partitions: Iterable[PartitionRef]
) -> dict[PartitionRef, PartitionOffsets]:
    """The offsets of each partition; raises the first error."""
    return _require(client, partition_offsets(client, partitions))


def offsets_by_time(
    client: KafkaClient, partitions: Iterable[PartitionRef], timestamp_ms: int
) -> dict[PartitionRef, int | None]:
    """The first offset of each partition at or after a time; None if there is none. Raises the first error."""
    found = _list_offsets(client, dict.fromkeys(partitions, _Spec.for_timestamp(timestamp_ms)))
    offsets = {partition: each.offset for partition, each in _require(client, found).items()}
    return {partition: offset if offset >= 0 else None for partition, offset in offsets.items()}


def _require(client: KafkaClient, found: Mapping[PartitionRef, T | KafkaError]) -> dict[PartitionRef, T]:
    labelled = {partition_label(partition): result for partition, result in found.items()}
    return dict(zip(found, client.raise_for_errors("partition", labelled).values(), strict=True))


def _list_offsets(client: KafkaClient, wanted: Mapping[PartitionRef, Any]) -> dict[PartitionRef, Any]:
    if not wanted:
        return {}
    specs = {TopicPartition(*partition): spec for partition, spec in wanted.items()}
    found: dict[Any, Any] = client.call(lambda left_s: client.admin.list_offsets(specs, request_timeout=left_s))
    return {(partition.topic, partition.partition): result for partition, result in found.items()}


def _combine(earliest: Any, latest: Any) -> PartitionOffsets | KafkaError:
    for result in (earliest, latest):
        if isinstance(result, KafkaError):
            return result
    return PartitionOffsets(OffsetRange(earliest.offset, latest.offset), latest.leader_epoch)
