"""The placement plan: plan = f(previous plan, members, workloads). Pure; the planner does the I/O.

Rules (docs/safety.md, rule 6): every agent gets ⌊P/A⌋…⌈P/A⌉ of each topic and of the total of its group; nothing moves that need
not; a partition that must move goes to one of its replicas if there is room, to one in sync first, else where the ring points. A
group without a live member keeps its previous plan: the first agent that returns finds its own partitions. What operators ask for
comes first: a drained agent gets nothing that others of its group can serve, and an assigned partition goes to the first of its
agents that is live.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from holdfast.kernel.hash_ring import HashRing
from holdfast.kernel.quotas import quotas
from holdfast.vocabulary.settings import check_at_least
from holdfast.vocabulary.types import Member, TopicPartition

Placement = tuple[str, ...]  # the owner, then its replicas; empty: no agent
PlacementPlan = dict[str, tuple[Placement, ...]]  # topic → placement of each partition
InSync = Callable[
    [str, int], Placement
]  # topic and partition number → the agents that have all of its tail, if that is known
TopicAssignment = Mapping[int, Placement]  # partition number → the agents an operator wants for it, the leader first

ANY_GROUP: Final = "*"  # the group of a workload that any agent may serve; it is balanced separately


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What to place for one topic: its partitions, on agents of `group`, with `replicas` copies in all.

    `rotates`: whether its leaders may ask for the next one. Records of earlier builds do not say.
    """

    topic: str
    partitions: int
    group: str = "default"
    replicas: int = 1
    rotates: bool = True

    def __post_init__(self) -> None:
        check_at_least("partitions", self.partitions, 1)
        check_at_least("replicas", self.replicas, 1)


@dataclass(frozen=True, slots=True)
class PlacementRequests:
    """What operators ask of the planner: agents to drain, and assignments by topic."""

    drained: Collection[str] = ()
    assigned: Mapping[str, TopicAssignment] = field(default_factory=dict)


def make_plan(
    previous: Mapping[str, Sequence[Placement]],
    members: Sequence[Member],
    workloads: Sequence[Workload],
    requests: PlacementRequests | None = None,
    in_sync: InSync = lambda topic, number: (),
) -> PlacementPlan:
    """The next plan. Deterministic: every process computes the same from the same input.

    `in_sync` is asked about partitions that have replicas and must move, and about no others.

    A topic that stays as it was keeps the very placements of `previous`: of thousands of partitions, hardly any change at a time.
    """
    requests = requests or PlacementRequests()
    by_group: dict[str, list[Workload]] = defaultdict(list)
    for workload in sorted(workloads, key=lambda each: each.topic):
        by_group[workload.group].append(workload)
    plan: PlacementPlan = {}
    for group, wanted in by_group.items():
        able = [member for member in members if group in (member.group, ANY_GROUP)]
        staying = [member for member in able if member.id not in requests.drained]
        agents = sorted(staying or able, key=lambda member: member.id)
        if agents:
            plan.update(_place_group(previous, agents, wanted, requests.assigned, in_sync))
        else:
            for workload in wanted:
                old = tuple(previous.get(workload.topic, ()))[: workload.partitions]
                plan[workload.topic] = old + ((),) * (workload.partitions - len(old))
    return plan


def _place_group(
    previous: Mapping[str, Sequence[Placement]],
    members: Sequence[Member],
    workloads: Sequence[Workload],
    assigned: Mapping[str, TopicAssignment],
    in_sync: InSync,
) -> PlacementPlan:
    ids = [member.id for member in members]
    live = set(ids)
    replicas = _replicas_among(tuple((member.id, member.zone) for member in members))
    ring = replicas.ring
    held: dict[str, dict[str, int]] = {}
    wanted: dict[str, dict[int, Placement]] = {}
    for workload in workloads:
        wanted[workload.topic] = _live_assignment(workload, assigned.get(workload.topic, {}), live)
        counts: dict[str, int] = defaultdict(int)
        for number, placement in enumerate(previous.get(workload.topic, ())[: workload.partitions]):
            placement = wanted[workload.topic].get(number, placement)
            if placement and placement[0] in live:
                counts[placement[0]] += 1
        held[workload.topic] = counts
    room = quotas(
        {workload.topic: workload.partitions for workload in workloads},
        held,
        ids,
        {workload.topic: list(ring.walk(str(TopicPartition(workload.topic, 0)))) for workload in workloads},
    )
    plan: PlacementPlan = {}
    for workload in workloads:
        old = previous.get(workload.topic, ())
        assignment = wanted[workload.topic]
        owners = _place_topic(workload, old, assignment, room[workload.topic], ring, in_sync)
        placements = replicas.placements(workload, owners, assignment)
        plan[workload.topic] = old if isinstance(old, tuple) and old == placements else placements
    return plan


def _live_assignment(workload: Workload, assigned: TopicAssignment, live: Collection[str]) -> dict[int, Placement]:
    """The assignments that can be followed now."""
    there = {number: tuple(agent for agent in agents if agent in live) for number, agents in assigned.items()}
    return {number: agents for number, agents in there.items() if agents and number < workload.partitions}


def _place_topic(
    workload: Workload,
    old: Sequence[Placement],
    assigned: TopicAssignment,
    room: dict[str, int],
    ring: HashRing,
    in_sync: InSync,
) -> list[str]:
    """Owners by partition number: as assigned, else stay where there is room, else go to a replica, else clockwise."""
    owners = [""] * workload.partitions
    left = dict(room)
    for number, agents in assigned.items():
        owners[number] = agents[0]
        left[agents[0]] -= 1
    for number, placement in enumerate(old[: workload.partitions]):
        if not owners[number] and placement and left.get(placement[0], 0) > 0:
            owners[number] = placement[0]
            left[placement[0]] -= 1
    for number, placement in enumerate(old[: workload.partitions]):
        if not owners[number] and len(placement) > 1:
            ready = in_sync(workload.topic, number)
            for agent in sorted(placement[1:], key=lambda agent: agent not in ready):
                if left.get(agent, 0) > 0:
                    owners[number] = agent
                    left[agent] -= 1
                    break
    with_room = {agent for agent, count in left.items() if count > 0}
    for number, owner in enumerate(owners):
        if not owner:
            owners[number] = agent = _next_with_room(workload.topic, number, with_room, ring)
            left[agent] -= 1
            if left[agent] == 0:
                with_room.discard(agent)
    return owners


def _next_with_room(topic: str, number: int, with_room: Collection[str], ring: HashRing) -> str:
    if len(with_room) == 1:
        return next(iter(with_room))
    return next(agent for agent in ring.walk(str(TopicPartition(topic, number))) if agent in with_room)


class _Replicas:
    """The replicas of partitions by point and owner: of thousands of partitions, many have the same."""

    def __init__(self, ring: HashRing, zones: Mapping[str, str]) -> None:
        self.ring, self._zones = ring, zones
        self._known: dict[tuple[int, str, int], Placement] = {}

    def placements(self, workload: Workload, owners: Sequence[str], assigned: TopicAssignment) -> tuple[Placement, ...]:
        """Each owner with its replicas."""
        if workload.replicas == 1:
            alone: dict[str, Placement] = {owner: (owner,) for owner in self._zones}  # one for all of an agent
            return tuple(alone[owner] for owner in owners)
        return tuple(
            self._placement(workload, number, owner, assigned.get(number, ())[1 : workload.replicas])
            for number, owner in enumerate(owners)
        )

    def _placement(self, workload: Workload, number: int, owner: str, assigned: Placement) -> Placement:
        point = self.ring.point(str(TopicPartition(workload.topic, number)))
        if assigned:
            return self._chosen(point, owner, assigned, workload.replicas)
        key = point, owner, workload.replicas
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._chosen(point, owner, (), workload.replicas)
        return known

    def _chosen(self, point: int, owner: str, assigned: Placement, count: int) -> Placement:
        """The owner, the assigned ones, then the agents clockwise after the owner, those in zones not yet used first."""
        walk = list(self.ring.walk_from(point))
        at = walk.index(owner)
        following = walk[at + 1 :] + walk[:at]
        chosen = [owner, *assigned]
        used = {self._zones[agent] for agent in chosen}
        for spread in (True, False):
            for agent in following:
                if len(chosen) < count and agent not in chosen and not (spread and self._zones[agent] in used):
                    chosen.append(agent)
                    used.add(self._zones[agent])
        return tuple(chosen)


@lru_cache(maxsize=8)  # one for each group, until an agent comes or goes: a topic that is created costs no new ring
def _replicas_among(agents: tuple[tuple[str, str], ...]) -> _Replicas:
    return _Replicas(HashRing(agent for agent, _ in agents), dict(agents))
