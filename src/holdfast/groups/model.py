"""What faces and groups say to each other: requests, answers, offsets, listings. Data only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.types import TopicPartition


class GroupState(StrEnum):
    """Where a group stands; the names are Kafka's."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class AssignmentProtocol:
    """A way to assign that a member supports, and what it says to the leader about itself in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member wants to be in the next generation.

    `id_required`: a newcomer is first told its id, and joins with it (so that a lost answer leaves no ghost behind).
    `may_skip`: the member understands "you lead, but need not assign anything".
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
    """A member as the leader is told of it."""

    id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The generation a member is in now. `members` is for the leader alone; `skip_assignment`: it need not assign."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberMetadata, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings everybody's. Protocol names, if given, are checked."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """A member's assignment in the present generation."""

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
    """What became of a `Leaving`; `error` is None if it left."""

    leaving: LeaveRequest
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A position in a partition, as a consumer committed it. `leader_epoch` -1: it did not say.

    `committed_at_ms` and `topic_id` are the coordinator's to fill in: an offset of a topic that was deleted means nothing in a
    new topic of the same name.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at_ms: int = 0
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One line of a list of groups."""

    id: str
    protocol_type: str
    state: GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member as an operator sees it."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as an operator sees it. Metadata and assignments are shown once the group is stable."""

    id: str
    state: GroupState
    protocol_type: str
    protocol: str
    generation: int
    leader: str
    members: Sequence[MemberDescription] = ()


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition. `lag` is None while the end is not known."""

    partition: TopicPartition
    committed: int
    end: int | None
    lag: int | None
