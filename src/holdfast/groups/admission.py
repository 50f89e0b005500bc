"""Who may join a group: timeouts in range, a protocol in common with the others, a place, and room in the group's record."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.member import GroupMember, member_from_request
from holdfast.groups.model import GroupState, JoinRequest
from holdfast.groups.protocol_selection import has_common_protocol
from holdfast.groups.settings import GroupSettings


class Joinable(Protocol):
    """What of a group decides about newcomers."""

    id: str
    settings: GroupSettings
    state: GroupState
    protocol_type: str

    @property
    def members(self) -> Mapping[str, GroupMember]: ...


def check_join(group: Joinable, ask: JoinRequest) -> None:
    """Refuse what may not join. Whoever takes a member's place (or is it) does not need another."""
    settings = group.settings
    others = [member for member in group.members.values() if not _is(member, ask)]
    if not settings.session_min_ms <= ask.session_timeout_ms <= settings.session_max_ms:
        raise GroupRefusedError(group.id, GroupRefusal.INVALID_SESSION_TIMEOUT)
    if not ask.protocol_type or (others and ask.protocol_type != group.protocol_type):
        raise GroupRefusedError(group.id, GroupRefusal.INCONSISTENT_PROTOCOL)
    if not has_common_protocol(others, ask.protocols):
        raise GroupRefusedError(group.id, GroupRefusal.INCONSISTENT_PROTOCOL)
    if _full(group, others):
        raise GroupRefusedError(group.id, GroupRefusal.GROUP_FULL)
    size_bytes = member_from_request(ask.member_id or ask.client_id, ask).size_bytes
    if size_bytes > settings.members_bytes_max:
        raise GroupRefusedError(group.id, GroupRefusal.TOO_LARGE)
    if size_bytes + sum(member.size_bytes for member in others) > settings.members_bytes_max:
        raise GroupRefusedError(group.id, GroupRefusal.GROUP_FULL)


def _full(group: Joinable, others: list[GroupMember]) -> bool:
    if group.state is GroupState.PREPARING:  # places are given anew: first come, first served
        return sum(member.joining is not None for member in others) >= group.settings.size_max
    return len(others) == len(group.members) >= group.settings.size_max


def _is(member: GroupMember, ask: JoinRequest) -> bool:
    return member.id == ask.member_id or (ask.instance_id is not None and member.instance_id == ask.instance_id)


def assignments_fit(group: Joinable, assignments: Iterable[bytes]) -> bool:
    """Whether a generation's assignments fit into the group's record."""
    return sum((len(each) + 2) // 3 * 4 for each in assignments) <= group.settings.assignment_bytes_max
