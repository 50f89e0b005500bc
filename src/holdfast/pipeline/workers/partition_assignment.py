"""Which slot reads which partitions of a generation. Pure, and decided by every worker alike from the registry's view.

The one rule: revoke before assign. A partition is claimed when it has no owner, or when its owner's session has expired; one that
should move is first revoked by its owner, who releases it once its driver has stopped working on it.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from holdfast.kernel.fair_share import sticky
from holdfast.registry import Heartbeat, PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClaim:
    """A partition to claim for `consumer`. `expired`: the expired owner it is released from first."""

    partition: int
    consumer: str
    epoch: int
    expired: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionShares:
    """What to do in one generation.

    `adopt`: partitions that are ours in the store but unknown here: the response to a claim was lost.
    `revoke`: partitions to release once their batch has ended. `lost`: partitions that have another owner.
    """

    claims: tuple[PlannedClaim, ...] = ()
    adopt: Mapping[str, Mapping[int, int]]
    revoke: Mapping[str, Set[int]]
    lost: Mapping[str, Set[int]]


def assign_partitions(
    *,
    partitions: Mapping[int, PartitionState],
    heartbeats: Mapping[int, Heartbeat],
    consumers: Iterable[str],
    held: Mapping[str, Mapping[int, int]],
    session: str,
) -> PartitionShares:
    """What this worker does. `held`: its own consumers, each with the epochs of its claims; `session` is its own."""
    alive = {number: state for number, state in partitions.items() if _alive(state, heartbeats)}
    owned: dict[str, list[int]] = {}
    for number, state in alive.items():
        owned.setdefault(state.owner or "", []).append(number)
    plan = sticky(owned, {*consumers, *held}, len(partitions))
    target = {number: consumer for consumer, numbers in plan.items() for number in numbers}
    claims: list[PlannedClaim] = []
    adopt: dict[str, dict[int, int]] = {name: {} for name in held}
    for number, state in sorted(partitions.items()):
        name = target.get(number, "")
        if name not in held or number in held[name]:
            continue
        if number not in alive:
            claims.append(PlannedClaim(partition=number, consumer=name, epoch=state.epoch, expired=state.owner))
        elif state.owner == name and heartbeats[number].session == session:
            adopt[name][number] = state.epoch
    revoke = {name: {number for number in mine if target.get(number) != name} for name, mine in held.items()}
    lost = {
        name: {number for number, epoch in mine.items() if _lost(number, epoch, partitions)}
        for name, mine in held.items()
    }
    return PartitionShares(
        claims=tuple(claims),
        adopt=adopt,
        revoke={name: numbers - lost[name] for name, numbers in revoke.items()},
        lost=lost,
    )


def _alive(state: PartitionState, heartbeats: Mapping[int, Heartbeat]) -> bool:
    heartbeat = heartbeats.get(state.id)
    return state.owner is not None and heartbeat is not None and heartbeat.epoch == state.epoch


def _lost(number: int, epoch: int, partitions: Mapping[int, PartitionState]) -> bool:
    """A view may lag behind a claim of ours, never be ahead of it: a higher epoch is another owner's."""
    state = partitions.get(number)
    return state is not None and state.epoch > epoch
