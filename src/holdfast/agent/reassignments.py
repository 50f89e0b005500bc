"""Partitions on their way to the agents that an operator has assigned them to. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from holdfast.kernel.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition on its way to the agents that it is assigned to. `replicas`: those that have it now."""

    topic: str
    partition: int
    leader: str | None
    assigned: Placement
    replicas: Placement


def target_agents(assigned: Placement, live: Collection[str], factor: int) -> Placement:
    """The assigned agents that can have the partition now, the leader first: the planner replaces those that are gone."""
    return tuple(agent for agent in assigned if agent in live)[:factor]


def is_under_way(target: Placement, *, leader: str | None, replicas: Placement, factor: int) -> bool:
    """Whether leader or replicas still differ from the target. An assignment of fewer agents leaves the others to the planner."""
    if not target:
        return False
    return leader != target[0] or not {*target} <= {*replicas} or len(replicas) > factor
