"""A member of a group, in memory and in the store."""

from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.groups.model import AssignmentProtocol, JoinRequest
from holdfast.groups.shared_metadata import SharedMetadata

Ticket = object  # a call that waits for its reply, opaque to the group

_PROTOCOL_BYTES: Final = 64  # of memory, beside its name and metadata
_CHAR_BYTES_MAX: Final = 4


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

    `size_bytes`: what the client sent, metadata that protocols have in common counted once; `own_bytes`: of this, what members
    never share. `id_known`: the client has got its id. `replaced_at`: the member took over an instance id in a stable group; its
    reply waits until this change is saved.
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
    own_bytes: int = 0
    protocol_names: frozenset[str] = frozenset()

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

    def update(self, request: JoinRequest, shared: SharedMetadata) -> None:
        """Take over the fields of a new join request."""
        before = self.protocols
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        self.protocols = shared.hold(request.protocols)
        self.supports_skipping_assignment = request.supports_skipping_assignment
        shared.release(before)
        self.measure()

    def record(self, assignment: bytes) -> MemberRecord:
        """The member inside the group's record."""
        return MemberRecord(
            id=self.id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
        )

    def measure(self) -> None:
        """Set what follows from its fields."""
        self.protocol_names = frozenset(each.name for each in self.protocols)
        self.own_bytes = own_bytes(self.id, self)
        self.size_bytes = self.own_bytes + metadata_bytes(self.protocols)


def member_from_request(member_id: str, request: JoinRequest, shared: SharedMetadata) -> GroupMember:
    """A member from its join request."""
    member = GroupMember(
        id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=shared.hold(request.protocols),
        supports_skipping_assignment=request.supports_skipping_assignment,
    )
    member.measure()
    return member


def member_from_record(record: MemberRecord, now_ms: int, shared: SharedMetadata) -> GroupMember:
    """A member from the store: it has its whole session timeout to find its new coordinator."""
    member = GroupMember(
        id=record.id,
        instance_id=record.instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        session_timeout_ms=record.session_timeout_ms,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        protocols=shared.hold(AssignmentProtocol(name, metadata) for name, metadata in record.protocols),
        assignment=record.assignment,
        synced=True,
        id_known=True,
    )
    member.touch(now_ms)
    member.measure()
    return member


def own_bytes(member_id: str, sent: JoinRequest | GroupMember) -> int:
    """The memory of a member, or of one that joins like this, without metadata, which members share."""
    texts = [
        member_id,
        sent.instance_id or "",
        sent.client_id,
        sent.client_host,
        *(each.name for each in sent.protocols),
    ]
    return _PROTOCOL_BYTES * len(sent.protocols) + sum(map(_text_bytes, texts))


def metadata_bytes(protocols: tuple[AssignmentProtocol, ...]) -> int:
    """The size of the metadata of a member; what several of its protocols have in common counts once."""
    return sum(map(len, {each.metadata for each in protocols}))


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else _CHAR_BYTES_MAX * len(text)
