"""The planner: one agent at a time, by lease, turns members and workloads into the plan that all agents follow.

It is driven by watches; a slow tick is the safety net. A plan that moves something waits a little for things to settle, so that
three agents that start together, or one that restarts, make one plan; a plan that only places new partitions does not wait, and
neither does one after a visible death: that agent will not be back within the pause.
Every plan is written under the planner's lease: a planner that was paused cannot overwrite its successor's.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from holdfast.contracts.store import Delete, Entry, Operation, Put, Store
from holdfast.kernel.early_ends import EarlyEnder, EarlyTakeover
from holdfast.kernel.keys import (
    ASSIGNMENTS,
    DRAINS,
    PLANNER,
    PLANS,
    ROTATIONS,
    WORKLOADS,
    holder_key,
    members_prefix,
    plan_key,
)
from holdfast.kernel.lease import Held, Lease, commit_fenced, hold_lease, read_holder
from holdfast.kernel.membership import read_member
from holdfast.kernel.mirror import Mirror, open_mirror, scan_all
from holdfast.kernel.placement import (
    InSync,
    Placement,
    PlacementPlan,
    PlacementRequests,
    TopicAssignment,
    Workload,
    make_plan,
)
from holdfast.kernel.placement_requests import (
    DrainRecord,
    read_assignment,
    read_drain,
    read_rotation_target,
    with_rotations,
)
from holdfast.kernel.session import HeldSession, keep_running
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import KIB, check_at_least
from holdfast.vocabulary.tasks import Notify, background_tasks, gather_or_cancel
from holdfast.vocabulary.types import Member

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """`settle_ms`: the pause before a plan that moves something. `chunk_*` bound one commit of a large plan."""

    settle_ms: int = 500
    tick_ms: int = 30_000
    chunk_topics: int = 50
    chunk_bytes: int = 256 * KIB

    def __post_init__(self) -> None:
        check_at_least("settle_ms", self.settle_ms, 0)
        check_at_least("tick_ms", self.tick_ms, 1)
        check_at_least("chunk_topics", self.chunk_topics, 1)
        check_at_least("chunk_bytes", self.chunk_bytes, 1)


class PlanRecord(msgspec.Struct, frozen=True):
    """The value of `plan/…`: names once, then indexes, so that ten thousand partitions fit into one value."""

    agents: tuple[str, ...]
    owners: tuple[tuple[int, ...], ...]


def encode_placements(placements: Iterable[tuple[str, ...]]) -> bytes:
    """A topic's placements as the store keeps them."""
    listed = tuple(placements)
    agents = tuple(sorted({agent for placement in listed for agent in placement}))
    index = {agent: at for at, agent in enumerate(agents)}
    return msgspec.json.encode(PlanRecord(agents, tuple(tuple(index[a] for a in p) for p in listed)))


def decode_placements(value: bytes) -> tuple[Placement, ...]:
    """A topic's placements, from what the store keeps."""
    record = msgspec.json.decode(value, type=PlanRecord)
    return tuple(tuple(record.agents[at] for at in owners) for owners in record.owners)


def read_workload(entry: Entry) -> Workload:
    """The workload in a store entry."""
    return msgspec.json.decode(entry.value, type=Workload)


def plan_changes(before: PlacementPlan, after: PlacementPlan) -> list[Operation]:
    """What to write so that the store, which holds `before`, holds `after`: only topics that differ."""
    changes: list[Operation] = [
        Put(plan_key(topic), encode_placements(placements))
        for topic, placements in sorted(after.items())
        if before.get(topic) != placements
    ]
    changes.extend(Delete(plan_key(topic)) for topic in sorted(before) if topic not in after)
    return changes


def moves_partitions(before: PlacementPlan, after: PlacementPlan) -> bool:
    """Whether a placed partition gets another placement. New and removed partitions do not count."""
    return any(
        old and old != new
        for topic, placements in before.items()
        if topic in after and placements is not after[topic]
        for old, new in zip(placements, after[topic], strict=False)
    )


def planned_agents(plan: PlacementPlan) -> set[str]:
    """The agents that have a part in a plan."""
    return {agent for placements in plan.values() for placement in set(placements) for agent in placement}


def may_change_again(known: AbstractSet[str], members: AbstractSet[str], seen_dead: Callable[[str], bool]) -> bool:
    """Whether more may follow the change from `known` to `members`: not if all that happened is that agents were seen dead."""
    return not (known >= members) or not all(map(seen_dead, known - members))


def commit_chunks(changes: Iterable[Operation], settings: PlannerSettings) -> Iterable[list[Operation]]:
    """Changes in commits of bounded size. A plan is right topic by topic, so a crash in between does no harm."""
    chunk: list[Operation] = []
    size = 0
    for change in changes:
        bytes_more = len(change.value) if isinstance(change, Put) else 0
        if chunk and (len(chunk) >= settings.chunk_topics or size + bytes_more > settings.chunk_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(change)
        size += bytes_more
    if chunk:
        yield chunk


async def run_planner(
    store: Store,
    *,
    agent: str,
    session: HeldSession,
    clock: Clock,
    random: Random,
    settings: PlannerSettings,
    early: EarlyTakeover | None = None,
    in_sync: InSync = lambda topic, number: (),
) -> None:
    """Be the planner whenever nobody else is. Runs until cancelled, or until the session is lost.

    `early`: end the sessions of agents that are seen to be dead before their TTL. `in_sync`: what this agent knows of replicas.
    """
    ender = (
        EarlyEnder(early, store, agent=agent, session=session, clock=clock, random=random)
        if early is not None and early.settings.enabled
        else None
    )

    async def plan_in_turn() -> None:
        notify = Notify()
        async with (
            _open_inputs(store, clock=clock, random=random) as inputs,
            open_mirror(store, holder_key(PLANNER), read_holder, clock=clock, random=random, notify=notify),
        ):
            while True:
                async with hold_lease(
                    store, PLANNER, holder=agent, session=session, clock=clock, random=random
                ) as lease:
                    if isinstance(lease, Held):
                        await notify.wait_ms(clock, random.jitter(settings.tick_ms))
                        continue
                    try:
                        with nullcontext() if ender is None else ender.planning(lease):
                            await _plan_under_lease(
                                lease,
                                store,
                                inputs,
                                clock=clock,
                                random=random,
                                settings=settings,
                                in_sync=in_sync,
                                seen_dead=(lambda _: False) if ender is None else ender.has_ended,
                            )
                    except FencedError:
                        continue  # another agent plans now; stand by

    def kept(work: Callable[[], Awaitable[None]], what: str) -> Coroutine[None, None, None]:
        return keep_running(work, what, session=session, clock=clock, random=random)

    async with background_tasks(*(() if ender is None else (kept(ender.run, "watching for dead agents"),))):
        await kept(plan_in_turn, "planning")


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a plan is made from. Kept by agents that stand by, too: the next planner reads it once, all at the same time."""

    agents: Mirror[Member]
    workloads: Mirror[Workload]
    drains: Mirror[DrainRecord]
    assignments: Mirror[TopicAssignment]
    rotations: Mirror[str]
    changed: Notify

    def plan(self, before: PlacementPlan, in_sync: InSync) -> PlacementPlan:
        """The next plan."""
        assigned = {key.removeprefix(ASSIGNMENTS): each for key, each in self.assignments.items.items()}
        targets = {key.removeprefix(ROTATIONS): target for key, target in self.rotations.items.items()}
        agents, workloads = list(self.agents.items.values()), list(self.workloads.items.values())
        drained = {key.removeprefix(DRAINS) for key in self.drains.items}
        requests = PlacementRequests(drained, with_rotations(assigned, targets, workloads))
        return make_plan(before, agents, workloads, requests, in_sync)

    @property
    def mirrors(self) -> tuple[Mirror[Any], ...]:
        """All of them."""
        return self.agents, self.workloads, self.drains, self.assignments, self.rotations

    @property
    def members(self) -> set[str]:
        """The ids of live agents."""
        return {member.id for member in self.agents.items.values()}


@asynccontextmanager
async def _open_inputs(store: Store, *, clock: Clock, random: Random) -> AsyncIterator[_Inputs]:
    changed = Notify()

    def mirror(prefix: str, read: Callable[[Entry], T]) -> AbstractAsyncContextManager[Mirror[T]]:
        return open_mirror(store, prefix, read, clock=clock, random=random, notify=changed)

    async with (
        mirror(members_prefix("agent"), read_member) as agents,
        mirror(WORKLOADS, read_workload) as workloads,
        mirror(DRAINS, read_drain) as drains,
        mirror(ASSIGNMENTS, read_assignment) as assignments,
        mirror(ROTATIONS, read_rotation_target) as rotations,
    ):
        yield _Inputs(agents, workloads, drains, assignments, rotations, changed)


async def _plan_under_lease(
    lease: Lease,
    store: Store,
    inputs: _Inputs,
    *,
    clock: Clock,
    random: Random,
    settings: PlannerSettings,
    in_sync: InSync,
    seen_dead: Callable[[str], bool],
) -> None:
    # Under the lease nobody else writes plans: what we wrote last is the previous plan, without waiting for the mirror.
    # It was made from inputs that may be newer than what our mirrors show yet: by those, what is new would be taken for gone.
    prefixes = (PLANS, *(mirror.prefix for mirror in inputs.mirrors))
    plans, *newest = await gather_or_cancel(
        *(scan_all(store, prefix, clock=clock, random=random) for prefix in prefixes)
    )
    for mirror, scan in zip(inputs.mirrors, newest, strict=True):
        mirror.load(scan)
    before = {entry.key.removeprefix(PLANS): decode_placements(entry.value) for entry in plans.entries}
    planned_at = -1
    known = planned_agents(before)
    while True:
        began_ms = clock.boot_ms()
        after = inputs.plan(before, in_sync)
        took_ms = clock.boot_ms() - began_ms
        # What was asked for moves at once: only members come and go by themselves.
        members = inputs.members
        if (
            inputs.agents.version != planned_at
            and may_change_again(known, members, seen_dead)
            and moves_partitions(before, after)
        ):
            await clock.sleep_ms(settings.settle_ms)
            after = inputs.plan(before, in_sync)
            members = inputs.members
        planned_at, known = inputs.agents.version, members
        for chunk in commit_chunks(plan_changes(before, after), settings):
            await commit_fenced(store, lease, clock=clock, random=random, apply=chunk)
        before = after
        await inputs.changed.wait_ms(clock, random.jitter(settings.tick_ms))
        # Planning looks at everything: of a thousand topics made one after the other, many are planned together.
        await clock.sleep_ms(min(settings.settle_ms, 4 * took_ms))
