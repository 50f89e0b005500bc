"""What is asked of the planner: agents to drain and partitions to place where operators say, next leaders of those that rotate.

A request is a record in the store and stays until it is withdrawn. The planner follows it as far as it can: a drained agent keeps
what no other agent of its group could serve, and a partition whose assigned agents are all gone is placed like any other.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import Swap, compare_and_swap, unchanged
from holdfast.contracts.store import AtVersion, Committed, Delete, Entry, Operation, Put, Store
from holdfast.kernel.keys import (
    ASSIGNMENTS,
    DRAINS,
    ROTATIONS,
    assignment_key,
    drain_key,
    parse_placed_resource,
    workload_key,
)
from holdfast.kernel.mirror import scan_all
from holdfast.kernel.placement import Placement, TopicAssignment, Workload
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random


class DrainRecord(msgspec.Struct, frozen=True):
    """The value of `drain/…`. `since_ms` is wall time, for people."""

    since_ms: int


class AssignmentRecord(msgspec.Struct, frozen=True):
    """The value of `assignment/…`: by partition number, the agents that shall have it, its leader first."""

    partitions: dict[int, Placement] = {}


class RotationTarget(msgspec.Struct, frozen=True):
    """What the planner reads of `rotation/…`: the agent that shall lead; "": any."""

    target: str = ""


def read_rotation_target(entry: Entry) -> str:
    """Who shall lead a partition next."""
    return msgspec.json.decode(entry.value, type=RotationTarget).target


def with_rotations(
    assigned: Mapping[str, TopicAssignment], targets: Mapping[str, str], workloads: Iterable[Workload]
) -> Mapping[str, TopicAssignment]:
    """What operators assigned, and the next leaders (by resource) of partitions that they did not.

    A topic that rotates no more asks for nobody, whether or not it has a leader that could take back what it has asked for.
    """
    merged = {topic: dict(partitions) for topic, partitions in assigned.items()}
    still = {workload.topic for workload in workloads if not workload.rotates} if targets else set()
    for resource, target in targets.items():
        if not target:
            continue
        _, topic, number = parse_placed_resource(resource)
        if topic not in still:
            merged.setdefault(topic, {}).setdefault(number, (target,))
    return merged


async def rotation_targets(store: Store, *, clock: Clock, random: Random) -> Mapping[str, str]:
    """The next leaders that are asked for, by resource."""
    found = await scan_all(store, ROTATIONS, clock=clock, random=random)
    return {entry.key.removeprefix(ROTATIONS): read_rotation_target(entry) for entry in found.entries}


def read_drain(entry: Entry) -> DrainRecord:
    """The request to drain an agent."""
    return msgspec.json.decode(entry.value, type=DrainRecord)


def read_assignment(entry: Entry) -> TopicAssignment:
    """The assigned placements of a topic."""
    return msgspec.json.decode(entry.value, type=AssignmentRecord).partitions


async def drain_agent(store: Store, agent: str, *, clock: Clock, random: Random) -> DrainRecord:
    """Ask that an agent gets no work; asking again changes nothing. What the agent itself has asked for is replaced: it lasts."""

    async def decide(entry: Entry | None) -> Swap[DrainRecord]:
        if entry is not None and entry.session is None:
            return Swap(read_drain(entry))
        asked = DrainRecord(clock.now_ms())
        return Swap(asked, (Put(drain_key(agent), msgspec.json.encode(asked)),))

    asked, _ = await compare_and_swap(store, drain_key(agent), decide, clock=clock, random=random)
    return asked


async def drain_until_session_ends(
    store: Store, agent: str, *, session: str, clock: Clock, random: Random
) -> int | None:
    """The agent itself asks, because it is about to leave or cannot write: the version of that. None: somebody else has asked.

    What it has asked for before is written again, so that nothing that was under way withdraws it.
    """
    key, require = drain_key(agent), unchanged(drain_key(agent), None)
    while True:
        asked = Put(key, msgspec.json.encode(DrainRecord(clock.now_ms())), session)
        outcome = await commit_resolved(store, clock=clock, random=random, require=(require,), apply=(asked,))
        if isinstance(outcome, Committed):
            return outcome.version
        found = outcome.found.get(key)
        if outcome.dead_session is not None or (found is not None and found.session != session):
            return None
        require = unchanged(key, found)


async def asked_drain(store: Store, agent: str, *, session: str) -> int | None:
    """The version of what the agent itself has asked for under this session, if it has."""
    entry = await store.get(drain_key(agent))
    return entry.version if entry is not None and entry.session == session else None


async def withdraw_drain(store: Store, agent: str, version: int, *, clock: Clock, random: Random) -> None:
    """The agent itself withdraws what it has asked for; what anybody has asked for since stays."""
    key = drain_key(agent)
    await commit_resolved(store, clock=clock, random=random, require=(AtVersion(key, version),), apply=(Delete(key),))


async def undrain_agent(store: Store, agent: str, *, clock: Clock, random: Random) -> None:
    """Withdraw the request."""
    await commit_resolved(store, clock=clock, random=random, apply=(Delete(drain_key(agent)),))


async def drained_agents(store: Store, *, clock: Clock, random: Random) -> Mapping[str, DrainRecord]:
    """The agents that are to be drained."""
    found = await scan_all(store, DRAINS, clock=clock, random=random)
    return {entry.key.removeprefix(DRAINS): read_drain(entry) for entry in found.entries}


async def assign_partitions(
    store: Store, topic: str, changes: Mapping[int, Sequence[str]], *, clock: Clock, random: Random
) -> TopicAssignment:
    """Assign partitions of a topic to agents, the leader first; an empty sequence withdraws an assignment. Returns all of them.

    `InvalidError`: the planner has nothing to place for the topic; what is assigned goes with its workload.
    """

    async def decide(entry: Entry | None) -> Swap[TopicAssignment]:
        assigned = dict(read_assignment(entry)) if entry is not None else {}
        for number, agents in changes.items():
            assigned.pop(number, None)
            if agents:
                assigned[number] = tuple(agents)
        write = assignment_write(topic, assigned)
        if not assigned:
            return Swap(assigned, (write,))
        workload = await store.get(workload_key(topic))
        if workload is None:
            raise InvalidError("topic to assign", topic, "one that exists")
        return Swap(assigned, (write,), (AtVersion(workload.key, workload.version),))

    assigned, _ = await compare_and_swap(store, assignment_key(topic), decide, clock=clock, random=random)
    return assigned


async def assigned_partitions(store: Store, *, clock: Clock, random: Random) -> Mapping[str, TopicAssignment]:
    """The assignments of every topic that has some."""
    found = await scan_all(store, ASSIGNMENTS, clock=clock, random=random)
    return {entry.key.removeprefix(ASSIGNMENTS): read_assignment(entry) for entry in found.entries}


def assignment_write(topic: str, assigned: TopicAssignment) -> Operation:
    """What to write so that these, and no others, are the assigned partitions of a topic."""
    if not assigned:
        return Delete(assignment_key(topic))
    by_number = {number: assigned[number] for number in sorted(assigned)}
    return Put(assignment_key(topic), msgspec.json.encode(AssignmentRecord(by_number)))
