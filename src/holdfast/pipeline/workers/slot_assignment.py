"""Which worker runs which slots. Pure: every worker decides the same from the same inputs.

The one rule: a slot's holder is in the store, and no worker takes a held slot. The plan only decides who may take a free slot and
who should release one: every worker gets ⌊S/W⌋…⌈S/W⌉ slots of each pipeline and of the total, and nothing else moves
(`kernel.placement`). Unwanted slots are released at once. Slots that only rebalance move one at a time, once the set of workers is
stable, and only to a worker whose Spark is up, so that none of them waits for a Spark to start.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.kernel.placement import Workload, make_plan
from holdfast.vocabulary.types import Member


class SlotId(NamedTuple):
    """A numbered slot of a pipeline."""

    pipeline_id: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPeer:
    """A live worker that runs slots by lease. `able`: its Spark has not failed; `ready`: it is up."""

    id: str
    slots_per_pipeline_max: int
    able: bool = True
    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInputs:
    """What a worker sees. `desired`: how many slots each started pipeline should have."""

    me: str
    desired: Mapping[str, int]
    peers: tuple[WorkerPeer, ...]
    holders: Mapping[SlotId, str]
    leaving: Set[SlotId] = frozenset()
    """Slots held here that are being released already."""
    settled: bool = True
    """Whether the set of workers has been stable for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecision:
    """What to do about slots. `unplaced`: no worker has room for these. `needs_driver`: some are, or will be, this worker's."""

    take: tuple[SlotId, ...] = ()
    unwanted: tuple[SlotId, ...] = ()
    """To release: the pipeline was stopped or has fewer replicas."""
    rebalanced: tuple[SlotId, ...] = ()
    """To release: another worker should run them."""
    unplaced: tuple[SlotId, ...] = ()
    needs_driver: bool = False

    @property
    def release(self) -> tuple[SlotId, ...]:
        """All slots to release."""
        return self.unwanted + self.rebalanced


def decide_slots(inputs: AssignmentInputs) -> SlotDecision:
    """What this worker does now."""
    targets, unplaced = spread(inputs)
    mine = [slot for slot, holder in sorted(inputs.holders.items()) if holder == inputs.me]
    take = [slot for slot, who in targets.items() if who == inputs.me and slot not in inputs.holders]
    staying = [slot for slot in mine if slot not in inputs.leaving]
    unwanted = [slot for slot in staying if not _is_desired(slot, inputs.desired)]
    moving = [slot for slot in staying if targets.get(slot, inputs.me) != inputs.me]
    able = any(peer.id == inputs.me and peer.able for peer in inputs.peers)
    ready = {peer.id for peer in inputs.peers if peer.ready}
    movable = [slot for slot in moving if targets[slot] in ready]
    rebalanced = moving if not able else movable[:1] if inputs.settled and not inputs.leaving else []
    return SlotDecision(
        take=tuple(sorted(take)),
        unwanted=tuple(unwanted),
        rebalanced=tuple(rebalanced),
        unplaced=tuple(sorted(unplaced)),
        needs_driver=inputs.me in targets.values(),
    )


def spread(inputs: AssignmentInputs) -> tuple[dict[SlotId, str], list[SlotId]]:
    """Who should run each desired slot, and the slots that no worker has room for. Without an able worker all count."""
    able = [peer for peer in inputs.peers if peer.able] or list(inputs.peers)
    if not able:
        return {}, [SlotId(each, number) for each, count in sorted(inputs.desired.items()) for number in range(count)]
    previous = {
        pipeline_id: tuple(_placement(inputs.holders.get(SlotId(pipeline_id, number))) for number in range(count))
        for pipeline_id, count in inputs.desired.items()
    }
    members = [Member(id=peer.id, session="") for peer in able]
    workloads = [Workload(topic=each, partitions=count) for each, count in inputs.desired.items() if count > 0]
    plan = make_plan(previous, members, workloads)
    targets = {
        SlotId(pipeline_id, number): placement[0]
        for pipeline_id, placements in plan.items()
        for number, placement in enumerate(placements)
    }
    return _within_room(targets, inputs.holders, {peer.id: peer.slots_per_pipeline_max for peer in able})


def _within_room(
    targets: dict[SlotId, str], holders: Mapping[SlotId, str], room: Mapping[str, int]
) -> tuple[dict[SlotId, str], list[SlotId]]:
    """Move slots above a worker's limit per pipeline to workers with room."""
    count: dict[tuple[str, str], int] = {}
    kept: dict[SlotId, str] = {}
    over: list[SlotId] = []
    # Slots that a worker already runs count first against its limit, so that a limit moves as few as possible.
    for slot, who in sorted(targets.items(), key=lambda each: (holders.get(each[0]) != each[1], each[0])):
        if count.get((slot.pipeline_id, who), 0) < room[who]:
            count[slot.pipeline_id, who] = count.get((slot.pipeline_id, who), 0) + 1
            kept[slot] = who
        else:
            over.append(slot)
    unplaced = []
    for slot in sorted(over):
        free = [each for each in sorted(room) if count.get((slot.pipeline_id, each), 0) < room[each]]
        if not free:
            unplaced.append(slot)
            continue
        holder = holders.get(slot)
        chosen = holder if holder in free else min(free, key=lambda each: count.get((slot.pipeline_id, each), 0))
        count[slot.pipeline_id, chosen] = count.get((slot.pipeline_id, chosen), 0) + 1
        kept[slot] = chosen
    return kept, unplaced


def _placement(holder: str | None) -> tuple[str, ...]:
    return () if holder is None else (holder,)


def _is_desired(slot: SlotId, desired: Mapping[str, int]) -> bool:
    return slot.number < desired.get(slot.pipeline_id, 0)
