"""Where partitions begin and end, and which offset a position means in each of them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from holdfast.cli.kafka.positions import AtOffset, AtTime, Beginning, End, Position
from holdfast.client.librdkafka import KafkaClient

PartitionRef = tuple[str, int]  # topic and partition
_Spec: Any = OffsetSpec  # its methods have no types


class OffsetRange(NamedTuple):
    """The offsets of a partition: from `earliest` to before `latest`, led under `epoch`."""

    earliest: int
    latest: int
    epoch: int | None

    def clamp(self, offset: int) -> int:
        """`offset`, or the nearer end if it is not in this span."""
        return min(max(offset, self.earliest), self.latest)


def offset_ranges(
    connection: KafkaClient, places: Iterable[PartitionRef]
) -> dict[PartitionRef, OffsetRange | KafkaError]:
    """Each partition's span, or why it is not known: it has no leader, or does not exist."""
    wanted = list(places)
    first = _ask(connection, dict.fromkeys(wanted, _Spec.earliest()))
    last = _ask(connection, dict.fromkeys(wanted, _Spec.latest()))
    return {place: _offset_range(first[place], last[place]) for place in wanted}


def require_offset_ranges(connection: KafkaClient, places: Iterable[PartitionRef]) -> dict[PartitionRef, OffsetRange]:
    """Each partition's span; raises where it is not known."""
    found = offset_ranges(connection, places)
    named = {partition_label(place): span for place, span in found.items()}
    return dict(zip(found, connection.raise_for_errors("partition", named).values(), strict=True))


def offsets_at(
    connection: KafkaClient, position: Position, spans: Mapping[PartitionRef, OffsetRange]
) -> dict[PartitionRef, int]:
    """The offset that `position` means in each partition; one outside of it is moved to its nearer end."""
    match position:
        case Beginning():
            return {place: span.earliest for place, span in spans.items()}
        case End():
            return {place: span.latest for place, span in spans.items()}
        case AtOffset(offset):
            return {place: span.clamp(offset) for place, span in spans.items()}
        case AtTime(timestamp_ms):
            found = _ask(connection, dict.fromkeys(spans, _Spec.for_timestamp(timestamp_ms)))
            named = {partition_label(place): answer for place, answer in found.items()}
            answers = dict(zip(found, connection.raise_for_errors("partition", named).values(), strict=True))
            # None so late: it is the end.
            return {place: spans[place].latest if at.offset < 0 else at.offset for place, at in answers.items()}


def partition_label(place: PartitionRef) -> str:
    """A partition as Kafka writes it."""
    return f"{place[0]}-{place[1]}"


def _ask(connection: KafkaClient, wanted: Mapping[PartitionRef, Any]) -> dict[PartitionRef, Any]:
    if not wanted:
        return {}
    asked = {TopicPartition(*place): spec for place, spec in wanted.items()}
    found: dict[Any, Any] = connection.call(lambda left_s: connection.admin.list_offsets(asked, request_timeout=left_s))
    return {(place.topic, place.partition): answer for place, answer in found.items()}


def _offset_range(first: Any, last: Any) -> OffsetRange | KafkaError:
    for answer in (first, last):
        if isinstance(answer, KafkaError):
            return answer
    return OffsetRange(first.offset, last.offset, last.leader_epoch)
