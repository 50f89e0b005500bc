"""Which offset a position such as `-1h` or `end` means in each partition."""

from collections.abc import Mapping

from holdfast.client.admin.positions import AtOffset, AtTime, Beginning, EndPosition, Position
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.partition_offsets import PartitionOffsets, PartitionRef, offsets_by_time


def offsets_at(
    client: KafkaClient, position: Position, partitions: Mapping[PartitionRef, PartitionOffsets]
) -> dict[PartitionRef, int]:
    """The offset that `position` means in each partition; one outside of it is moved to its nearer end."""
    match position:
        case Beginning():
            return {partition: each.offsets.start for partition, each in partitions.items()}
        case EndPosition():
            return {partition: each.offsets.end for partition, each in partitions.items()}
        case AtOffset(offset):
            return {partition: each.offsets.clamp(offset) for partition, each in partitions.items()}
        case AtTime(timestamp_ms):
            found = offsets_by_time(client, partitions, timestamp_ms)
            return {
                partition: partitions[partition].offsets.end if offset is None else offset
                for partition, offset in found.items()
            }
