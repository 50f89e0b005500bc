"""The rules of the protocol that both choosing a step and taking it need, each with the bug that breaks it."""

from typing import Final

from tests.model.state import Epoch, Limits, Member, Replica, State, common, values_of, write_quorum

SHRINKS: Final = ("in-sync set shrunk locally", "in-sync set shrunk by a commit")
LIES: Final = ("producers kept from an older epoch", "duplicate answered at once")


def members_of(state: State, agents: tuple[int, ...]) -> tuple[Member, ...]:
    return tuple((agent, state.replicas[agent].wal) for agent in agents)


def ignores_promise(bug: str, epoch: Epoch, agent: int) -> bool:
    return bug == "no promise" or (bug == "leader's own WAL ignores the promise" and agent == epoch.leader[0])


def advanced(limits: Limits, epoch: Epoch) -> int:
    """Up to where enough members have it, if that entry is of this epoch."""
    needed = max(write_quorum(len(epoch.members)), min(limits.min_insync, len(epoch.members)))
    acked = epoch.acked
    if limits.bug == "acknowledged by the leader alone":
        needed, acked = 1, (epoch.acked[epoch.members.index(epoch.leader)],)
    if limits.bug in SHRINKS:
        needed = epoch.in_sync
    end = sorted(acked, reverse=True)[needed - 1] if needed <= len(acked) else 0
    return max(end, epoch.hw)  # it serves from its epoch-start entry on, so what is beyond hw is of its own epoch


def delivered(replica: Replica, epoch: Epoch, length: int, number: int, bug: str) -> Replica:
    """The replica after an APPEND of the first entries of a leader's log: it truncates on conflict only."""
    sent = epoch.log[:length]
    same = common(replica.log, sent)
    log = replica.log if same == length and bug != "late short APPEND truncates" else replica.log[:same] + sent[same:]
    return replica._replace(log=log, promised=max(replica.promised, number))


def known(state: State, limits: Limits, number: int) -> set[int]:
    """The values that the leader takes for duplicates."""
    epoch = state.epochs[number - 1]
    if limits.bug == "producers not rebuilt from the tail":
        return {*values_of(state.published), *values_of(epoch.log[epoch.began :])}
    known = set(values_of(epoch.log))
    if limits.bug == "producers kept from an older epoch":
        for older in state.epochs[: number - 1]:
            if older.leader == epoch.leader:
                known |= set(values_of(older.log))
    return known
