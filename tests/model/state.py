"""An explicit-state model of quorum replication: one partition, its replicas, its leaders and the store.

There is no message queue. The log of a leader only grows within its epoch, so a delayed, repeated or reordered APPEND is "any
prefix of that log, to any member, at any time, also after its sender died", and a crashed leader is one that never acts again.
Acquiring is possible at any moment, so every suspicion may be wrong. `Limits.bug` switches one rule off; the search has to find
every such bug.
"""

from functools import cache
from typing import Final, NamedTuple

Entry = tuple[int, int]  # (epoch, value); value 0: the epoch-start entry, which takes no offset
Log = tuple[Entry, ...]
Member = tuple[int, int]  # (agent, WAL): an agent with a new disk is another replica
Step = tuple[object, ...]

START: Final = 0
SEALING, RECOVERING, SERVING, HANDED_OVER, DEAD = "sealing", "recovering", "serving", "handed over", "dead"


class Replica(NamedTuple):
    """What an agent has on its disk."""

    log: Log = ()
    promised: int = 0
    wal: int = 0


class Epoch(NamedTuple):
    """One leader, from its lease to its end. `acked`: of each member, how many entries of `log` it has; -1: it never answered."""

    leader: Member
    members: tuple[Member, ...]
    phase: str
    to_seal: tuple[Member, ...] = ()
    sealed: tuple[Member, ...] = ()
    peeked: tuple[Member, ...] = ()
    log: Log = ()  # while sealing: the best that was found
    acked: tuple[int, ...] = ()
    hw: int = 0  # entries, not offsets
    may_append: bool = False
    in_sync: int = 0  # only where a bug lets it count
    began: int = 0  # entries that were recovered, and the epoch-start entry
    served: bool = False


class State(NamedTuple):
    """Everything. `visible`, `answered` and `reader` are what clients saw: the store and the agents do not know them."""

    replicas: tuple[Replica, ...]
    epochs: tuple[Epoch, ...] = ()  # of epoch 1, 2, …
    opened: int = 0  # the last epoch that served
    opened_members: tuple[Member, ...] = ()
    published: Log = ()
    dirty: bool = False  # reserved > published
    values: int = 0  # used so far
    lost_disks: int = 0
    restarts: int = 0
    visible: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()
    reader: tuple[int, int] = (0, 0)  # the highest epoch and end offset that were seen


class Limits(NamedTuple):
    """The bounds of a search. `sets`: sizes of replica sets. The others switch steps on."""

    agents: int = 3
    epochs: int = 2
    appends: int = 2
    lost_disks: int = 0
    sets: tuple[int, ...] = (3,)
    min_insync: int = 1
    publishes: bool = False  # publish, reserve and give back
    hand_over: bool = False
    drops: bool = False
    begins_anew: bool = False  # a replica that cannot be read
    retries: bool = False
    end_offsets: bool = False
    bug: str = ""


class ViolationError(Exception):
    """An invariant does not hold."""


def initial(limits: Limits) -> State:
    return State(replicas=(Replica(),) * limits.agents)


@cache
def values_of(log: Log) -> tuple[int, ...]:
    return tuple(value for _, value in log if value != START)


def position(log: Log) -> tuple[int, int]:
    """(epoch of the last entry, end offset): what replicas are compared by."""
    return (log[-1][0], len(values_of(log))) if log else (0, 0)


def common(ours: Log, theirs: Log) -> int:
    """How many entries have the same positions."""
    at = 0
    for mine, other in zip(ours, theirs, strict=False):
        if mine[0] != other[0] or (mine[1] == START) != (other[1] == START):
            break
        at += 1
    return at


def write_quorum(size: int) -> int:
    return size // 2 + 1


def seal_quorum(size: int) -> int:
    return size - write_quorum(size) + 1
