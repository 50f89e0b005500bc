"""A member of a group, in memory and in the store."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from holdfast.groups.model import AssignmentProtocol, JoinRequest

Ticket = object  # a call that waits for its reply, opaque to the group


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member inside a group's record; bytes are base64."""

    id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True, eq=False)
class GroupMember:
    """A member. `deadline_ms` counts only while none of its calls waits: a waiting member is alive.

    `id_known`: the client has got its id. `replaced_at`: the member took over an instance id in a stable group; its reply waits
    until this change is saved.
    """

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[AssignmentProtocol, ...]
    assignment: bytes = b""
    deadline_ms: int = 0
    joining: Ticket | None = None
    syncing: Ticket | None = None
    synced: bool = False
    id_known: bool = False
    supports_skipping_assignment: bool = False
    replaced_at: int = 0
    size_bytes: int = 0

    @property
    def waiting(self) -> bool:
        """Whether one of its calls waits for a reply."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str) -> bytes:
        """Its metadata in a protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def touch(self, now_ms: int) -> None:
        """Renew the session."""
        self.deadline_ms = now_ms + self.session_timeout_ms

    def update(self, request: JoinRequest) -> None:
        """Take over the fields of a new join request."""
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        self.protocols, self.supports_skipping_assignment = request.protocols, request.supports_skipping_assignment
        self.size_bytes = memory_bytes(self)

    def record(self, assignment: bytes) -> MemberRecord:
        """The member inside the group's record."""
        return MemberRecord(
            id=self.id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=tuple((each.name, each.metadata) for each in self.protocols),
            assignment=assignment,
        )


def member_from_request(member_id: str, request: JoinRequest) -> GroupMember:
    """A member from its join request."""
    member = GroupMember(
        id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        supports_skipping_assignment=request.supports_skipping_assignment,
    )
    member.size_bytes = memory_bytes(member)
    return member


def member_from_record(record: MemberRecord, now_ms: int) -> GroupMember:
    """A member from the store: it has its whole session timeout to find its new coordinator."""
    member = GroupMember(
        id=record.id,
        instance_id=record.instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        session_timeout_ms=record.session_timeout_ms,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        protocols=tuple(AssignmentProtocol(name, metadata) for name, metadata in record.protocols),
        assignment=record.assignment,
        synced=True,
        id_known=True,
    )
    member.touch(now_ms)
    member.size_bytes = memory_bytes(member)
    return member


def memory_bytes(member: GroupMember) -> int:
    """The size of what the client sent; what several of its protocols have in common counts once."""
    texts = (member.id, member.instance_id or "", member.client_id, member.client_host)
    names = sum(len(each.name) for each in member.protocols)
    return sum(map(len, texts)) + names + sum(map(len, {each.metadata for each in member.protocols}))


def share_metadata(members: Iterable[GroupMember]) -> None:
    """Keep what the metadata of several members have in common once: most subscriptions are alike."""
    known: dict[bytes, bytes] = {}
    for member in members:
        member.protocols = tuple(
            replace(each, metadata=known.setdefault(each.metadata, each.metadata)) for each in member.protocols
        )
