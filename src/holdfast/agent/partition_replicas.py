"""Who keeps a partition's tail, by the names of agents: the sets that the log names by WAL, and whose WAL each is.

A WAL whose agent nobody knows any more is left out; one whose agent came back with another disk is not in sync, whatever its leader
has not noticed yet. For showing and placing only; whoever acts on replicas names WALs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.kernel.keys import NODES, member_key
from holdfast.kernel.mirror import Mirror
from holdfast.log.keys import replica_set_key, replica_sets_prefix, wal_agent_key
from holdfast.log.replica_sets import ReplicaSet
from holdfast.vocabulary.types import Member


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The agents of the set that served last, as planned then, alive or not, and those of them that kept up."""

    epoch: int
    agents: tuple[str, ...]
    in_sync: tuple[str, ...]


def named_replicas(
    found: ReplicaSet, wal_agents: Mapping[str, str], wal_of: Callable[[str], str | None]
) -> PartitionReplicas:
    """A set by the names of its agents. `wal_agents`: whose WAL it is, by `wal-agent/…`; `wal_of`: the one of a live agent."""

    def agent_of(wal: str) -> str | None:
        return wal_agents.get(wal_agent_key(wal))

    def named(agents: Iterable[str | None]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(agent for agent in agents if agent is not None))

    def is_replaced(wal: str) -> bool:
        agent = agent_of(wal)
        now = wal_of(agent) if agent is not None else None
        return bool(now) and now != wal

    in_sync = (agent_of(wal) for wal in found.in_sync if not is_replaced(wal))
    return PartitionReplicas(found.epoch, named(map(agent_of, found.replicas)), named(in_sync))


@dataclass(frozen=True, slots=True)
class ReplicaMirrors:
    """The parts of the store that replicas are known from.

    `wal_agents` and `nodes` change when an agent is started for the first time; `members`: the live agents, with their WALs.
    """

    sets: Mirror[ReplicaSet]
    wal_agents: Mirror[str]
    nodes: Mirror[int]
    members: Mirror[Member]

    @property
    def version(self) -> tuple[int, int, int]:
        """Changes with each of them but the members, which have a version of their own."""
        return self.sets.version, self.wal_agents.version, self.nodes.version

    def of(self, topic_id: str, number: int) -> PartitionReplicas | None:
        """The replicas of a partition."""
        found = self.sets.items.get(replica_set_key(topic_id, number))
        return None if found is None else self.named(found)

    def sets_of(self, topic_id: str, count: int) -> list[ReplicaSet | None]:
        """The sets of the partitions from 0 to `count`, by WALs: for thousands at a time, of which many are the same."""
        prefix, found = replica_sets_prefix(topic_id), self.sets.items.get
        return [found(f"{prefix}{number:05d}") for number in range(count)]

    def named(self, found: ReplicaSet) -> PartitionReplicas:
        """A set by the names of its agents."""
        return named_replicas(found, self.wal_agents.items, self._wal_of)

    def _wal_of(self, agent: str) -> str | None:
        member = self.members.items.get(member_key("agent", agent))
        return None if member is None else member.wal_id

    def node(self, member_id: str) -> int | None:
        """The numeric id of an agent that is here, or was."""
        return self.nodes.items.get(NODES + member_id)
