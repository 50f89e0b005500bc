"""The description of a group for operators."""

from holdfast.groups.group import Group
from holdfast.groups.model import GroupDescription, GroupState, MemberDescription


def describe(group: Group) -> GroupDescription:
    """Describe a group; protocol, metadata and assignments only while it is stable."""
    stable = group.state is GroupState.STABLE
    return GroupDescription(
        id=group.id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol if stable else "",
        generation=group.generation,
        leader=group.leader,
        members=[
            MemberDescription(
                id=member.id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol) if stable else b"",
                assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ],
    )
