"""Which worker runs which slots. Pure: what is known goes in, what to do comes out; every worker decides the same from the same.

The one rule: who holds a slot is what the store says, and nobody takes a slot that somebody holds. The plan only says who may
take a free one and who should give one back: every worker gets ⌊S/W⌋…⌈S/W⌉ slots of each pipeline and of the total, and nothing
else moves (`kernel.plan`). Slots nobody wants any more go at once; slots that only stand unevenly go one at a time, when the
workers have not come or gone for a while, and to a worker whose Spark is up: nobody is restarted for nothing, and nothing waits
for a Spark that starts.
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
    """A live worker that runs slots by lease. `able`: its Spark works, as far as it knows; `ready`: it is up."""

    id: str
    slots_per_pipeline_max: int
    able: bool = True
    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInputs:
    """What a worker knows. `wanted`: how many slots each started pipeline is to have."""

    me: str
    wanted: Mapping[str, int]
    peers: tuple[WorkerPeer, ...]
    holders: Mapping[SlotId, str]
    leaving: Set[SlotId] = frozenset()
    """Slots held here that are being given back already."""
    settled: bool = True
    """Whether the workers have been the same for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecision:
    """What to do about slots. `unplaced`: slots no worker has room for. `expecting`: some are, or will be, this worker's."""

    take: tuple[SlotId, ...] = ()
    give_back: tuple[SlotId, ...] = ()
    unplaced: tuple[SlotId, ...] = ()
    expecting: bool = False


def decide_slots(situation: AssignmentInputs) -> SlotDecision:
    """What this worker does now."""
    targets, unplaced = spread(situation)
    mine = [slot for slot, holder in sorted(situation.holders.items()) if holder == situation.me]
    take = [slot for slot, who in targets.items() if who == situation.me and slot not in situation.holders]
    staying = [slot for slot in mine if slot not in situation.leaving]
    unwanted = [slot for slot in staying if not _is_wanted(slot, situation.wanted)]
    moving = [slot for slot in staying if targets.get(slot, situation.me) != situation.me]
    able = any(peer.id == situation.me and peer.able for peer in situation.peers)
    ready = {peer.id for peer in situation.peers if peer.ready}
    welcome = [slot for slot in moving if targets[slot] in ready]
    gently = moving if not able else welcome[:1] if situation.settled and not situation.leaving else []
    return SlotDecision(
        take=tuple(sorted(take)),
        give_back=tuple(unwanted + gently),
        unplaced=tuple(sorted(unplaced)),
        expecting=situation.me in targets.values(),
    )


def spread(situation: AssignmentInputs) -> tuple[dict[SlotId, str], list[SlotId]]:
    """Who should run each wanted slot, and those that no worker has room for. Without an able worker the others count."""
    able = [peer for peer in situation.peers if peer.able] or list(situation.peers)
    if not able:
        return {}, [SlotId(each, number) for each, count in sorted(situation.wanted.items()) for number in range(count)]
    previous = {
        pipeline_id: tuple(_placement(situation.holders.get(SlotId(pipeline_id, number))) for number in range(count))
        for pipeline_id, count in situation.wanted.items()
    }
    members = [Member(id=peer.id, session="") for peer in able]
    workloads = [Workload(topic=each, partitions=count) for each, count in situation.wanted.items() if count > 0]
    plan = make_plan(previous, members, workloads)
    targets = {
        SlotId(pipeline_id, number): placement[0]
        for pipeline_id, placements in plan.items()
        for number, placement in enumerate(placements)
    }
    return _within_room(targets, situation.holders, {peer.id: peer.slots_per_pipeline_max for peer in able})


def _within_room(
    targets: dict[SlotId, str], holders: Mapping[SlotId, str], room: Mapping[str, int]
) -> tuple[dict[SlotId, str], list[SlotId]]:
    """Take from everybody what is above its own limit per pipeline, and give it to those with room left."""
    count: dict[tuple[str, str], int] = {}
    kept: dict[SlotId, str] = {}
    over: list[SlotId] = []
    # What a worker already runs counts first against its limit, so that a limit moves as little as the plan does.
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


def _is_wanted(slot: SlotId, wanted: Mapping[str, int]) -> bool:
    return slot.number < wanted.get(slot.pipeline_id, 0)
