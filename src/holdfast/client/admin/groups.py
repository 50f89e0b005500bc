"""Consumer groups: members, lag, resets. The one rule: nothing is reset while a group has members."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription, ConsumerGroupListing  # type: ignore[attr-defined]

from holdfast.client.admin.offsets import offsets_at
from holdfast.client.admin.positions import Position
from holdfast.client.kafka_errors import kafka_error
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.partition_offsets import (
    PartitionOffsets,
    PartitionRef,
    partition_label,
    partition_offsets,
    require_partition_offsets,
)
from holdfast.client.types import KafkaConflictError, KafkaNotFoundError, KafkaRefusedError
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_NAME_CHARS_MAX: Final = 8_191  # each may be four bytes: what a string of the protocol holds
STATES: Final = {
    "preparing": ConsumerGroupState.PREPARING_REBALANCING,
    "completing": ConsumerGroupState.COMPLETING_REBALANCING,
    "stable": ConsumerGroupState.STABLE,
    "empty": ConsumerGroupState.EMPTY,
    "dead": ConsumerGroupState.DEAD,
    "unknown": ConsumerGroupState.UNKNOWN,
}


class GroupProgress(NamedTuple):
    """A group's progress in one partition. `member` is its current reader."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None


class OffsetMove(NamedTuple):
    """A partition of a group, its committed offset, and the new one."""

    topic: str
    partition: int
    committed: int | None
    to: int
    change: int | None


def list_groups(connection: KafkaClient, states: Iterable[str]) -> list[ConsumerGroupListing]:
    """Every group in one of these states (none given: in any), by name."""
    wanted = {STATES[state] for state in states}
    found = connection.call_one(
        "groups",
        "",
        lambda left_s: (
            connection.admin.list_consumer_groups(states=wanted, request_timeout=left_s)
            if wanted
            else connection.admin.list_consumer_groups(request_timeout=left_s)
        ),
    )
    if found.errors:  # an incomplete list would look complete
        raise connection.error(kafka_error(found.errors[0]), "groups of", str(connection.bootstrap))
    return sorted(found.valid, key=lambda group: group.group_id)


def state_name(group: ConsumerGroupListing | ConsumerGroupDescription) -> str:
    """The group's state in one word."""
    return next(name for name, state in STATES.items() if state is group.state)


def describe_group(connection: KafkaClient, group: str) -> ConsumerGroupDescription | None:
    """The group and its members; None if it does not exist."""
    _require_name(group)
    found = connection.call(lambda left_s: connection.admin.describe_consumer_groups([group], request_timeout=left_s))[
        group
    ]
    if isinstance(found, KafkaError):
        if found.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise connection.error(found, "group", group)
    return None if found.state is ConsumerGroupState.DEAD else found


def progress_of(connection: KafkaClient, group: str, described: ConsumerGroupDescription) -> list[GroupProgress]:
    """One row for each partition that the group has committed or is reading."""
    committed = committed_offsets(connection, group)
    readers = {
        (place.topic, place.partition): member.member_id
        for member in described.members
        for place in member.assignment.topic_partitions
    }
    places = sorted({*committed, *readers})
    offsets = partition_offsets(connection, places)
    return [_progress(place, committed.get(place), offsets[place], readers.get(place)) for place in places]


def committed_offsets(connection: KafkaClient, group: str) -> dict[PartitionRef, int]:
    """The offsets that the group committed."""
    _require_name(group)
    asked = [ConsumerGroupTopicPartitions(group)]
    found = connection.call_one(
        "group",
        group,
        lambda left_s: connection.admin.list_consumer_group_offsets(asked, request_timeout=left_s)[group],
    )
    return {(place.topic, place.partition): place.offset for place in found.topic_partitions if place.offset >= 0}


def plan_reset(
    connection: KafkaClient,
    group: str,
    *,
    topics: Sequence[str],
    partitions: Sequence[int],
    to: Position | None,
    shift: int | None,
) -> list[OffsetMove]:
    """The new offset of each partition of `topics`: at position `to`, or `shift` records from the committed one."""
    _require_name(group)
    committed = committed_offsets(connection, group)
    offsets = require_partition_offsets(connection, _places(connection, topics, partitions))
    if to is not None:
        targets = offsets_at(connection, to, offsets)
    else:
        assert shift is not None
        targets = _shifted(group, committed, offsets, shift)
    return [
        OffsetMove(topic, partition, before, target, None if before is None else target - before)
        for (topic, partition), target in sorted(targets.items())
        for before in [committed.get((topic, partition))]
    ]


def apply_reset(connection: KafkaClient, group: str, moves: Sequence[OffsetMove]) -> None:
    """Execute the moves; refused while the group has members."""
    require_no_members(connection, group)
    places = [TopicPartition(move.topic, move.partition, move.to) for move in moves]
    asked = [ConsumerGroupTopicPartitions(group, places)]
    found = connection.call(
        lambda left_s: connection.admin.alter_consumer_group_offsets(asked, request_timeout=left_s)
    )[group]
    if isinstance(found, KafkaError):
        if found.code() == KafkaError.UNKNOWN_MEMBER_ID:  # how a broker refuses a commit of a non-member
            found = KafkaError(KafkaError.NON_EMPTY_GROUP)
        raise connection.error(found, "group", group, change="resetting")
    for place in found.topic_partitions:
        if place.error is not None:
            name = partition_label((place.topic, place.partition))
            raise connection.error(place.error, "partition", name, change="resetting")


def require_no_members(connection: KafkaClient, group: str) -> None:
    """Raises if the group has members: they would overwrite the new offsets."""
    described = describe_group(connection, group)
    if described is not None and described.members:
        names = ", ".join(sorted(f"{member.client_id} at {member.host}" for member in described.members)[:3])
        count = len(described.members)
        members = f"{count} active member{'s' if count > 1 else ''} ({names}{', …' if count > 3 else ''})"
        raise KafkaConflictError("group", group, f"has {members}: stop them first")


def delete_groups(connection: KafkaClient, groups: Sequence[str]) -> dict[str, HoldfastError | None]:
    """The error of each group; None: it is deleted."""
    return {group: _delete(connection, group) for group in dict.fromkeys(groups)}


def _delete(connection: KafkaClient, group: str) -> HoldfastError | None:
    _require_name(group)
    found = connection.call(lambda left_s: connection.admin.delete_consumer_groups([group], request_timeout=left_s))
    answer = found[group]
    return connection.error(answer, "group", group, change="deleting") if isinstance(answer, KafkaError) else None


def _require_name(group: str) -> None:
    if not 0 < len(group) <= _NAME_CHARS_MAX or "\0" in group:
        raise InvalidError("group", group[:80], f"a name of 1 to {_NAME_CHARS_MAX} characters without NUL")


def _places(connection: KafkaClient, topics: Sequence[str], partitions: Sequence[int]) -> list[PartitionRef]:
    there = [(topic.name, info.id) for topic in connection.describe(topics).values() for info in topic.partitions]
    if missing := [(topic, number) for topic in topics for number in partitions if (topic, number) not in there]:
        raise KafkaNotFoundError("partition", partition_label(missing[0]), f"does not exist at {connection.bootstrap}")
    return [place for place in there if not partitions or place[1] in partitions]


def _shifted(
    group: str, committed: Mapping[PartitionRef, int], offsets: Mapping[PartitionRef, PartitionOffsets], shift: int
) -> dict[PartitionRef, int]:
    known = {
        place: each.offsets.clamp(committed[place] + shift) for place, each in offsets.items() if place in committed
    }
    if not known:
        raise KafkaRefusedError("group", group, "has no committed offset there to shift from")
    return known


def _progress(
    place: PartitionRef, committed: int | None, found: PartitionOffsets | KafkaError, member: str | None
) -> GroupProgress:
    end = found.offsets.end if isinstance(found, PartitionOffsets) else None
    lag = None if end is None or committed is None else max(0, end - committed)
    return GroupProgress(*place, committed, end, lag, member)
