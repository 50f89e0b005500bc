"""The protocol of a generation: supported by every member, preferred by most."""

from collections.abc import Collection

from holdfast.groups.member import GroupMember
from holdfast.groups.model import AssignmentProtocol


def common_protocols(members: Collection[GroupMember]) -> set[str]:
    """The protocols that every member supports."""
    distinct = {member.protocol_names for member in members}  # most members are alike
    return set(frozenset.intersection(*distinct)) if distinct else set()


def has_common_protocol(others: Collection[GroupMember], protocols: Collection[AssignmentProtocol]) -> bool:
    """Whether these protocols and the other members' have one in common."""
    names = {each.name for each in protocols}
    return bool(names if not others else names & common_protocols(others))


def select_protocol(members: Collection[GroupMember]) -> str:
    """Every member votes for the first on its list that all support; a tie goes to the earliest vote."""
    candidates = common_protocols(members)
    votes: dict[str, int] = {}
    for member in members:
        favourite = next(each.name for each in member.protocols if each.name in candidates)
        votes[favourite] = votes.get(favourite, 0) + 1
    return max(votes, key=lambda name: votes[name])
