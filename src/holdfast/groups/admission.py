"""Whether a member may join: session timeout, common protocol, number of members, and the memory of all.

The one rule: a member that the group has is not refused because of what others added, unless memory has to end somewhere.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from holdfast.groups.errors import GroupRefusal, GroupRefusedError, LimitReached
from holdfast.groups.member import GroupMember, metadata_bytes, own_bytes
from holdfast.groups.memory import GroupMemory
from holdfast.groups.model import GroupState, JoinRequest
from holdfast.groups.protocol_selection import has_common_protocol
from holdfast.groups.settings import GroupSettings
from holdfast.groups.shared_metadata import SharedMetadata

_GROWTH_MAX: Final = 2  # times the memory that new members are admitted to: for those that the group has
_UNCHANGED_BYTES_MAX: Final = (
    256  # by which a member that joins again may grow in any case: its host has another name, say
)


class Joinable(Protocol):
    """The part of a group that admission depends on."""

    id: str
    settings: GroupSettings
    memory: GroupMemory
    shared: SharedMetadata
    state: GroupState
    protocol_type: str

    @property
    def members(self) -> Mapping[str, GroupMember]: ...


def check_join(group: Joinable, request: JoinRequest) -> None:
    """Raise `GroupRefusedError` if the member may not join. The member itself, or the one it replaces, does not count."""
    settings = group.settings
    others = [member for member in group.members.values() if not _is(member, request)]
    if not settings.session_min_ms <= request.session_timeout_ms <= settings.session_max_ms:
        raise GroupRefusedError(group.id, GroupRefusal.INVALID_SESSION_TIMEOUT)
    if len(request.protocols) > settings.protocols_max:
        limit = LimitReached("protocols_max", settings.protocols_max, len(request.protocols))
        raise GroupRefusedError(group.id, GroupRefusal.TOO_LARGE, limit=limit)
    if not request.protocol_type or (others and request.protocol_type != group.protocol_type):
        raise GroupRefusedError(group.id, GroupRefusal.INCONSISTENT_PROTOCOL)
    if not has_common_protocol(others, request.protocols):
        raise GroupRefusedError(group.id, GroupRefusal.INCONSISTENT_PROTOCOL)
    if _full(group, others):
        limit = LimitReached("size_max", settings.size_max, len(others) + 1)
        raise GroupRefusedError(group.id, GroupRefusal.GROUP_FULL, limit=limit)
    _check_memory(group, request, others)


def _check_memory(group: Joinable, request: JoinRequest, others: list[GroupMember]) -> None:
    joining_bytes = own_bytes(request.member_id or request.client_id, request)
    size_bytes = joining_bytes + metadata_bytes(request.protocols)
    bytes_max = group.settings.members_bytes_max
    if size_bytes > bytes_max:
        limit = LimitReached("members_bytes_max", bytes_max, size_bytes)
        raise GroupRefusedError(group.id, GroupRefusal.TOO_LARGE, limit=limit)
    total_bytes = size_bytes + sum(member.size_bytes for member in others)
    is_new = len(others) == len(group.members)
    if total_bytes > (bytes_max if is_new else _GROWTH_MAX * bytes_max):
        limit = LimitReached("members_bytes_max", bytes_max, total_bytes)
        raise GroupRefusedError(group.id, GroupRefusal.GROUP_FULL, limit=limit)
    before = next((member for member in group.members.values() if _is(member, request)), None)
    if before is None:
        group.memory.check_room(group.id, joining_bytes + group.shared.growth_bytes(request.protocols))
        return
    growth_bytes = joining_bytes - before.own_bytes + group.shared.growth_bytes(request.protocols, before.protocols)
    if growth_bytes > _UNCHANGED_BYTES_MAX:
        group.memory.check_room(group.id, growth_bytes)


def _full(group: Joinable, others: list[GroupMember]) -> bool:
    if group.state is GroupState.PREPARING:  # members join again: first come, first served
        return sum(member.joining is not None for member in others) >= group.settings.size_max
    return len(others) == len(group.members) >= group.settings.size_max


def _is(member: GroupMember, request: JoinRequest) -> bool:
    return member.id == request.member_id or (
        request.instance_id is not None and member.instance_id == request.instance_id
    )


def check_assignments(group: Joinable, assignments: Iterable[bytes]) -> None:
    """Raise `GroupRefusedError` if a generation's assignments take too much memory; those before them are about to go."""
    size_bytes, bytes_max = sum(map(len, assignments)), group.settings.assignment_bytes_max
    if size_bytes > bytes_max:
        limit = LimitReached("assignment_bytes_max", bytes_max, size_bytes)
        raise GroupRefusedError(group.id, GroupRefusal.GROUP_FULL, limit=limit)
    added_bytes = size_bytes - sum(len(member.assignment) for member in group.members.values())
    if added_bytes > 0:
        group.memory.check_room(group.id, added_bytes)
