"""Who keeps the tail of a partition at `quorum`, when another set is due, and when another of it can lead. Pure.

The one rule: whatever set there is, an append needs as many replicas as a majority of the topic's factor
(`replica_sets.replicas_needed`). So a partition may be opened by fewer, and is read then, but nothing is acknowledged that has
fewer copies than the topic was promised.
"""

from collections.abc import Collection, Sequence


def choose_members(planned: Sequence[str], own: str, count: int) -> tuple[str, ...]:
    """The set of an epoch, by WAL ids: this agent's own, then the planned ones."""
    others = [each for each in dict.fromkeys(planned) if each != own]
    return (own, *others[: count - 1])


def can_hand_over_log(planned: Sequence[str], own: str, in_sync: Collection[str], needed: int) -> bool:
    """Whether a partition can move with its tail: the planned leader keeps up, and as many planned replicas as an append needs.

    This agent's own does not count: it may be leaving, with its disk.
    """
    keeping_up = [each for each in planned if each != own and each in in_sync]
    return bool(keeping_up) and keeping_up[0] == planned[0] and len(keeping_up) >= needed


def may_reopen_here(planned: Sequence[str], own: str, *, can_be_drained: bool) -> bool:
    """Whether the next epoch may begin on this agent: it is the planned leader, or nothing can be drained for that one.

    What was appended and cannot become durable, because too many members of the set are gone, or cannot be published, keeps a
    partition from moving: the move would wait for the members, and other members for the move. The planned leader as one of
    them, it moves with its tail.
    """
    return bool(planned) and (planned[0] == own or not can_be_drained)


def is_other_set_due(members: Sequence[str], wanted: Sequence[str], reachable: Collection[str], count: int) -> bool:
    """Whether an epoch with other members should begin: one that is wanted and can be reached is none, or there are too many.

    A member that is gone is no reason by itself: a smaller set has no smaller quorum. Nor are too many, while those that shall
    stay cannot be reached.
    """
    added = [each for each in wanted if each not in members and each in reachable]
    return bool(added) or (len(members) > count and len(set(wanted) & set(reachable)) >= count)
