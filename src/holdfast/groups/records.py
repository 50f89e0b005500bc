"""Records under `group/…` and `offset/…`. JSON, so that people can query them with SQL."""

from typing import TypeVar

import msgspec

from holdfast.contracts.store import Entry
from holdfast.groups.group import Group
from holdfast.groups.member import MemberRecord, member_from_record
from holdfast.groups.model import CommittedOffset, GroupState
from holdfast.groups.settings import GroupSettings
from holdfast.kafka.special_offsets import NO_EPOCH
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.types import TopicPartition

R = TypeVar("R", bound=msgspec.Struct)


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A group between rebalances: `Stable` with members, or `Empty` since `empty_since_ms` (wall time)."""

    group: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberRecord, ...] = ()
    empty_since_ms: int | None = None
    format: int = 1


class OffsetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One partition's offset."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    committed_at_ms: int = 0


class OffsetsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of up to sixteen partitions of a topic; keys of `partitions` are their numbers."""

    group: str
    topic: str
    topic_id: str = ""
    partitions: dict[str, OffsetRecord]
    format: int = 1


def write_group(group: Group) -> bytes | None:
    """The record of a group; None while it rebalances, when there is nothing to save."""
    if group.state is GroupState.EMPTY:
        state, assignments = GroupState.EMPTY, {}
    else:
        found = group.assignments
        if found is None:
            return None
        state, assignments = GroupState.STABLE, found
    return msgspec.json.encode(
        GroupRecord(
            group=group.id,
            state=state,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader,
            members=tuple(member.record(assignments.get(member.id, b"")) for member in group.members.values()),
            empty_since_ms=group.empty_since_ms,
        )
    )


def read_group(entry: Entry, settings: GroupSettings, now_ms: int) -> Group:
    """The group of a record."""
    record = _decode(entry, GroupRecord)
    group = Group(record.group, settings)
    group.generation, group.protocol_type = record.generation, record.protocol_type
    group.protocol, group.leader, group.empty_since_ms = record.protocol, record.leader, record.empty_since_ms
    group.state = GroupState.STABLE if record.members else GroupState.EMPTY
    for each in record.members:
        group.members[each.id] = member_from_record(each, now_ms)
        if each.instance_id is not None:
            group.instances[each.instance_id] = each.id
    return group


def write_offsets(group_id: str, topic: str, offsets: dict[TopicPartition, CommittedOffset]) -> bytes:
    """Offsets of neighbouring partitions, all of the same topic id."""
    return msgspec.json.encode(
        OffsetsRecord(
            group=group_id,
            topic=topic,
            topic_id=next((each.topic_id for each in offsets.values() if each.topic_id), ""),
            partitions={
                str(partition.number): OffsetRecord(
                    offset=each.offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    committed_at_ms=each.committed_at_ms,
                )
                for partition, each in offsets.items()
            },
        )
    )


def read_offsets(entry: Entry) -> tuple[str, dict[TopicPartition, CommittedOffset]]:
    """The group id and offsets of a record."""
    record = _decode(entry, OffsetsRecord)
    return record.group, {
        TopicPartition(record.topic, int(number)): CommittedOffset(
            offset=each.offset,
            leader_epoch=each.leader_epoch,
            metadata=each.metadata,
            committed_at_ms=each.committed_at_ms,
            topic_id=record.topic_id,
        )
        for number, each in record.partitions.items()
    }


def _decode(entry: Entry, kind: type[R]) -> R:
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptError(f"record {entry.key}", str(error)) from None
