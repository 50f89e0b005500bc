"""How many replicas must have something. Pure.

The one rule: any `write_quorum` replicas of a set and any `seal_quorum` of it have one in common.
"""

from collections.abc import Iterable

from holdfast.log.replication.positions import Position


def write_quorum(size: int) -> int:
    """How many of a set must have fsynced an append before it is acknowledged; the in-sync set never lowers it."""
    return size // 2 + 1


def seal_quorum(size: int) -> int:
    """How many of a set must have promised a new epoch before its log is chosen."""
    return size - write_quorum(size) + 1


def reached_by(acked: Iterable[Position], count: int) -> Position | None:
    """The highest position that at least `count` have fsynced; None: there are fewer."""
    found = sorted(acked, reverse=True)
    return found[count - 1] if 0 < count <= len(found) else None
