"""Whether a member may join: session timeout, common protocol, number of members, size of the group's record."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.member import GroupMember, member_from_request
from holdfast.groups.model import GroupState, JoinRequest
from holdfast.groups.protocol_selection import has_common_protocol
from holdfast.groups.settings import GroupSettings


class Joinable(Protocol):
    """The part of a group that admission depends on."""

    id: str
    settings: GroupSettings
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
        raise GroupRefusedError(group.id, GroupRefusal.TOO_LARGE)
    if not request.protocol_type or (others and request.protocol_type != group.protocol_type):
        raise GroupRefusedError(group.id, GroupRefusal.INCONSISTENT_PROTOCOL)
    if not has_common_protocol(others, request.protocols):
        raise GroupRefusedError(group.id, GroupRefusal.INCONSISTENT_PROTOCOL)
    if _full(group, others):
        raise GroupRefusedError(group.id, GroupRefusal.GROUP_FULL)
    size_bytes = member_from_request(request.member_id or request.client_id, request).size_bytes
    if size_bytes > settings.members_bytes_max:
        raise GroupRefusedError(group.id, GroupRefusal.TOO_LARGE)
    if size_bytes + sum(member.size_bytes for member in others) > settings.members_bytes_max:
        raise GroupRefusedError(group.id, GroupRefusal.GROUP_FULL)


def _full(group: Joinable, others: list[GroupMember]) -> bool:
    if group.state is GroupState.PREPARING:  # members join again: first come, first served
        return sum(member.joining is not None for member in others) >= group.settings.size_max
    return len(others) == len(group.members) >= group.settings.size_max


def _is(member: GroupMember, request: JoinRequest) -> bool:
    return member.id == request.member_id or (
        request.instance_id is not None and member.instance_id == request.instance_id
    )


def assignments_fit(group: Joinable, assignments: Iterable[bytes]) -> bool:
    """Whether a generation's assignments fit into the group's record."""
    return sum((len(each) + 2) // 3 * 4 for each in assignments) <= group.settings.assignment_bytes_max
