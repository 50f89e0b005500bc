"""What operators see of a cluster and ask of it: agents, partitions, leases; moving, draining, rebalancing. By the store alone.

Nothing here moves a lease. A request is written for the planner, which changes the plan, which agents follow by transfers: whoever
asks twice, or dies in between, has asked once.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.agent.partition_replicas import PartitionReplicas, named_replicas
from holdfast.agent.reassignments import Reassignment, is_under_way, target_agents
from holdfast.contracts.key_reads import read_keys
from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import (
    HOLDERS,
    PLACED,
    PLANS,
    TRANSFERS,
    WORKLOADS,
    holder_key,
    members_prefix,
    partition_resource,
    placed_resource,
)
from holdfast.kernel.lease import Held, read_holder
from holdfast.kernel.membership import MembershipSettings, list_members, read_member
from holdfast.kernel.mirror import scan_all
from holdfast.kernel.placement import PlacementPlan, PlacementRequests, TopicAssignment, make_plan
from holdfast.kernel.placement_requests import (
    assign_partitions,
    assigned_partitions,
    drain_agent,
    drained_agents,
    rotation_targets,
    undrain_agent,
    with_rotations,
)
from holdfast.kernel.plan_actions import planned_owner
from holdfast.kernel.planner import decode_placements, read_workload
from holdfast.kernel.transfer import Transfer, read_transfer
from holdfast.log.keys import OFFLINE, REPLICA_SETS, WAL_AGENTS, replica_set_key, state_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.offline_partitions import read_offline
from holdfast.log.replica_sets import ReplicaSet, read_replica_set, replicas_needed
from holdfast.log.topics import Topic, Topics
from holdfast.log.wal_owners import read_wal_agent
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.types import Member, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """An agent in a listing. `leases`: what it holds; `planned`: what it is to hold.

    `replicas`: of how many partitions it keeps the tail, as leader or not, and how many of these `in_sync`.
    """

    id: str
    node: int
    address: str
    zone: str
    group: str
    live: bool
    draining: bool
    leases: int
    planned: int
    replicas: int
    in_sync: int
    started_at_ms: int
    seen_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """A partition in a listing. `planned`: its leader and replicas as planned; `offline`: why nobody serves it.

    `replicas`: the agents that keep its tail, and those of them that keep up; a leader without others is its own replica.
    """

    topic: str
    partition: int
    leader: str | None
    epoch: int
    planned: tuple[str, ...]
    assigned: tuple[str, ...]
    replicas: tuple[str, ...]
    in_sync: tuple[str, ...]
    start: int
    published: int
    offline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """A lease in a listing. `transfer`: where a transfer of it stands, if one is under way."""

    resource: str
    holder: str
    epoch: int
    planned: str | None
    transfer: str


@dataclass(frozen=True, slots=True)
class _ClusterState:
    """Plan, holders and transfers, as they are read together."""

    plan: PlacementPlan
    holders: Mapping[str, Held]
    transfers: Mapping[str, Transfer]

    def holder(self, workload: str, number: int) -> str | None:
        """Who holds a placed lease."""
        held = self.holders.get(placed_resource(workload, number))
        return None if held is None else held.holder

    def loads(self) -> tuple[Counter[str], Counter[str]]:
        """How many leases each agent holds, and how many it is to hold."""
        held = Counter(held.holder for held in self.holders.values())
        planned = Counter(placement[0] for placements in self.plan.values() for placement in placements if placement)
        return held, planned


class ClusterAdministration:
    """Listings and requests on one store."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random
        self._topics = Topics(store, clock=clock, random=random)

    async def agents(self) -> list[AgentStatus]:
        """Every agent that is live or was a minute ago, by id."""
        state = await self._state()
        drained = await drained_agents(self._store, clock=self._clock, random=self._random)
        held, planned = state.loads()
        sets = await self._replica_sets()
        kept = Counter(agent for replicas in sets.values() for agent in replicas.agents)
        in_sync = Counter(agent for replicas in sets.values() for agent in replicas.in_sync)
        listed = await list_members(self._store, "agent", now_ms=self._clock.now_ms(), settings=MembershipSettings())
        return [
            AgentStatus(
                id=each.member.id,
                node=each.member.node,
                address=each.member.address,
                zone=each.member.zone,
                group=each.member.group,
                live=each.live,
                draining=each.member.id in drained,
                leases=held[each.member.id],
                planned=planned[each.member.id],
                replicas=kept[each.member.id],
                in_sync=in_sync[each.member.id] if each.live else 0,
                started_at_ms=each.member.started_at_ms,
                seen_at_ms=each.seen_at_ms,
            )
            for each in listed
        ]

    async def partitions(self, topic: str) -> list[PartitionStatus]:
        """Every partition of a topic. `UnknownTopicError`: there is none."""
        found = await self._topics.get(topic)
        state = await self._state()
        assigned = (await assigned_partitions(self._store, clock=self._clock, random=self._random)).get(topic, {})
        offline = {entry.key.removeprefix(OFFLINE): read_offline(entry) for entry in (await self._scan(OFFLINE))}
        records = await self._records(found)
        placements = state.plan.get(topic, ())
        wal_agents = await self._wal_agents()
        live = {member.id: member.wal_id for member in await self._members()}
        statuses = []
        for number in range(found.partitions):
            resource = partition_resource(TopicPartition(topic, number))
            held, record = state.holders.get(resource), records[number]
            mark = offline.get(resource)
            reason = mark.reason if mark is not None and held is not None and mark.epoch == held.epoch else ""
            leader = None if held is None else held.holder
            serving = leader if leader in live and not reason else None
            replicas, in_sync = _replicas(record, wal_agents, live, leader, serving)
            statuses.append(
                PartitionStatus(
                    topic=topic,
                    partition=number,
                    leader=leader,
                    epoch=0 if held is None else held.epoch,
                    planned=placements[number] if number < len(placements) else (),
                    assigned=assigned.get(number, ()),
                    replicas=replicas,
                    in_sync=tuple(agent for agent in in_sync if agent in live),
                    start=record.start,
                    published=record.published,
                    offline=reason,
                )
            )
        return statuses

    async def leases(self) -> list[LeaseStatus]:
        """Every lease, by resource."""
        state = await self._state(placed_only=False)
        return [
            LeaseStatus(
                resource=resource,
                holder=held.holder,
                epoch=held.epoch,
                planned=planned_owner(state.plan, resource) if resource.startswith(PLACED) else None,
                transfer=_transfer_text(state.transfers.get(resource)),
            )
            for resource, held in sorted(state.holders.items())
        ]

    async def assign(
        self, topic: str, changes: Mapping[int, Sequence[str]], *, settings: Mapping[str, object | None] | None = None
    ) -> None:
        """Assign partitions of a topic to live agents, the leader first; an empty sequence withdraws an assignment.

        `settings`: of the topic, changed by the same commit.
        """
        found = await self._topics.get(topic)
        for number in changes:
            if not 0 <= number < found.partitions:
                raise InvalidError("partition", number, f"0 to {found.partitions - 1}: topic {topic} has no others")
        await self._check_agents({agent for agents in changes.values() for agent in agents}, found.config.agent_group)
        if settings:
            placed = {number: tuple(agents) for number, agents in changes.items()}
            await self._topics.alter(topic, settings, assigned=placed)
        else:
            await assign_partitions(self._store, topic, changes, clock=self._clock, random=self._random)

    async def assignments(self) -> Mapping[str, TopicAssignment]:
        """What operators have assigned, by topic."""
        return await assigned_partitions(self._store, clock=self._clock, random=self._random)

    async def reassignments(self) -> list[Reassignment]:
        """The partitions that are on their way to the agents that an operator has assigned them to."""
        assigned = await self.assignments()
        if not assigned:
            return []
        live = {member.id for member in await self._members()}
        topics = {topic.name: topic for topic in await self._topics.list()}
        holders = {held.resource: held.holder for held in map(read_holder, await self._scan(holder_key(PLACED)))}
        sets = await self._replica_sets()
        found = []
        for name, partitions in sorted(assigned.items()):
            topic = topics.get(name)
            for number, agents in sorted(partitions.items()):
                if topic is None or number >= topic.partitions:
                    continue
                factor = topic.config.replication_factor
                leader = holders.get(partition_resource(TopicPartition(name, number)))
                known = sets.get(replica_set_key(topic.id, number))
                replicas = known.agents if known is not None else () if leader is None else (leader,)
                target = target_agents(agents, live, factor)
                if is_under_way(target, leader=leader, replicas=replicas, factor=factor):
                    found.append(
                        Reassignment(
                            topic=name, partition=number, leader=leader, assigned=agents[:factor], replicas=replicas
                        )
                    )
        return found

    async def preferred_leaders(self, topics: Collection[str]) -> Mapping[TopicPartition, str]:
        """The agent that is to lead each partition of these topics: the first that it is assigned to, or else the planner's."""
        assigned = await self.assignments()
        found: dict[TopicPartition, str] = {}
        for entry in await self._scan(PLANS):
            name = entry.key.removeprefix(PLANS)
            if name in topics:
                for number, placement in enumerate(decode_placements(entry.value)):
                    first = assigned.get(name, {}).get(number, placement)[:1]
                    found.update({TopicPartition(name, number): agent for agent in first})
        return found

    async def drain(self, agent: str) -> None:
        """Ask that an agent gets no work. It may be dead: then it gets none when it returns."""
        known = {status.id: status for status in await self.agents()}
        if agent not in known:
            raise InvalidError("agent", agent, _one_of(known))
        others = [each for each in known.values() if each.live and not each.draining and each.id != agent]
        if known[agent].live and not any(each.group == known[agent].group for each in others):
            raise InvalidError(
                "agent to drain", agent, f"one of several live agents of group {known[agent].group}: nobody could serve"
            )
        await drain_agent(self._store, agent, clock=self._clock, random=self._random)

    async def tails_needed_of(self, agent: str) -> int:
        """Of how many partitions an agent keeps a tail of which too few others have a copy: fewer than an append needs.

        With fewer other agents in the cluster, all of them. Until this is 0, its disk must not be lost.
        """
        others = {member.id for member in await self._members()} - {agent}
        sets = {key: each for key, each in (await self._replica_sets()).items() if agent in each.agents}
        topics = {topic.id: topic for topic in await self._topics.list()} if sets else {}
        count = 0
        for key, replicas in sets.items():
            topic = topics.get(key.removeprefix(REPLICA_SETS).partition("/")[0])
            if topic is not None:
                needed = min(replicas_needed(topic.config.partition_config()), len(others))
                count += len(others.intersection(replicas.in_sync)) < needed
        return count

    async def undrain(self, agent: str) -> None:
        """Withdraw the request to drain an agent."""
        drained = await drained_agents(self._store, clock=self._clock, random=self._random)
        if agent not in drained:
            raise InvalidError("drained agent", agent, _one_of(drained))
        await undrain_agent(self._store, agent, clock=self._clock, random=self._random)

    async def rebalance(self, topic: str | None = None) -> int:
        """Withdraw assignments, of one topic or of all, so that the planner places those partitions again. Returns how many."""
        if topic is not None:
            await self._topics.get(topic)
        assigned = await assigned_partitions(self._store, clock=self._clock, random=self._random)
        count = 0
        for name, partitions in assigned.items():
            if topic in (None, name):
                changes = dict.fromkeys(partitions, ())
                await assign_partitions(self._store, name, changes, clock=self._clock, random=self._random)
                count += len(partitions)
        return count

    async def misplaced(self) -> int:
        """How many leases are not where the next plan wants them, whether the planner has made it yet or not."""
        state = await self._state()
        planned = await self._next_plan(state.plan)
        return sum(
            1
            for topic, placements in planned.items()
            for number, placement in enumerate(placements)
            if placement and state.holder(topic, number) != placement[0]
        )

    async def _next_plan(self, previous: PlacementPlan) -> PlacementPlan:
        clock, random = self._clock, self._random
        workloads = list(map(read_workload, await self._scan(WORKLOADS)))
        requests = PlacementRequests(
            await drained_agents(self._store, clock=clock, random=random),
            with_rotations(
                await assigned_partitions(self._store, clock=clock, random=random),
                await rotation_targets(self._store, clock=clock, random=random),
                workloads,
            ),
        )
        return make_plan(previous, await self._members(), workloads, requests)

    async def _members(self) -> list[Member]:
        """Every live agent."""
        return [read_member(entry) for entry in await self._scan(members_prefix("agent"))]

    async def _state(self, *, placed_only: bool = True) -> _ClusterState:
        holders = map(read_holder, await self._scan(holder_key(PLACED) if placed_only else HOLDERS))
        transfers = map(read_transfer, await self._scan(TRANSFERS))
        return _ClusterState(
            {entry.key.removeprefix(PLANS): decode_placements(entry.value) for entry in await self._scan(PLANS)},
            {held.resource: held for held in holders},
            {transfer.resource: transfer for transfer in transfers},
        )

    async def _records(self, topic: Topic) -> list[PartitionRecord]:
        keys = [state_key(topic.id, number) for number in range(topic.partitions)]
        found = await read_keys(self._store, keys)
        return [
            msgspec.json.decode(found[key].value, type=PartitionRecord) if key in found else PartitionRecord()
            for key in keys
        ]

    async def _wal_agents(self) -> Mapping[str, str]:
        """Whose each WAL is, by its key."""
        return {entry.key: read_wal_agent(entry) for entry in await self._scan(WAL_AGENTS)}

    async def _replica_sets(self) -> Mapping[str, PartitionReplicas]:
        """Who keeps the tails of partitions that have replicas, by their keys."""
        sets = await self._scan(REPLICA_SETS)
        wal_agents = await self._wal_agents() if sets else {}
        live = {member.id: member.wal_id for member in await self._members()} if sets else {}
        return {entry.key: named_replicas(read_replica_set(entry), wal_agents, live.get) for entry in sets}

    async def _check_agents(self, agents: Collection[str], group: str) -> None:
        live = {member.id for member in await self._members() if member.group == group}
        for agent in sorted(agents):
            if agent not in live:
                raise InvalidError("agent", agent, f"{_one_of(live)}, the live agents of group {group}")

    async def _scan(self, prefix: str) -> Sequence[Entry]:
        return (await scan_all(self._store, prefix, clock=self._clock, random=self._random)).entries


def _replicas(
    record: PartitionRecord,
    wal_agents: Mapping[str, str],
    live: Mapping[str, str],
    leader: str | None,
    serving: str | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The replicas of a partition and those in sync, `serving` among them: the leader, if it serves. `live`: WALs of agents."""
    if not record.opened_replicas:
        return ((leader,) if leader else ()), ((serving,) if serving else ())
    opened = ReplicaSet(epoch=record.opened_epoch, replicas=record.opened_replicas, in_sync=record.in_sync)
    named = named_replicas(opened, wal_agents, live.get)
    first = (serving,) if serving else ()
    return tuple(dict.fromkeys((*named.agents, *first))), tuple(dict.fromkeys((*first, *named.in_sync)))


def _one_of(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none: there is none"


def _transfer_text(transfer: Transfer | None) -> str:
    return "" if transfer is None or not transfer.under_way else f"{transfer.record.state} to {transfer.record.target}"
