"""What a step does."""

from collections.abc import Callable
from typing import Final

from tests.model.rules import advanced, delivered, known, members_of
from tests.model.state import (
    DEAD,
    HANDED_OVER,
    RECOVERING,
    SEALING,
    SERVING,
    START,
    Epoch,
    Limits,
    Log,
    Replica,
    State,
    Step,
    ViolationError,
    position,
    values_of,
)


def apply(state: State, step: Step, limits: Limits) -> State:
    """The state after a step. `ViolationError`."""
    name, *rest = step
    return _STEPS[str(name)](state, limits, *rest)


def _with_epoch(state: State, number: int, epoch: Epoch) -> State:
    return state._replace(epochs=(*state.epochs[: number - 1], epoch, *state.epochs[number:]))


def _with_replica(state: State, agent: int, replica: Replica) -> State:
    return state._replace(replicas=(*state.replicas[:agent], replica, *state.replicas[agent + 1 :]))


def _acquire(state: State, limits: Limits, agent: int, members: tuple[int, ...]) -> State:
    """The lease is taken and the record read: everything an earlier leader commits is refused from here on."""
    number = len(state.epochs) + 1
    named = members_of(state, members)
    epoch = Epoch((agent, state.replicas[agent].wal), named, SEALING, in_sync=len(named), acked=(-1,) * len(named))
    to_seal = state.opened_members
    if limits.bug == "sealed the set that was acquired last" and state.epochs:
        to_seal = state.epochs[-1].members
    epoch = epoch._replace(log=state.published, to_seal=to_seal)
    if not state.opened or not state.dirty:
        epoch = _chosen(epoch, number, limits, state.published)
    return state._replace(epochs=(*state.epochs, epoch))


def _chosen(leader: Epoch, number: int, limits: Limits, log: Log) -> Epoch:
    if limits.bug == "entries stamped again":
        log = tuple((number if value != START else epoch, value) for epoch, value in log)
    if limits.bug != "no epoch-start entry":
        log = (*log, (number, START))
    return leader._replace(phase=RECOVERING, log=log, began=len(log), to_seal=(), sealed=(), peeked=())


def _better(log: Log, best: Log, bug: str) -> Log:
    if bug == "longest instead of highest epoch":
        return max(best, log, key=lambda each: (len(values_of(each)), position(each)[0]))
    return max(best, log, key=position)


def _peek(state: State, limits: Limits, number: int, agent: int) -> State:
    epoch, replica = state.epochs[number - 1], state.replicas[agent]
    best = _better(replica.log, epoch.log, limits.bug)
    return _with_epoch(state, number, epoch._replace(log=best, peeked=(*epoch.peeked, (agent, replica.wal))))


def _seal(state: State, limits: Limits, number: int, agent: int) -> State:
    epoch, replica = state.epochs[number - 1], state.replicas[agent]
    best = epoch.log if (agent, replica.wal) in epoch.peeked else _better(replica.log, epoch.log, limits.bug)
    epoch = epoch._replace(log=best, sealed=tuple(sorted((*epoch.sealed, (agent, replica.wal)))))
    if limits.bug != "no promise":
        state = _with_replica(state, agent, replica._replace(promised=number))
    return _with_epoch(state, number, epoch)


def _choose(state: State, limits: Limits, number: int) -> State:
    epoch = state.epochs[number - 1]
    return _with_epoch(state, number, _chosen(epoch, number, limits, epoch.log))


def _deliver(state: State, limits: Limits, number: int, agent: int, length: int) -> State:
    epoch, replica = state.epochs[number - 1], state.replicas[agent]
    at = epoch.members.index((agent, replica.wal))
    state = _with_replica(state, agent, delivered(replica, epoch, length, number, limits.bug))
    acked = (*epoch.acked[:at], max(length, epoch.acked[at]), *epoch.acked[at + 1 :])
    return _with_epoch(state, number, epoch._replace(acked=acked))


def _base(state: State, limits: Limits, number: int, agent: int) -> State:
    replica = state.replicas[agent]
    promised = max(number, replica.promised)
    return _with_replica(state, agent, replica._replace(log=state.published, promised=promised))


def _commit_open(state: State, limits: Limits, number: int) -> State:
    epoch = state.epochs[number - 1]
    dirty = not limits.publishes or len(values_of(epoch.log)) > len(values_of(state.published))
    return state._replace(opened=number, opened_members=epoch.members, dirty=dirty)


def _open(state: State, limits: Limits, number: int) -> State:
    epoch = state.epochs[number - 1]
    if limits.bug != "served before the open commit":
        state = _commit_open(state, limits, number)
    epoch = epoch._replace(phase=SERVING, served=True, hw=len(epoch.log), may_append=not limits.publishes)
    return _shown(_with_epoch(state, number, epoch), epoch)


def _append(state: State, limits: Limits, number: int, value: int) -> State:
    epoch = state.epochs[number - 1]
    if value in known(state, limits, number):  # only a bug answers what is not acknowledged
        return state._replace(answered=tuple(sorted({*state.answered, value})))
    epoch = epoch._replace(log=(*epoch.log, (number, value)))
    return _with_epoch(state, number, epoch)._replace(values=max(state.values, value))


def _advance(state: State, limits: Limits, number: int) -> State:
    epoch = state.epochs[number - 1]
    epoch = epoch._replace(hw=advanced(limits, epoch))
    return _shown(_with_epoch(state, number, epoch), epoch)


def _shown(state: State, epoch: Epoch) -> State:
    """What is below the high watermark is visible, and its producers are answered."""
    shown = values_of(epoch.log[: epoch.hw])
    both = min(len(shown), len(state.visible))
    if shown[:both] != state.visible[:both]:
        raise ViolationError(f"I2: {shown} is visible, and {state.visible} was")
    return state._replace(visible=max(shown, state.visible, key=len))


def _shrink(state: State, limits: Limits, number: int) -> State:
    epoch = state.epochs[number - 1]
    return _with_epoch(state, number, epoch._replace(in_sync=epoch.in_sync - 1))


def _publish(state: State, limits: Limits, number: int, length: int) -> State:
    published = state.epochs[number - 1].log[:length]
    if values_of(published)[: len(values_of(state.published))] != values_of(state.published):
        raise ViolationError(f"I5: {published} is published, and {state.published} was")
    return state._replace(published=published)


def _reserve(state: State, limits: Limits, number: int) -> State:
    return _with_epoch(state, number, state.epochs[number - 1]._replace(may_append=True))._replace(dirty=True)


def _give_back(state: State, limits: Limits, number: int) -> State:
    epoch = state.epochs[number - 1]
    goes_on = limits.bug == "append after giving the reservation back"
    return _with_epoch(state, number, epoch._replace(may_append=goes_on))._replace(dirty=False)


def _hand_over(state: State, limits: Limits, number: int, target: int) -> State:
    epoch, replica = state.epochs[number - 1], state.replicas[target]
    if limits.bug != "drained source goes on":
        epoch = epoch._replace(phase=HANDED_OVER, may_append=False)
    members = tuple((agent, state.replicas[agent].wal) for agent, _ in epoch.members)
    after = Epoch((target, replica.wal), members, SEALING, in_sync=len(members), acked=(-1,) * len(members))
    after = _chosen(after, number + 1, limits, _better(state.published, replica.log, ""))
    return _with_epoch(state, number, epoch)._replace(epochs=(*state.epochs[: number - 1], epoch, after))


def _change_set(state: State, limits: Limits, number: int, members: tuple[int, ...]) -> State:
    epoch, named = state.epochs[number - 1], members_of(state, members)
    acked = tuple(dict(zip(epoch.members, epoch.acked, strict=True)).get(member, -1) for member in named)
    epoch = epoch._replace(members=named, acked=acked)
    return _with_epoch(state, number, epoch)._replace(opened_members=named)


def _end_offset(state: State, limits: Limits, number: int) -> State:
    epoch = state.epochs[number - 1]
    seen, end = state.reader
    now = len(values_of(epoch.log[: epoch.hw]))
    if now < end:
        raise ViolationError(f"I3: the end offset is {now}, and was {end}")
    return state._replace(reader=(max(seen, number), now))


def _drop(state: State, limits: Limits, agent: int) -> State:
    promised = (
        0 if limits.bug == "promise forgotten with the log" else max(state.replicas[agent].promised, state.opened)
    )
    if limits.bug in ("dropped before the open commit", "dropped in a recovery that counts it"):
        promised = state.replicas[agent].promised
    return _with_replica(state, agent, state.replicas[agent]._replace(log=(), promised=promised))


def _begin_anew(state: State, limits: Limits, agent: int) -> State:
    replica = state.replicas[agent]
    return _with_replica(state, agent, replica._replace(log=(), promised=max(replica.promised, state.opened)))


def _lose_disk(state: State, limits: Limits, agent: int) -> State:
    named_by_agent = limits.bug == "empty disk under the old name"
    wal = state.replicas[agent].wal + (not named_by_agent)
    epochs = tuple(_dead(epoch) if epoch.leader[0] == agent else epoch for epoch in state.epochs)
    after = _with_replica(state, agent, Replica(wal=wal))
    return after._replace(epochs=epochs, lost_disks=state.lost_disks + 1)


def _dead(epoch: Epoch) -> Epoch:
    """It never acts again; what it has sent may still arrive."""
    if epoch.phase == SEALING:
        return epoch._replace(phase=DEAD, members=(), to_seal=(), sealed=(), peeked=(), log=(), acked=())
    return epoch._replace(phase=DEAD, may_append=False)


def _restart(state: State, limits: Limits, agent: int) -> State:
    return _with_replica(state, agent, state.replicas[agent]._replace(promised=0))._replace(restarts=1)


def _resume(state: State, limits: Limits, number: int) -> State:
    """The leader comes back with what its own disk has, in the same epoch."""
    epoch = state.epochs[number - 1]
    log = state.replicas[epoch.leader[0]].log
    if not log or log[-1][0] != number:
        return state._replace(restarts=1)
    epoch = epoch._replace(
        log=log, acked=tuple(min(acked, len(log)) for acked in epoch.acked), hw=min(epoch.hw, len(log))
    )
    return _with_epoch(state, number, epoch)._replace(restarts=1)


_STEPS: Final[dict[str, Callable[..., State]]] = {
    "acquire": _acquire,
    "peek": _peek,
    "seal": _seal,
    "choose": _choose,
    "deliver": _deliver,
    "base": _base,
    "commit open": _commit_open,
    "open": _open,
    "append": _append,
    "advance": _advance,
    "shrink": _shrink,
    "publish": _publish,
    "reserve": _reserve,
    "give back": _give_back,
    "hand over": _hand_over,
    "change set": _change_set,
    "end offset": _end_offset,
    "drop": _drop,
    "begin anew": _begin_anew,
    "lose disk": _lose_disk,
    "restart": _restart,
    "resume": _resume,
}
