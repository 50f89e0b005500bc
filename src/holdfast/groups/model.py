"""Requests and results of the group service, offsets, listings. Data only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from holdfast.kafka.special_offsets import NO_EPOCH
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.types import TopicPartition


class GroupState(StrEnum):
    """States of a group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class AssignmentProtocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata for the leader. A tuple, as it is stored."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member joins the next generation.

    `require_known_member_id`: a new member first gets its id and joins again with it, so that a lost reply leaves no stale member.
    `supports_skipping_assignment`: the client understands `JoinResult.skip_assignment`.
    """

    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = "consumer"
    protocols: tuple[AssignmentProtocol, ...] = ()
    require_known_member_id: bool = False
    supports_skipping_assignment: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member as the group's leader sees it."""

    id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """A member's new generation. `members`: for the leader only. `skip_assignment`: the leader must not assign."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberMetadata, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member waits for its assignment; the leader sends those of all. Protocol names, if given, are checked."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """A member's assignment in the current generation."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A member to remove: by id, or by instance id alone."""

    member_id: str = ""
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The result of a `LeaveRequest`; `error` is None if the member left."""

    leaving: LeaveRequest
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A consumer's committed position in a partition. `leader_epoch`: optional.

    `committed_at_ms` and `topic_id` are set by the coordinator: an offset of a deleted topic has no meaning in a new topic of the
    same name. A client that has named the topic by its id commits to no other.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    committed_at_ms: int = 0
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list."""

    id: str
    protocol_type: str
    state: GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member for operators."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group for operators. Metadata and assignments are set while the group is stable."""

    id: str
    state: GroupState
    protocol_type: str
    protocol: str
    generation: int
    leader: str
    members: Sequence[MemberDescription] = ()


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in one partition. `lag` is None while the end is unknown."""

    partition: TopicPartition
    committed: int
    end: int | None
    lag: int | None
