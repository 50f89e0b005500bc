"""The steps that are possible in a state."""

from collections.abc import Iterator
from itertools import combinations

from tests.model.rules import LIES, SHRINKS, advanced, delivered, ignores_promise, known, members_of
from tests.model.state import (
    RECOVERING,
    SEALING,
    SERVING,
    Epoch,
    Limits,
    State,
    Step,
    position,
    seal_quorum,
    values_of,
    write_quorum,
)


def steps(state: State, limits: Limits) -> Iterator[Step]:
    """All steps that are enabled; of those that differ only in agents that are alike, one."""
    kinds = _kinds(state)
    if len(state.epochs) < limits.epochs:
        for agent in _first_of_each(kinds):
            for members in _sets(kinds, agent, limits):
                yield "acquire", agent, members
    for number, epoch in enumerate(state.epochs, 1):
        yield from _steps_of_epoch(state, limits, number, epoch, kinds)
    for agent in _first_of_each(kinds):
        if state.lost_disks < limits.lost_disks and state.replicas[agent].log:
            yield "lose disk", agent
        if limits.drops and _may_drop(state, limits, agent):
            yield "drop", agent
        if limits.begins_anew and _may_begin_anew(state, limits, agent):
            yield "begin anew", agent
        if limits.bug == "promise lost in a restart" and state.replicas[agent].promised and not state.restarts:
            yield "restart", agent


def _steps_of_epoch(
    state: State, limits: Limits, number: int, epoch: Epoch, kinds: tuple[object, ...]
) -> Iterator[Step]:
    bug, newest = limits.bug, number == len(state.epochs)
    if epoch.phase == SEALING:
        for member in epoch.to_seal:
            agent, wal = member
            replica = state.replicas[agent]
            if replica.wal != wal or member in epoch.sealed or kinds.index(kinds[agent]) != agent:
                continue
            if bug == "log read before the promise" and member not in epoch.peeked:
                yield "peek", number, agent
            elif replica.promised <= number:
                yield "seal", number, agent
        if len(epoch.sealed) >= _seals_needed(epoch, bug):
            yield "choose", number
    else:
        yield from _deliveries(state, limits, number, epoch, kinds)
    if epoch.phase == RECOVERING:
        if bug == "open committed before w have the log" and newest and state.opened < number:
            yield "commit open", number
        if _may_open(state, limits, number, epoch):
            yield "open", number
    if epoch.phase == SERVING:
        yield from _steps_of_leader(state, limits, number, epoch)
    if bug == "resumed after a restart" and epoch.phase in (RECOVERING, SERVING) and not state.restarts:
        yield "resume", number


def _deliveries(state: State, limits: Limits, number: int, epoch: Epoch, kinds: tuple[object, ...]) -> Iterator[Step]:
    for at, (agent, wal) in enumerate(epoch.members):
        replica = state.replicas[agent]
        if replica.wal != wal or kinds.index(kinds[agent]) != agent:
            continue
        if replica.promised > number and not ignores_promise(limits.bug, epoch, agent):
            continue
        for length in range(len(epoch.log) + 1):
            if delivered(replica, epoch, length, number, limits.bug) != replica or length > epoch.acked[at]:
                yield "deliver", number, agent, length
        if limits.bug == "late BASE resets" and replica.log != state.published:
            yield "base", number, agent


def _steps_of_leader(state: State, limits: Limits, number: int, epoch: Epoch) -> Iterator[Step]:
    bug, newest = limits.bug, number == len(state.epochs)
    fenced_out = not newest and bug != "publish unfenced"
    agent, wal = epoch.leader
    alive = state.replicas[agent].wal == wal
    leads = alive and (state.replicas[agent].promised <= number or ignores_promise(bug, epoch, agent))
    if leads and epoch.may_append:
        if state.values < limits.appends:
            yield "append", number, state.values + 1
        if limits.retries:
            for value in range(1, state.values + 1):
                settled = bug not in LIES or value in state.answered or value in state.visible
                if value not in known(state, limits, number) or not settled:
                    yield "append", number, value
    if advanced(limits, epoch) > epoch.hw:
        yield "advance", number
    if bug in SHRINKS and epoch.in_sync > 1 and (newest or bug == SHRINKS[0]):
        yield "shrink", number
    if limits.publishes and not fenced_out:
        for length in range(1, (len(epoch.log) if bug == "publish up to the log end" else epoch.hw) + 1):
            if epoch.log[:length] != state.published and (length > len(state.published) or not newest):
                yield "publish", number, length
    if limits.publishes and newest:
        if not epoch.may_append:
            yield "reserve", number
        elif state.dirty and epoch.hw == len(epoch.log) and values_of(state.published) == values_of(epoch.log):
            yield "give back", number
    if limits.hand_over and newest and len(state.epochs) < limits.epochs and epoch.hw == len(epoch.log):
        for target, _ in epoch.members:
            matches = position(state.replicas[target].log) == position(epoch.log)
            if target != agent and (matches or bug == "target's log too short"):
                yield "hand over", number, target
    if bug == "set changed within an epoch" and newest:
        for members in _sets(_kinds(state), agent, limits):
            named = members_of(state, members)
            if named != epoch.members:
                yield "change set", number, members
    if limits.end_offsets and (number >= state.reader[0] or bug == "reads without the epoch"):
        yield "end offset", number


def _kinds(state: State) -> tuple[object, ...]:
    """Agents with the same kind are interchangeable."""
    return tuple(
        (
            replica,
            tuple(
                (
                    epoch.leader[0] == agent and epoch.leader[1],
                    [acked for member, acked in zip(epoch.members, epoch.acked, strict=True) if member[0] == agent],
                    [member[1] for member in epoch.members if member[0] == agent],
                    [member[1] for member in epoch.to_seal if member[0] == agent],
                    [member[1] for member in epoch.sealed if member[0] == agent],
                    [member[1] for member in epoch.peeked if member[0] == agent],
                )
                for epoch in state.epochs
            ),
            [wal for member, wal in state.opened_members if member == agent],
        )
        for agent, replica in enumerate(state.replicas)
    )


def _first_of_each(kinds: tuple[object, ...]) -> list[int]:
    return [agent for agent, kind in enumerate(kinds) if kinds.index(kind) == agent]


def _sets(kinds: tuple[object, ...], leader: int, limits: Limits) -> list[tuple[int, ...]]:
    """The sets with this leader, one of those that are alike."""
    others = [agent for agent in range(limits.agents) if agent != leader]
    found: dict[object, tuple[int, ...]] = {}
    for size in limits.sets:
        for chosen in combinations(others, size - 1):
            members = tuple(sorted((leader, *chosen)))
            found.setdefault(repr(sorted(repr(kinds[agent]) for agent in chosen)), members)
    return list(found.values())


def _seals_needed(epoch: Epoch, bug: str) -> int:
    if bug == "local opened elsewhere without its WAL" and len(epoch.to_seal) == 1:
        return 0
    if bug == "sealed by the new set's size":
        return seal_quorum(len(epoch.members))
    return seal_quorum(len(epoch.to_seal)) - (bug == "one fewer sealed")


def _may_drop(state: State, limits: Limits, agent: int) -> bool:
    replica = state.replicas[agent]
    member = (agent, replica.wal)
    if not replica.log or not state.opened:
        return False
    if limits.bug == "dropped before the open commit":
        return member not in state.epochs[-1].members
    if member in state.opened_members:
        return False
    return replica.promised <= state.opened or limits.bug == "dropped in a recovery that counts it"


def _may_begin_anew(state: State, limits: Limits, agent: int) -> bool:
    """Of a replica that cannot be read: nobody counts it, or it has nothing of the epoch that was opened last."""
    replica = state.replicas[agent]
    if not replica.log or not state.opened:
        return False
    if (agent, replica.wal) not in state.opened_members:
        return replica.promised <= state.opened
    return replica.log[-1][0] < state.opened + (limits.bug == "begins anew though it has acknowledged")


def _may_open(state: State, limits: Limits, number: int, epoch: Epoch) -> bool:
    newest = number == len(state.epochs)
    if not newest and limits.bug != "served before the open commit":
        return False
    if limits.bug == "served when chosen":
        return True
    return sum(acked >= epoch.began for acked in epoch.acked) >= write_quorum(len(epoch.members))
