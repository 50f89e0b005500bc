"""Records under `group/…` and `offset/…`. JSON, so that people can query them with SQL.

The members of a large group are compressed: their subscriptions and assignments repeat each other. What is too large even so is
left out: its members are unknown to the next coordinator, and join again.

The one rule: no record is written that could not be read, nor does one that is too large keep others from being read.
"""

import logging
from typing import Final, TypeVar

import msgspec

from holdfast.contracts.store import Entry
from holdfast.groups.group import Group
from holdfast.groups.member import MemberRecord, member_from_record
from holdfast.groups.memory import GroupMemory
from holdfast.groups.model import CommittedOffset, GroupState
from holdfast.groups.settings import GroupSettings
from holdfast.kafka.special_offsets import NO_EPOCH
from holdfast.log.batches.compression import DecompressError, codec_number, compress, decompress
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.types import TopicPartition

_log: Final = logging.getLogger(__name__)

_PACKED_MIN_BYTES: Final = 32 * KIB
_UNPACKED_MAX_BYTES: Final = 256 * MIB  # more than any settings allow
_MEMBER_BYTES: Final = 256  # beside what its client sent
_ZSTD: Final = codec_number("zstd")

R = TypeVar("R", bound=msgspec.Struct)


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A group between rebalances: `Stable` with members, or `Empty` since `empty_since_ms` (wall time).

    `packed_members`: the members instead, as `PackedMembers` in MessagePack, compressed with Zstandard. Builds before format 3
    wrote `packed`, a sequence of `MemberRecord`; they see no members in a record of this one. `members_left_out`: so many do not
    fit.
    """

    group: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberRecord, ...] = ()
    packed: bytes | msgspec.UnsetType = msgspec.UNSET
    packed_members: bytes | msgspec.UnsetType = msgspec.UNSET
    members_left_out: int | msgspec.UnsetType = msgspec.UNSET
    empty_since_ms: int | None = None
    format: int = 1


class PackedMembers(msgspec.Struct, frozen=True):
    """Members without metadata, and for each protocol of each member, in their order, which of the distinct `metadata` it has."""

    metadata: tuple[bytes, ...]
    members: tuple[MemberRecord, ...]
    numbers: tuple[tuple[int, ...], ...]


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


def group_record(group: Group) -> GroupRecord | None:
    """The record of a group as it is; None while it rebalances, when there is nothing to save."""
    if group.state is GroupState.EMPTY:
        state, assignments = GroupState.EMPTY, {}
    else:
        found = group.assignments
        if found is None:
            return None
        state, assignments = GroupState.STABLE, found
    return GroupRecord(
        group=group.id,
        state=state,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=tuple(member.record(assignments.get(member.id, b"")) for member in group.members.values()),
        empty_since_ms=group.empty_since_ms,
    )


def is_large(record: GroupRecord) -> bool:
    """Whether its members are to be compressed, which takes a thread."""
    size_bytes = 0
    for member in record.members:
        size_bytes += _size_bytes(member)
        if size_bytes > _PACKED_MIN_BYTES:
            return True
    return False


def _size_bytes(member: MemberRecord) -> int:
    protocols = sum(len(name) + len(metadata) for name, metadata in member.protocols)
    names = len(member.id) + len(member.instance_id or "") + len(member.client_id)
    return _MEMBER_BYTES + names + len(member.assignment) + protocols


def encode_group(record: GroupRecord) -> bytes:
    """A record as it is stored."""
    return msgspec.json.encode(record)


def encode_large_group(record: GroupRecord, bytes_max: int) -> tuple[bytes, int]:
    """A large record as it is stored, and its size with all members, who are left out if that is too large.

    Members that could not be read again even so have the size that they have before they are compressed.
    """
    alone = msgspec.structs.replace(record, members=(), format=3)
    left_out = msgspec.structs.replace(alone, members_left_out=len(record.members))
    plain = msgspec.msgpack.encode(_with_distinct_metadata(record.members))
    if len(plain) > max(_UNPACKED_MAX_BYTES, bytes_max):
        return encode_group(left_out), len(plain)
    packed = compress(_ZSTD, plain)
    size_bytes = len(encode_group(alone)) + (len(packed) + 2) // 3 * 4
    if size_bytes > bytes_max:
        return encode_group(left_out), size_bytes
    return encode_group(msgspec.structs.replace(alone, packed_members=packed)), size_bytes


def _with_distinct_metadata(members: tuple[MemberRecord, ...]) -> PackedMembers:
    places: dict[bytes, int] = {}
    numbers = tuple(
        tuple(places.setdefault(metadata, len(places)) for _, metadata in member.protocols) for member in members
    )
    alone = tuple(
        msgspec.structs.replace(member, protocols=tuple((name, b"") for name, _ in member.protocols))
        for member in members
    )
    return PackedMembers(tuple(places), alone, numbers)


def _with_metadata(packed: PackedMembers) -> tuple[MemberRecord, ...]:
    """The members; `IndexError`, `ValueError`: these are not what was packed."""
    return tuple(
        msgspec.structs.replace(
            member,
            protocols=tuple(
                (name, packed.metadata[number]) for (name, _), number in zip(member.protocols, numbers, strict=True)
            ),
        )
        for member, numbers in zip(packed.members, packed.numbers, strict=True)
    )


def read_record(entry: Entry) -> GroupRecord:
    """The record of a group, its members compressed as they are."""
    return _decode(entry, GroupRecord)


def is_packed(record: GroupRecord) -> bool:
    """Whether its members are compressed, and take a thread to be read."""
    return record.packed is not msgspec.UNSET or record.packed_members is not msgspec.UNSET


def unpack_members(entry: Entry, record: GroupRecord) -> GroupRecord:
    """The record with its members; without them if they are too large: earlier builds wrote more than can be read."""
    alone = msgspec.structs.replace(record, packed=msgspec.UNSET, packed_members=msgspec.UNSET)
    try:
        members = _unpacked(record)
    except DecompressError as error:
        if not error.too_large:
            raise CorruptError(f"record {entry.key}", str(error)) from None
        _log.warning("group %r: its members are too large to be read, and join again: %s", record.group, error.reason)
        return alone
    except (msgspec.DecodeError, ValueError, IndexError) as error:
        raise CorruptError(f"record {entry.key}", str(error)) from None
    return msgspec.structs.replace(alone, members=members)


def _unpacked(record: GroupRecord) -> tuple[MemberRecord, ...]:
    if record.packed_members is not msgspec.UNSET:
        plain = decompress(_ZSTD, record.packed_members, bytes_max=_UNPACKED_MAX_BYTES)
        return _with_metadata(msgspec.msgpack.decode(plain, type=PackedMembers))
    if record.packed is not msgspec.UNSET:
        plain = decompress(_ZSTD, record.packed, bytes_max=_UNPACKED_MAX_BYTES)
        return msgspec.msgpack.decode(plain, type=tuple[MemberRecord, ...])
    return record.members


def read_group(record: GroupRecord, settings: GroupSettings, now_ms: int, memory: GroupMemory | None = None) -> Group:
    """The group of a record."""
    group = Group(record.group, settings, memory)
    group.generation, group.protocol_type = record.generation, record.protocol_type
    group.empty_since_ms = record.empty_since_ms
    if not record.members:
        return group
    group.state, group.protocol, group.leader = GroupState.STABLE, record.protocol, record.leader
    for each in record.members:
        group.members[each.id] = member_from_record(each, now_ms, group.shared)
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
